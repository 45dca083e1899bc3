//! A file opened for direct reads.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use morphgl_graph_store::{Error, Position, Result};

use crate::buffer::{Buffer, PAGE};

/// A file that is read past the page cache where its file system allows it; clones share it.
#[derive(Debug, Clone)]
pub struct DirectFile(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: File,
    path: PathBuf,
    len: u64,
    block: usize,
    direct: bool,
}

impl DirectFile {
    /// Opens `path` for reads in blocks of `block` bytes, or of a page where the disk refuses such small ones.
    ///
    /// # Errors
    ///
    /// The file cannot be opened or read.
    ///
    /// # Panics
    ///
    /// When `block` is not a power of two from 512 to 4096.
    pub fn open(path: impl AsRef<Path>, block: usize) -> Result<Self> {
        assert!(block.is_power_of_two() && (512..=PAGE).contains(&block), "a block of {block} bytes");
        let path = path.as_ref().to_path_buf();
        let io = |e| Error::io(&path, e);
        let mut opened = None;
        for block in [block, PAGE] {
            if let Some(file) = open_direct(&path).map_err(io)?
                && accepts(|buffer, at| file.read_at(buffer, at), block)
            {
                opened = Some((file, block, true));
                break;
            }
        }
        let (file, block, direct) = match opened {
            Some(opened) => opened,
            None => (File::open(&path).map_err(io)?, block, false),
        };
        let len = file.metadata().map_err(io)?.len();
        Ok(Self(Arc::new(Inner { file, path, len, block, direct })))
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Bytes it has.
    pub fn num_bytes(&self) -> u64 {
        self.0.len
    }

    /// Bytes that reads begin and end at multiples of.
    pub fn block(&self) -> usize {
        self.0.block
    }

    /// Whether reads pass by the page cache; false where the file system does not have such reads.
    pub fn is_direct(&self) -> bool {
        self.0.direct
    }

    pub(crate) fn file(&self) -> &File {
        &self.0.file
    }

    /// Reads until `buffer` is full or the file ends; returns the bytes read.
    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.0.file.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
            // What follows begins inside a block only where the file ends.
            if !done.is_multiple_of(self.0.block) {
                break;
            }
        }
        Ok(done)
    }

    /// The error of a read at `offset` that failed.
    pub(crate) fn failed(&self, offset: u64, error: &io::Error) -> Error {
        let what = format!("cannot be read ({error})");
        Error::invalid(self.path(), Position::Byte(offset), what, "check the disk, or copy the dataset to another one")
    }

    /// The error of a file that ends before byte `end`.
    pub(crate) fn cut(&self, found: u64, end: u64) -> Error {
        // A read that begins behind the end does not tell where that is.
        let found = self.0.file.metadata().map_or(found, |m| m.len().min(found));
        let what = format!("the file ends here, and is read up to byte {end}");
        let cure = "the file was cut short: copy or create the dataset again";
        Error::invalid(self.path(), Position::Byte(found), what, cure)
    }
}

/// `None` where the file system has no direct reads.
#[cfg(target_os = "linux")]
fn open_direct(path: &Path) -> io::Result<Option<File>> {
    use std::os::unix::fs::OpenOptionsExt;
    match File::options().read(true).custom_flags(libc::O_DIRECT).open(path) {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(None),
        opened => opened.map(Some),
    }
}

#[cfg(not(target_os = "linux"))]
fn open_direct(_: &Path) -> io::Result<Option<File>> {
    Ok(None)
}

/// Whether a read of one block works; errors of the disk are left to be met and told later.
///
/// The file's first block: one behind the end is answered with no bytes, before anybody looks at how long it is.
fn accepts(read: impl FnOnce(&mut [u8], u64) -> io::Result<usize>, block: usize) -> bool {
    let mut buffer = Buffer::new(PAGE);
    match read(&mut buffer.as_bytes_mut()[..block], 0) {
        Err(e) => e.kind() != io::ErrorKind::InvalidInput,
        Ok(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A read of a file of `len` bytes on a disk with blocks of 4096 bytes, as the kernel does it.
    fn read(len: u64, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        if at >= len {
            return Ok(0);
        }
        match at.is_multiple_of(4096) && buffer.len().is_multiple_of(4096) {
            true => Ok(buffer.len().min((len - at) as usize)),
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    #[test]
    fn small_blocks_are_refused_by_disks_with_large_ones_however_short_the_file() {
        for len in [1, 400, 512, 513, 4096, 100_000] {
            assert!(!accepts(|buffer, at| read(len, buffer, at), 512), "a file of {len} bytes");
            assert!(accepts(|buffer, at| read(len, buffer, at), 4096), "a file of {len} bytes");
        }
    }
}
