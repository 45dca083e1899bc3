//! A file opened for direct reads.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{Error, ErrorKind, Result};
use crate::Pages;

/// A page of 4 KiB, the largest alignment that disks require.
const PAGE: usize = 4096;

/// A file read past the page cache where its file system allows it; clones share the handle.
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
    /// Opens `path` for reads in blocks of `block` bytes, or of a page where the disk refuses such small blocks.
    ///
    /// # Errors
    ///
    /// The file cannot be opened or read.
    ///
    /// # Panics
    ///
    /// When `block` is not a power of two from 512 to 4096.
    pub fn open(path: impl AsRef<Path>, block: usize) -> Result<Self> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|e| Error { path: path.into(), kind: ErrorKind::Open(e) })?;
        Self::of(&file, path, block)
    }

    /// As [`DirectFile::open`], of an open file, whatever is at its path by now; errors name `path`. Without Linux's `/proc`
    /// reads go through the page cache.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    ///
    /// # Panics
    ///
    /// When `block` is not a power of two from 512 to 4096.
    pub fn of(file: &File, path: impl AsRef<Path>, block: usize) -> Result<Self> {
        assert!(block.is_power_of_two() && (512..=PAGE).contains(&block), "a block of {block} bytes");
        let path = path.as_ref().to_path_buf();
        let io = |e| Error { path: path.clone(), kind: ErrorKind::Open(e) };
        let direct = super::reopen_direct(file).map_err(io)?;
        let accepted =
            |block: &usize| direct.as_ref().is_some_and(|f| accepts(|buffer, at| f.read_at(buffer, at), *block));
        let accepted = [block, PAGE].into_iter().find(accepted);
        let (file, block, direct) = match (direct, accepted) {
            (Some(direct), Some(block)) => (direct, block, true),
            _ => (file.try_clone().map_err(io)?, block, false),
        };
        let len = file.metadata().map_err(io)?.len();
        Ok(Self(Arc::new(Inner { file, path, len, block, direct })))
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Length in bytes when it was opened.
    pub fn num_bytes(&self) -> u64 {
        self.0.len
    }

    /// Alignment of reads in bytes: they begin and end at multiples of it.
    pub fn block(&self) -> usize {
        self.0.block
    }

    /// Whether reads bypass the page cache; false where the file system does not support that.
    pub fn is_direct(&self) -> bool {
        self.0.direct
    }

    pub(crate) fn file(&self) -> &File {
        &self.0.file
    }

    /// Reads until `buffer` is full or the file ends; returns the bytes read.
    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        super::read_blocks(&self.0.file, self.0.block, offset, buffer)
    }

    /// The error of a read at `offset` that failed.
    pub(crate) fn failed(&self, offset: u64, error: io::Error) -> Error {
        Error { path: self.0.path.clone(), kind: ErrorKind::Read { at: offset, error } }
    }

    /// The error of a file that ends before byte `end`.
    pub(crate) fn short(&self, read_end: u64, end: u64) -> Error {
        // A read that begins after the end of the file does not show its length.
        let at = self.0.file.metadata().map_or(read_end, |m| m.len().min(read_end));
        Error { path: self.0.path.clone(), kind: ErrorKind::Short { at, end } }
    }
}

/// Whether the file's first block can be read; disk errors are left to later reads.
///
/// A block after the end of the file proves nothing: the kernel returns 0 bytes before it checks the length.
fn accepts(read: impl FnOnce(&mut [u8], u64) -> io::Result<usize>, block: usize) -> bool {
    let Ok(mut buffer) = Pages::zeroed(PAGE) else { return false };
    match read(&mut buffer[..block], 0) {
        Err(e) => e.kind() != io::ErrorKind::InvalidInput,
        Ok(_) => true,
    }
}

#[cfg(test)]
mod tests;
