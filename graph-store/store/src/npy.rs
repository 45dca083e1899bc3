//! Plain `.npy` files: a checked reader (RAM or mmap), and the header.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::Mmap;
#[cfg(unix)]
use rayon::prelude::*;

use morphgl_platform::{Pages, excerpt, open_regular};

use crate::shared::MappedFile;
use crate::{Array, Dtype, Element, Error, Position, Result};

mod header;

use header::Header;
pub use header::{MAX_NPY_HEADER, NpyFields};

/// Bytes that our writer reserves for the header: enough for any shape, and data aligned to two cache lines.
pub(crate) const HEADER_BYTES: usize = 128;

/// Characters of an element type in a message: structured types are long.
const DESCR: usize = 60;

/// Bytes per read of a thread: whole huge pages, and enough to keep a disk busy.
#[cfg(unix)]
const READ_BYTES: usize = 8 << 20;

/// How the arrays of a dataset are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Load {
    /// Read into memory, in huge pages and by all threads of the current rayon pool.
    #[default]
    Ram,
    /// Mapped from the files: pages are loaded on access, and evicted under memory pressure. The topology and features
    /// of an opened dataset are advised for random access ([`Array::advise`]).
    Mmap,
    /// All arrays but features are read into memory. Features are mapped, and neither read nor checked, for programs that read
    /// some of their rows.
    AllButFeatures,
    /// Topology and features are mapped and not read, for operators that read the files themselves: only sizes and types
    /// are checked, not the content, and `verify` has no effect. Splits and draw keys are read into memory and checked.
    Disk,
}

/// A stored array: its open file, and its offset there.
#[derive(Debug, Clone)]
pub struct ArrayFile {
    /// Where the file was opened, for messages.
    pub path: PathBuf,
    /// The file.
    pub file: Arc<File>,
    /// Byte offset of the first element.
    pub offset: u64,
    /// Element type.
    pub dtype: Dtype,
    /// Lengths of the dimensions, slowest first.
    pub shape: Vec<u64>,
}

impl ArrayFile {
    /// Opens a `.npy` file of elements of `dtype` and reads its header.
    pub(crate) fn open(path: &Path, dtype: Dtype) -> Result<Self> {
        let file = open_regular(path).map_err(|e| Error::io(path, e))?;
        Self::of(path.to_path_buf(), file, dtype)
    }

    /// The array in an open file, which errors name `path`.
    pub(crate) fn of(path: PathBuf, file: File, dtype: Dtype) -> Result<Self> {
        let (shape, offset) = read_header(dtype, &path, &file)?;
        Ok(Self { path, file: Arc::new(file), offset, dtype, shape })
    }

    /// Bytes of all elements.
    pub fn num_bytes(&self) -> u64 {
        self.shape.iter().product::<u64>() * self.dtype.size() as u64
    }

    /// Reads the array, of elements of type `T`.
    ///
    /// # Errors
    ///
    /// Another element type, or not as many bytes as the header promises.
    pub fn read<T: Element>(&self, load: Load) -> Result<Array<T>> {
        if self.dtype != T::DTYPE {
            let what = format!("the elements are {}, expected {}", self.dtype, T::DTYPE);
            return Err(Error::invalid(&self.path, Position::File, what, "import the dataset again"));
        }
        read_array(self, load)
    }
}

/// Reads a C-ordered `.npy` file of element type `T`; returns the array and its shape.
///
/// # Errors
///
/// Missing file, not a npy file, another element type, Fortran order, or fewer bytes than the header promises.
pub fn read_npy<T: Element>(path: &Path, load: Load) -> Result<(Array<T>, Vec<u64>)> {
    let file = ArrayFile::open(path, T::DTYPE)?;
    Ok((read_array(&file, load)?, file.shape))
}

/// Reads an array whose elements are of type `T`.
fn read_array<T: Element>(array: &ArrayFile, load: Load) -> Result<Array<T>> {
    let ArrayFile { path, file, offset, shape, .. } = array;
    let (path, offset) = (path.as_path(), *offset);
    let bytes = shape.iter().copied().chain([size_of::<T>() as u64]).try_fold(1u64, u64::checked_mul);
    let actual = file.metadata().map_err(|e| Error::io(path, e))?.len();
    let Some(bytes) = bytes else {
        return Err(Error::invalid(path, Position::Byte(0), "the shape is impossibly large", "create the file again"));
    };
    if actual.checked_sub(offset) != Some(bytes) {
        let want = offset.saturating_add(bytes);
        return Err(Error::invalid(
            path,
            Position::Byte(actual.min(want)),
            format!("the header promises {want} bytes, the file has {actual}"),
            "the file was cut short or altered: copy or create it again",
        ));
    }
    match load {
        Load::Ram | Load::AllButFeatures => {
            let mut pages = Pages::zeroed(bytes as usize).map_err(|e| Error::io(path, e))?;
            read_at(file, offset, &mut pages).map_err(|e| Error::io(path, e))?;
            Ok(Array::from_pages(pages).expect("so many bytes are whole elements"))
        }
        Load::Mmap | Load::Disk => {
            // SAFETY: the map is read-only and private to this process. A dataset's files are immutable by contract
            // (written elsewhere and renamed into place); a process that truncates one under a running reader causes SIGBUS.
            let map = unsafe { Mmap::map(&**file) }.map_err(|e| Error::io(path, e))?;
            let mapped = MappedFile { map, path: path.to_path_buf() };
            Array::from_map(mapped, offset as usize, bytes as usize / size_of::<T>()).ok_or_else(|| {
                let cure = "load it to RAM or write it again";
                Error::invalid(path, Position::Byte(offset), "the data is misaligned", cure)
            })
        }
    }
}

/// Element type of a `.npy` file; u16, which numpy takes bf16 for, is reported as [`Dtype::Bf16`].
///
/// # Errors
///
/// Missing file, not a npy file, or elements of a type that no dataset has.
pub fn npy_dtype(path: &Path) -> Result<Dtype> {
    let invalid = |what: String, cure: &str| Error::invalid(path, Position::Byte(0), what, cure);
    let file = open_regular(path).map_err(|e| Error::io(path, e))?;
    let cure = "the file was cut short or is something else: create it again";
    let header = Header::read(&mut BufReader::new(file));
    let descr = header.map_err(|e| invalid(format!("not a readable npy file ({e})"), cure))?.fields.descr;
    let cure = "convert it to one of f32, f16, u8, u32, u64, i32, i64, f64";
    Dtype::of_npy(&descr).ok_or_else(|| {
        let descr = excerpt(&descr, DESCR);
        invalid(format!("elements of the type {descr} are not read"), cure)
    })
}

/// Reads `into.len()` bytes from `offset` on, in pieces that the threads of the current rayon pool share.
#[cfg(unix)]
fn read_at(file: &File, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
    use std::os::unix::fs::FileExt;
    let pieces = into.par_chunks_mut(READ_BYTES).enumerate();
    pieces.try_for_each(|(i, piece)| file.read_exact_at(piece, offset + (i * READ_BYTES) as u64))
}

/// Reads `into.len()` bytes from `offset` on.
#[cfg(not(unix))]
fn read_at(mut file: &File, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
    use std::io::{Read, Seek};
    file.seek(std::io::SeekFrom::Start(offset))?;
    file.read_exact(into)
}

/// The shape of a C-ordered `.npy` file of `dtype`, and the byte offset of its first element.
fn read_header(dtype: Dtype, path: &Path, file: &File) -> Result<(Vec<u64>, u64)> {
    let invalid = |what: String, cure: &str| Error::invalid(path, Position::Byte(0), what, cure);
    let Header { fields: NpyFields { descr, fortran_order, shape }, bytes } = Header::read(&mut BufReader::new(file))
        .map_err(|e| {
        let cure = "the file was cut short or is something else: create it again";
        invalid(format!("not a readable npy file ({e})"), cure)
    })?;
    let expected = dtype.npy_descr();
    if descr != expected {
        let cure = format!("convert the array to {dtype} or import the dataset again");
        let descr = excerpt(&descr, DESCR);
        return Err(invalid(format!("element type {descr}, expected {expected} ({dtype})"), &cure));
    }
    if fortran_order && shape.len() > 1 {
        return Err(invalid("the array is in Fortran order".into(), "save it in C order (numpy.ascontiguousarray)"));
    }
    Ok((shape, bytes))
}

/// The npy header, version 1.0, padded with blanks to [`HEADER_BYTES`].
pub(crate) fn header(dtype: Dtype, shape: &[u64]) -> [u8; HEADER_BYTES] {
    let shape = match shape {
        [n] => format!("({n},)"),
        dims => format!("({})", dims.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
    };
    let dict = format!("{{'descr': '{}', 'fortran_order': False, 'shape': {shape}, }}", dtype.npy_descr());
    let mut header = [b' '; HEADER_BYTES];
    header[..8].copy_from_slice(b"\x93NUMPY\x01\x00");
    header[8..10].copy_from_slice(&(HEADER_BYTES as u16 - 10).to_le_bytes());
    header[10..10 + dict.len()].copy_from_slice(dict.as_bytes());
    header[HEADER_BYTES - 1] = b'\n';
    header
}
