//! A `.npy` array as a stream: the header first, then its elements in parts of any length.

use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use morphgl_graph_store::{Error, MAX_NPY_HEADER, NpyFields, Position, Result};
use morphgl_platform::PagePool;

use crate::Column;
use crate::elements::{ElementType, Kind, OTHER_ELEMENTS, Parsed};
use crate::files::{DAMAGED, RAISE_MEMORY, invalid, open_file};
use crate::plain::PlainFile;
use crate::segment::{Segment, SegmentBytes};

/// Bytes read from a stream at a time.
const CHUNK: usize = 1 << 20;

/// The bytes of an array.
pub(crate) enum ArrayBytes<'z> {
    Stream(Box<dyn Read + Send + 'z>),
    /// A file of its own, which any thread can read at any offset.
    File(Arc<PlainFile>),
}

/// Reader of one array.
pub(crate) struct ArrayReader<'z> {
    pub(crate) path: PathBuf,
    pub(crate) ty: ElementType,
    pub(crate) fortran: bool,
    pub(crate) shape: Vec<u64>,
    source: ArrayBytes<'z>,
    /// Bytes read so far, the header included.
    at: u64,
    /// Bytes of the shape that are not read yet.
    left: u64,
    buffer: Vec<u8>,
}

/// Opens a `.npy` file.
pub(crate) fn open_array<'z>(path: &Path) -> Result<ArrayReader<'z>> {
    let io = |e| Error::io(path, e);
    let file = open_file(path, "name the .npy file")?;
    let len = file.metadata().map_err(io)?.len();
    let source = if cfg!(unix) {
        ArrayBytes::File(Arc::new(PlainFile::open(path).map_err(io)?))
    } else {
        ArrayBytes::Stream(Box::new(BufReader::with_capacity(1 << 18, file)))
    };
    ArrayReader::new(path.into(), source, len)
}

/// Opens a file of f32 without a header: a vector, or a matrix of `dim` columns.
pub(crate) fn open_raw<'z>(path: &Path, dim: Option<u64>) -> Result<ArrayReader<'z>> {
    let io = |e| Error::io(path, e);
    let file = open_file(path, "name the file of numbers")?;
    let len = file.metadata().map_err(io)?.len();
    let row = 4 * dim.unwrap_or(1);
    if len == 0 || !len.is_multiple_of(row) {
        let what = format!("{len} bytes, neither a npy array nor rows of {} numbers of f32", dim.unwrap_or(1));
        return invalid(path, what, DAMAGED);
    }
    let source = if cfg!(unix) {
        ArrayBytes::File(Arc::new(PlainFile::open(path).map_err(io)?))
    } else {
        ArrayBytes::Stream(Box::new(BufReader::with_capacity(1 << 18, file)))
    };
    let ty = ElementType { kind: Kind::Float, size: 4, big: false };
    let shape = [len / row].into_iter().chain(dim).collect();
    Ok(ArrayReader { path: path.into(), ty, fortran: false, shape, source, at: 0, left: len, buffer: vec![] })
}

impl<'z> ArrayReader<'z> {
    /// Reads the header of the array in `source`, which has `len` bytes, and compares the shape with them; errors name `path`.
    pub(crate) fn new(path: PathBuf, source: ArrayBytes<'z>, len: u64) -> Result<Self> {
        let ty = ElementType { kind: Kind::Other, size: 1, big: false };
        let mut array = Self { path, ty, fortran: false, shape: vec![], source, at: 0, left: 0, buffer: vec![] };
        let mut start = [0; 10];
        array.exact(&mut start)?;
        if &start[..6] != b"\x93NUMPY" || !(1..=3).contains(&start[6]) {
            return array.fail(0, "not a npy array");
        }
        let mut header_len = usize::from(u16::from_le_bytes([start[8], start[9]]));
        if start[6] > 1 {
            let mut high = [0; 2];
            array.exact(&mut high)?;
            header_len |= usize::from(u16::from_le_bytes(high)) << 16;
        }
        if header_len > MAX_NPY_HEADER {
            return array.fail(8, format!("a npy header of {header_len} bytes, at most {MAX_NPY_HEADER} are read"));
        }
        let mut header = vec![0; header_len];
        array.exact(&mut header)?;
        let Some((ty, fortran, shape)) = parse_header(&String::from_utf8_lossy(&header)) else {
            return array.fail(10, "a npy header that cannot be read, or of a structured type");
        };
        let Some(bytes) = shape.iter().try_fold(ty.size as u64, |n, &d| n.checked_mul(d)) else {
            return array.fail(10, format!("the shape {shape:?} is impossibly large"));
        };
        // The pickle of an object array has any length.
        if ty.kind == Kind::Object {
            return Ok(Self { ty, fortran, shape, ..array });
        }
        let behind = len.saturating_sub(array.at);
        if bytes > behind {
            let what = format!("the array ends early: the shape {shape:?} needs {bytes} bytes, there are {behind}");
            return array.fail(len, what);
        }
        if bytes < behind {
            return array.fail(array.at + bytes, "more bytes than the shape needs");
        }
        array.left = bytes;
        Ok(Self { ty, fortran, shape, ..array })
    }

    /// Elements that are not read yet.
    pub(crate) fn remaining(&self) -> u64 {
        self.left / self.ty.size.max(1) as u64
    }

    /// Checks that the unread elements fit into `limit` bytes once decoded, for arrays that are held whole.
    pub(crate) fn fits(self, limit: u64) -> Result<Self> {
        // Decoded, an element takes 8 bytes at most.
        if self.remaining().saturating_mul(8) <= limit {
            return Ok(self);
        }
        let what = format!("an array of {} elements, which must be held whole", self.remaining());
        invalid(&self.path, what, RAISE_MEMORY)
    }

    /// Counts at most `elements` elements as read; returns their bytes.
    fn take(&mut self, elements: u64) -> u64 {
        let bytes = elements.saturating_mul(self.ty.size as u64).min(self.left);
        self.left -= bytes;
        bytes
    }

    /// Skips `elements`.
    pub(crate) fn skip(&mut self, elements: u64) -> Result<()> {
        let mut bytes = self.take(elements);
        if let ArrayBytes::File(_) = self.source {
            self.at += bytes;
            return Ok(());
        }
        let mut buffer = vec![0; CHUNK];
        while bytes > 0 {
            let n = bytes.min(CHUNK as u64) as usize;
            self.exact(&mut buffer[..n])?;
            bytes -= n as u64;
        }
        Ok(())
    }

    /// At most `elements` elements, not decoded; those of a file of its own are not read yet.
    pub(crate) fn segment(&mut self, elements: u64, pool: &PagePool) -> Result<Segment> {
        let (first, at) = (self.shape.iter().product::<u64>() - self.remaining(), self.at);
        let len = self.take(elements) as usize;
        let bytes = match &self.source {
            ArrayBytes::File(file) => {
                self.at += len as u64;
                SegmentBytes::File(Arc::clone(file))
            }
            ArrayBytes::Stream(_) => {
                let mut pages = pool.take();
                self.exact(pages.resize(len))?;
                SegmentBytes::Read(pages)
            }
        };
        if self.left == 0 {
            self.end()?;
        }
        Ok(Segment { path: self.path.clone(), ty: self.ty, first, at, len, bytes })
    }

    /// Passes at most `elements` elements as bytes to `decode`, whose `Err` says what is wrong with them; `cure` is the cure.
    fn chunks(
        &mut self,
        elements: u64,
        cure: &str,
        mut decode: impl FnMut(ElementType, &[u8]) -> Parsed<()>,
    ) -> Result<()> {
        let size = self.ty.size.max(1);
        let mut bytes = self.take(elements);
        let mut buffer = std::mem::take(&mut self.buffer);
        while bytes > 0 {
            let n = bytes.min((CHUNK / size * size).max(size) as u64) as usize;
            buffer.resize(n.max(CHUNK), 0);
            let at = self.at;
            self.exact(&mut buffer[..n])?;
            decode(self.ty, &buffer[..n]).map_err(|what| Error::invalid(&self.path, Position::Byte(at), what, cure))?;
            bytes -= n as u64;
        }
        self.buffer = buffer;
        if self.left == 0 { self.end() } else { Ok(()) }
    }

    /// Appends at most `elements` whole numbers to `out`.
    pub(crate) fn ints(&mut self, elements: u64, out: &mut Vec<i64>) -> Result<()> {
        self.chunks(elements, OTHER_ELEMENTS, |ty, bytes| ty.ints(bytes, out))
    }

    /// Appends at most `elements` numbers to `out`.
    pub(crate) fn floats(&mut self, elements: u64, out: &mut Vec<f32>) -> Result<()> {
        self.chunks(elements, OTHER_ELEMENTS, |ty, bytes| ty.floats(bytes, out))
    }

    /// All elements as class numbers.
    pub(crate) fn labels(&mut self) -> Result<Vec<i32>> {
        if matches!(self.ty.kind, Kind::Object | Kind::Other) {
            let cure = "number them: numpy.unique(y, return_inverse=True)[1]; or write a table of ids and labels, for --labels";
            return invalid(&self.path, "labels that are no numbers but objects or text", cure);
        }
        let mut labels = vec![];
        let cure = match self.ty.kind {
            Kind::Float => {
                "give quantities as targets (--targets FILE, or an array named targets), or correct the array and save it again"
            }
            _ => OTHER_ELEMENTS,
        };
        self.chunks(u64::MAX, cure, |ty, bytes| {
            ty.labels(bytes, &mut labels).map_err(|what| format!("{what} (element {})", labels.len()))
        })?;
        Ok(labels)
    }

    /// All whole numbers of a vector.
    pub(crate) fn all_ints(&mut self) -> Result<Vec<i64>> {
        if self.ty.kind == Kind::Object {
            let cure = "save them as numbers, with astype('int64')";
            return invalid(&self.path, "its elements are Python objects", cure);
        }
        let mut out = vec![];
        self.ints(u64::MAX, &mut out)?;
        Ok(out)
    }

    /// All elements of a vector of node ids.
    pub(crate) fn all_ids(&mut self) -> Result<Vec<u64>> {
        let ids = self.all_ints()?;
        if let Some(i) = ids.iter().position(|&id| id < 0) {
            let what = format!("the node id is {}", ids[i]);
            return Err(Error::invalid(&self.path, Position::Element(i as u64), what, "correct the ids"));
        }
        Ok(ids.into_iter().map(|id| id as u64).collect())
    }

    /// All numbers of a mask, or of one of its columns.
    pub(crate) fn mask_of(&mut self, column: &Option<Column>) -> Result<Vec<f32>> {
        let column = self.expect_column(column, "--split-column")?;
        let mut values = vec![];
        self.floats(u64::MAX, &mut values)?;
        Ok(self.select(column, |i| values[i]))
    }

    /// All class numbers of the array, or of one of its columns.
    pub(crate) fn labels_of(&mut self, column: &Option<Column>) -> Result<Vec<i32>> {
        let column = self.expect_column(column, "--label-column")?;
        let labels = self.labels()?;
        Ok(self.select(column, |i| labels[i]))
    }

    /// The values of a column, or of a vector; `value` maps an element's index to its value.
    fn select<T>(&self, column: Option<usize>, value: impl Fn(usize) -> T) -> Vec<T> {
        let (rows, columns) = (self.shape[0] as usize, self.shape.get(1).map_or(1, |&n| n as usize));
        let column = column.unwrap_or(0);
        let index = |row| if self.fortran { column * rows + row } else { row * columns + column };
        (0..rows).map(|row| value(index(row))).collect()
    }

    /// The column to read of an array `[nodes, K]`, `None` for an array `[nodes]`; `option` is the command's option that
    /// `column` comes from.
    fn expect_column(&self, column: &Option<Column>, option: &str) -> Result<Option<usize>> {
        let (what, cure) = match (self.shape.as_slice(), column) {
            (&[_, columns], Some(Column::Number(n))) if columns > 1 && *n >= 1 && *n as u64 <= columns => {
                return Ok(Some(n - 1));
            }
            (&[_, columns], Some(column)) if columns != 1 => {
                (format!("there is no column {column}: there are {columns}"), format!("give {option} a number from 1"))
            }
            (&[_, columns], None) if columns != 1 => {
                let one_hot = match option {
                    "--label-column" => {
                        "; of one-hot labels save y.argmax(1), and give several values or labels per node as targets (--targets FILE, or an array named targets)"
                    }
                    _ => "",
                };
                (
                    format!("an array of shape {:?}, where one value per node is expected", self.shape),
                    format!("read one of its columns by {option} 1 to {columns}{one_hot}"),
                )
            }
            _ => return self.expect_vector().map(|()| None),
        };
        invalid(&self.path, what, cure)
    }

    /// Refuses anything but one dimension (or a second one of length 1).
    pub(crate) fn expect_vector(&self) -> Result<()> {
        if matches!(self.shape.as_slice(), [_] | [_, 1]) {
            return Ok(());
        }
        invalid(&self.path, format!("an array of shape {:?}, expected one dimension", self.shape), "reshape it")
    }

    /// A short text of one element, such as `csr`.
    pub(crate) fn text(&mut self) -> Result<String> {
        if self.ty.kind != Kind::Other || self.left > 64 {
            return self.fail(self.at, "an array that is no short text");
        }
        let mut bytes = vec![0; self.left as usize];
        self.exact(&mut bytes)?;
        self.left = 0;
        self.end()?;
        // The other bytes of a wider character are zero.
        bytes.retain(|&b| b != 0);
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The pickle of an object array, at most `limit` bytes of it.
    pub(crate) fn object_bytes(&mut self, limit: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![];
        let ArrayBytes::Stream(reader) = &mut self.source else {
            return self.fail(self.at, "an object array");
        };
        let read = reader.take(limit.saturating_add(1)).read_to_end(&mut bytes);
        read.or_else(|e| self.unreadable(e))?;
        if bytes.len() as u64 > limit {
            let what = format!("an object array of more than {limit} bytes, which must be held whole");
            return invalid(&self.path, what, RAISE_MEMORY);
        }
        Ok(bytes)
    }

    /// Checks that nothing follows the last element; a member of an archive compares its checksum there.
    fn end(&mut self) -> Result<()> {
        let more = match &mut self.source {
            ArrayBytes::Stream(reader) => match reader.read(&mut [0; 1]) {
                Ok(n) => n > 0,
                Err(e) => return self.unreadable(e),
            },
            // Missing bytes are an error where they are read.
            ArrayBytes::File(file) => file.metadata().map_err(|e| Error::io(&self.path, e))?.len() > self.at,
        };
        if more { self.fail(self.at, "more bytes than the shape needs") } else { Ok(()) }
    }

    fn exact(&mut self, out: &mut [u8]) -> Result<()> {
        let read = match &mut self.source {
            ArrayBytes::Stream(reader) => reader.read_exact(out),
            ArrayBytes::File(file) => file.read_at(out, self.at),
        };
        match read {
            Ok(()) => self.at += out.len() as u64,
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return self.fail(self.at, "the array ends early"),
            Err(e) => return self.unreadable(e),
        }
        Ok(())
    }

    fn unreadable<T>(&self, error: io::Error) -> Result<T> {
        self.fail(self.at, format!("the archive cannot be read on ({error})"))
    }

    /// Fails at byte `at` of this array.
    pub(crate) fn fail<T>(&self, at: u64, what: impl Into<String>) -> Result<T> {
        Err(Error::invalid(&self.path, Position::Byte(at), what, DAMAGED))
    }
}

/// Type, Fortran order and shape of a header; `None` where it cannot be read, or is of a structured type.
fn parse_header(text: &str) -> Option<(ElementType, bool, Vec<u64>)> {
    let NpyFields { descr, fortran_order, shape } = NpyFields::parse(text)?;
    Some((ElementType::parse(&descr)?, fortran_order, shape))
}

#[cfg(test)]
mod tests;
