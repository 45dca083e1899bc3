//! The streaming writer of `.npy` files.

use std::fmt;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use morphgl_platform::Pages;

use crate::background::BackgroundFile;
use crate::npy::{HEADER_BYTES, header};
use crate::summary::Summary;
use crate::{ArrayMeta, Element, Error, Result};

/// Complete files that their owner syncs, and what was written to them.
pub(crate) type Unsynced = Arc<Mutex<Vec<(PathBuf, File, Summary)>>>;

/// Streaming writer of a `.npy` file, whose shape is known at the end.
///
/// After the first half megabyte a background thread hashes, writes and starts write-back; `write` blocks only when that
/// thread is a megabyte behind. An error may therefore be returned by a later call.
pub struct NpyWriter<T: Element> {
    path: PathBuf,
    out: BackgroundFile,
    len: u64,
    unsynced: Option<Unsynced>,
    element: PhantomData<T>,
}

impl<T: Element> fmt::Debug for NpyWriter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NpyWriter({}, {} x {})", self.path.display(), self.len, T::DTYPE)
    }
}

impl<T: Element> NpyWriter<T> {
    /// Creates or truncates `path`.
    pub fn create(path: impl Into<PathBuf>) -> Result<Self> {
        Self::new(path.into(), None)
    }

    /// Writes to an empty file, such as a [`Replacement`](morphgl_platform::Replacement) creates; errors name `path`.
    pub fn of(path: impl Into<PathBuf>, file: File) -> Result<Self> {
        Self::over(path.into(), file, None)
    }

    /// As [`NpyWriter::create`]; with `unsynced`, the dataset's writer syncs the file later.
    pub(crate) fn new(path: PathBuf, unsynced: Option<Unsynced>) -> Result<Self> {
        // In a new dataset's directory there is nothing else.
        let file = if unsynced.is_some() { File::create_new(&path) } else { File::create(&path) };
        let file = file.map_err(|e| Error::io(&path, e))?;
        Self::over(path, file, unsynced)
    }

    fn over(path: PathBuf, mut file: File, unsynced: Option<Unsynced>) -> Result<Self> {
        file.write_all(&[0; HEADER_BYTES]).map_err(|e| Error::io(&path, e))?;
        Ok(Self {
            path,
            out: BackgroundFile::new(file, HEADER_BYTES as u64, T::DTYPE),
            len: 0,
            unsynced,
            element: PhantomData,
        })
    }

    /// Appends elements.
    pub fn write(&mut self, values: &[T]) -> Result<()> {
        self.len += values.len() as u64;
        self.out.write(bytemuck::cast_slice(values)).map_err(|e| Error::io(&self.path, e))
    }

    /// Appends the elements in `pages`, half a megabyte or more without a copy: the background thread drops them.
    ///
    /// # Panics
    ///
    /// When the bytes are not whole elements.
    pub fn write_pages(&mut self, pages: Pages) -> Result<()> {
        assert_eq!(pages.len() % size_of::<T>(), 0, "{} bytes of elements of {}", pages.len(), size_of::<T>());
        self.len += (pages.len() / size_of::<T>()) as u64;
        self.out.write_pages(pages).map_err(|e| Error::io(&self.path, e))
    }

    /// Elements written so far.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing was written yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Writes the header and returns the array's description; `dim` is the row length of a matrix. The file is synced, or,
    /// if it belongs to a [`DatasetWriter`](crate::DatasetWriter), when the dataset is finished.
    ///
    /// # Panics
    ///
    /// When `dim` does not divide the number of elements.
    pub fn finish(self, dim: Option<usize>) -> Result<ArrayMeta> {
        let shape = match dim {
            None => vec![self.len],
            Some(dim) => {
                assert_eq!(self.len % dim.max(1) as u64, 0, "{} elements in rows of {dim}", self.len);
                vec![self.len / dim.max(1) as u64, dim as u64]
            }
        };
        let Self { path, out, unsynced, .. } = self;
        let io = |e| Error::io(&path, e);
        let mut sink = out.finish().map_err(io)?;
        sink.file.seek(SeekFrom::Start(0)).map_err(io)?;
        sink.file.write_all(&header(T::DTYPE, &shape)).map_err(io)?;
        let file = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let xxh3 = format!("{:016x}", sink.hash.digest());
        match unsynced {
            None => sink.file.sync_all().map_err(io)?,
            Some(files) => {
                sink.start_writeback();
                // A panic of another thread leaves the list of files valid.
                let mut files = files.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                files.push((path, sink.file, sink.summary));
            }
        }
        Ok(ArrayMeta { file, dtype: T::DTYPE, shape, xxh3 })
    }
}
