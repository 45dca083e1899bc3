//! Members of an `.npz` archive as streams: the header first, then as many elements as the caller has room for.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use morphgl_graph_store::{Error, Position, Result};
use morphgl_platform::PagePool;
use zip::ZipArchive;
use zip::result::ZipError;

use crate::elements::{ElementType, Kind, OTHER_ELEMENTS, Parsed};
use crate::plain::PlainFile;
use crate::raw::{Bytes, Raw};
use crate::text::no_archive;

/// Longest npy header read: numpy's own stay below a kilobyte for anything but structured types.
const MAX_HEADER: usize = 1 << 16;
/// Bytes read from a member at a time.
const CHUNK: usize = 1 << 20;

/// An open `.npz` archive.
pub(crate) struct Archive {
    pub(crate) path: PathBuf,
    zip: ZipArchive<BufReader<File>>,
}

impl Archive {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|e| Error::io(path, e))?;
        if file.metadata().map_err(|e| Error::io(path, e))?.is_dir() {
            return Err(Error::invalid(path, Position::File, "this is a directory", "name the .npz file"));
        }
        let mut file = BufReader::with_capacity(64 << 10, file);
        if let Some((what, cure)) = no_archive(file.fill_buf().map_err(|e| Error::io(path, e))?) {
            return Err(Error::invalid(path, Position::File, what, cure));
        }
        let zip = ZipArchive::new(file).map_err(|e| zip_error(path, e))?;
        Ok(Self { path: path.to_path_buf(), zip })
    }

    /// Names of the arrays, without `.npy`, in the archive's order.
    pub(crate) fn names(&self) -> Vec<String> {
        let names = self.zip.file_names_raw().map(String::from_utf8_lossy);
        names.map(|n| n.strip_suffix(".npy").unwrap_or(&n).to_string()).collect()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.zip.index_for_name(&format!("{name}.npy")).is_some()
    }

    /// Opens the array `name`.
    pub(crate) fn member(&mut self, name: &str) -> Result<Member<'_>> {
        let path = self.path.join(format!("{name}.npy"));
        let Some(index) = self.zip.index_for_name(&format!("{name}.npy")) else {
            let what = format!("the archive has no array {name:?}, only {:?}", self.names());
            return Err(Error::invalid(&self.path, Position::File, what, "check that this is the right file"));
        };
        let reader = self.zip.by_index(index).map_err(|e| zip_error(&path, e))?;
        Member::new(path, Source::Stream(Box::new(reader)))
    }
}

fn zip_error(path: &Path, error: ZipError) -> Error {
    match error {
        ZipError::Io(e)
            if !matches!(
                e.kind(),
                io::ErrorKind::UnexpectedEof
                    | io::ErrorKind::InvalidData
                    | io::ErrorKind::InvalidInput
                    | io::ErrorKind::Other
            ) =>
        {
            Error::io(path, e)
        }
        e => {
            let what = format!("not a readable npz archive ({})", e.to_string().to_lowercase());
            Error::invalid(path, Position::File, what, "the file is damaged or cut short: download it again")
        }
    }
}

/// What an array is read from.
pub(crate) enum Source<'z> {
    Stream(Box<dyn Read + Send + 'z>),
    /// A file of its own, which any thread can read anywhere.
    File(Arc<PlainFile>),
}

impl Source<'_> {
    fn exact(&mut self, out: &mut [u8], at: u64) -> io::Result<()> {
        match self {
            Self::Stream(reader) => reader.read_exact(out),
            Self::File(file) => file.read_at(out, at),
        }
    }
}

/// One array of an archive, being read.
pub(crate) struct Member<'z> {
    pub(crate) path: PathBuf,
    pub(crate) ty: ElementType,
    pub(crate) fortran: bool,
    pub(crate) shape: Vec<u64>,
    source: Source<'z>,
    /// Bytes of the member read so far, the header included.
    at: u64,
    /// Bytes the shape promises and that are not read yet.
    left: u64,
    buffer: Vec<u8>,
}

impl<'z> Member<'z> {
    /// Reads the header of the array that `source` holds; `path` is what errors name.
    pub(crate) fn new(path: PathBuf, source: Source<'z>) -> Result<Self> {
        let ty = ElementType { kind: Kind::Other, size: 1, big: false };
        let mut member = Self { path, ty, fortran: false, shape: vec![], source, at: 0, left: 0, buffer: vec![] };
        let mut start = [0; 10];
        member.exact(&mut start)?;
        if &start[..6] != b"\x93NUMPY" || !(1..=3).contains(&start[6]) {
            return member.fail(0, "not a npy array");
        }
        let mut len = usize::from(u16::from_le_bytes([start[8], start[9]]));
        if start[6] > 1 {
            let mut high = [0; 2];
            member.exact(&mut high)?;
            len |= usize::from(u16::from_le_bytes(high)) << 16;
        }
        if len > MAX_HEADER {
            return member.fail(8, format!("a npy header of {len} bytes"));
        }
        let mut header = vec![0; len];
        member.exact(&mut header)?;
        let Some((ty, fortran, shape)) = parse_header(&String::from_utf8_lossy(&header)) else {
            return member.fail(10, "a npy header that cannot be read, or of a structured type");
        };
        let Some(bytes) = shape.iter().try_fold(ty.size as u64, |n, &d| n.checked_mul(d)) else {
            return member.fail(10, format!("the shape {shape:?} is impossibly large"));
        };
        (member.ty, member.fortran, member.shape) = (ty, fortran, shape);
        member.left = if ty.kind == Kind::Object { 0 } else { bytes };
        Ok(member)
    }

    /// Elements that are not read yet.
    pub(crate) fn remaining(&self) -> u64 {
        self.left / self.ty.size.max(1) as u64
    }

    /// Checks that what is not read yet fits into `limit` bytes once decoded, for arrays that are held whole.
    pub(crate) fn fits(self, limit: u64) -> Result<Self> {
        // Decoded, an element takes 8 bytes at most.
        if self.remaining().saturating_mul(8) <= limit {
            return Ok(self);
        }
        let what = format!("an array of {} elements, which must be held whole", self.remaining());
        Err(Error::invalid(&self.path, Position::File, what, "raise the memory limit (--memory)"))
    }

    /// Reads past `elements`.
    pub(crate) fn skip(&mut self, elements: u64) -> Result<()> {
        let mut bytes = elements.saturating_mul(self.ty.size as u64).min(self.left);
        self.left -= bytes;
        if let Source::File(_) = self.source {
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
    pub(crate) fn raw(&mut self, elements: u64, pool: &PagePool) -> Result<Raw> {
        let bytes = elements.saturating_mul(self.ty.size as u64).min(self.left);
        let (first, at, len) = (self.count() - self.remaining(), self.at, bytes as usize);
        self.left -= bytes;
        let bytes = match &self.source {
            Source::File(file) => {
                self.at += bytes;
                Bytes::File(Arc::clone(file))
            }
            Source::Stream(_) => {
                let mut pages = pool.take();
                self.exact(pages.resize(len))?;
                Bytes::Read(pages)
            }
        };
        if self.left == 0 {
            self.end()?;
        }
        Ok(Raw { path: self.path.clone(), ty: self.ty, first, at, len, bytes })
    }

    /// Elements of the whole array.
    fn count(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Hands at most `elements` elements on as bytes, decoded by `decode`; `Err` of it says what is wrong.
    fn chunks(&mut self, elements: u64, mut decode: impl FnMut(ElementType, &[u8]) -> Parsed<()>) -> Result<()> {
        let size = self.ty.size.max(1);
        let mut bytes = elements.saturating_mul(size as u64).min(self.left);
        self.left -= bytes;
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(CHUNK, 0);
        while bytes > 0 {
            let n = bytes.min((CHUNK / size * size).max(size) as u64) as usize;
            buffer.resize(n.max(CHUNK), 0);
            let at = self.at;
            self.exact(&mut buffer[..n])?;
            decode(self.ty, &buffer[..n])
                .map_err(|what| Error::invalid(&self.path, Position::Byte(at), what, OTHER_ELEMENTS))?;
            bytes -= n as u64;
        }
        self.buffer = buffer;
        if self.left == 0 { self.end() } else { Ok(()) }
    }

    /// Appends at most `elements` whole numbers to `out`.
    pub(crate) fn ints(&mut self, elements: u64, out: &mut Vec<i64>) -> Result<()> {
        self.chunks(elements, |ty, b| {
            ty.ints(b, out).map_err(|name| format!("elements of type {name}, expected integers"))
        })
    }

    /// Appends at most `elements` numbers to `out`.
    pub(crate) fn floats(&mut self, elements: u64, out: &mut Vec<f32>) -> Result<()> {
        self.chunks(elements, |ty, b| {
            ty.floats(b, out).map_err(|name| format!("elements of type {name}, expected numbers"))
        })
    }

    /// All elements as class numbers.
    pub(crate) fn labels(&mut self) -> Result<Vec<i32>> {
        if matches!(self.ty.kind, Kind::Object | Kind::Other) {
            let cure = "number them: numpy.unique(y, return_inverse=True)[1]; or write a table of ids and labels, for --labels";
            return Err(Error::invalid(
                &self.path,
                Position::File,
                "labels that are no numbers but objects or text",
                cure,
            ));
        }
        let mut labels = vec![];
        self.chunks(u64::MAX, |ty, b| {
            ty.labels(b, &mut labels).map_err(|what| format!("{what} (element {})", labels.len()))
        })?;
        Ok(labels)
    }

    /// All whole numbers of a vector.
    pub(crate) fn all_ints(&mut self) -> Result<Vec<i64>> {
        if self.ty.kind == Kind::Object {
            let cure = "save them as numbers, with astype('int64')";
            return Err(Error::invalid(&self.path, Position::File, "its elements are Python objects", cure));
        }
        let mut out = vec![];
        self.ints(u64::MAX, &mut out)?;
        Ok(out)
    }

    /// A short text of one element, such as `csr`.
    pub(crate) fn text(&mut self) -> Result<String> {
        if self.ty.kind != Kind::Other || self.left > 64 {
            return self.fail(self.at, "an array that is no short text");
        }
        let mut bytes = vec![0; self.left as usize];
        self.exact(&mut bytes)?;
        self.left = 0;
        // Of a wider character the other bytes are zero.
        bytes.retain(|&b| b != 0);
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The pickle of an object array, at most `limit` bytes of it.
    pub(crate) fn object_bytes(&mut self, limit: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![];
        let at = self.at;
        let Source::Stream(reader) = &mut self.source else {
            return self.fail(at, "an object array");
        };
        let read = reader.take(limit.saturating_add(1)).read_to_end(&mut bytes);
        read.or_else(|e| self.fail(at, format!("the archive cannot be read on ({e})")))?;
        if bytes.len() as u64 > limit {
            let what = format!("an object array of more than {limit} bytes, which must be held whole");
            return Err(Error::invalid(&self.path, Position::File, what, "raise the memory limit (--memory)"));
        }
        Ok(bytes)
    }

    /// Looks for the end of the member, which is where its checksum is compared.
    fn end(&mut self) -> Result<()> {
        let reader = match &mut self.source {
            Source::Stream(reader) => reader,
            // What is missing is found where it is read.
            Source::File(file) => match file.metadata() {
                Ok(metadata) if metadata.len() > self.at => {
                    return self.fail(self.at, "more bytes than the shape asks for");
                }
                Ok(_) => return Ok(()),
                Err(e) => return Err(Error::io(&self.path, e)),
            },
        };
        match reader.read(&mut [0; 1]) {
            Ok(0) => Ok(()),
            Ok(_) => self.fail(self.at, "more bytes than the shape asks for"),
            Err(e) => self.fail(self.at, format!("the archive cannot be read on ({e})")),
        }
    }

    fn exact(&mut self, out: &mut [u8]) -> Result<()> {
        match self.source.exact(out, self.at) {
            Ok(()) => self.at += out.len() as u64,
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return self.fail(self.at, "the array ends early"),
            Err(e) => return self.fail(self.at, format!("the archive cannot be read on ({e})")),
        }
        Ok(())
    }

    /// An error at byte `at` of this member.
    pub(crate) fn fail<T>(&self, at: u64, what: impl Into<String>) -> Result<T> {
        let cure = "the file is damaged or cut short: download it again";
        Err(Error::invalid(&self.path, Position::Byte(at), what, cure))
    }
}

/// Type, Fortran order and shape of a header such as `{'descr': '<i8', 'fortran_order': False, 'shape': (2, 3), }`.
fn parse_header(text: &str) -> Option<(ElementType, bool, Vec<u64>)> {
    let value = |key: &str| {
        let rest = text.split_once(&format!("'{key}'")).or_else(|| text.split_once(&format!("\"{key}\"")))?.1;
        Some(rest.trim_start().strip_prefix(':')?.trim_start())
    };
    let descr = value("descr")?;
    let quote = descr.chars().next().filter(|q| matches!(q, '\'' | '"'))?;
    let ty = ElementType::parse(descr[1..].split(quote).next()?)?;
    let fortran = value("fortran_order")?.starts_with("True");
    let shape = value("shape")?.strip_prefix('(')?.split(')').next()?;
    let shape = shape.split(',').map(str::trim).filter(|d| !d.is_empty()).map(|d| d.trim_end_matches('L').parse().ok());
    Some((ty, fortran, shape.collect::<Option<Vec<u64>>>()?))
}

#[cfg(test)]
mod tests;
