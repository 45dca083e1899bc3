//! A plain file that threads read in parallel: by direct reads where it is not in the page cache.
//!
//! A direct read saves the copy and the allocation of cached pages, some 3 ns for 16 bytes, and is nearer to the disk's
//! rate.

use std::fs::{File, Metadata};
use std::io;
use std::ops::Deref;
use std::path::Path;

use morphgl_platform::Pages;
use morphgl_platform::direct::{open_direct, read_blocks};

/// Alignment of direct reads.
const BLOCK: u64 = 4 << 10;
/// Shortest read for which the page cache is queried.
const MIN_DIRECT: usize = 64 << 10;

/// A file, read by position.
pub(crate) struct PlainFile {
    file: File,
    /// The same, for direct reads; `None` where the file system has none.
    direct: Option<File>,
}

/// Bytes of a file, at an offset in their buffer.
pub(crate) struct FilledPages {
    pages: Pages,
    from: usize,
}

impl Deref for FilledPages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.pages[self.from..]
    }
}

impl From<Pages> for FilledPages {
    fn from(pages: Pages) -> Self {
        Self { pages, from: 0 }
    }
}

impl FilledPages {
    /// The buffer, for reuse.
    pub(crate) fn into_pages(self) -> Pages {
        self.pages
    }
}

impl PlainFile {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        // A file system without direct reads refuses the second handle.
        Ok(Self { file: File::open(path)?, direct: open_direct(path).unwrap_or_default() })
    }

    pub(crate) fn metadata(&self) -> io::Result<Metadata> {
        self.file.metadata()
    }

    /// Fills `out` from byte `at` on; any number of threads may read at the same time.
    #[cfg(unix)]
    pub(crate) fn read_at(&self, out: &mut [u8], at: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.file, out, at)
    }

    /// Never called: on systems without positional reads, arrays are read as streams.
    #[cfg(not(unix))]
    pub(crate) fn read_at(&self, _out: &mut [u8], _at: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The `len` bytes from byte `at` on, in `pages`.
    pub(crate) fn fill(&self, mut pages: Pages, at: u64, len: usize) -> io::Result<FilledPages> {
        if let Some(direct) = self.direct.as_ref().filter(|_| len >= MIN_DIRECT && !is_cached(&self.file, at, len)) {
            let from = (at % BLOCK) as usize;
            let out = pages.resize((from + len).next_multiple_of(BLOCK as usize));
            // A refused direct read is repeated as a plain one, for its error message.
            if out.as_ptr().addr().is_multiple_of(BLOCK as usize)
                && read_blocks(direct, BLOCK as usize, at - from as u64, out).is_ok_and(|read| read >= from + len)
            {
                pages.resize(from + len);
                return Ok(FilledPages { pages, from });
            }
        }
        self.read_at(pages.resize(len), at)?;
        Ok(pages.into())
    }
}

/// Whether most of these bytes are in the page cache; true where the kernel (before Linux 6.5) has no answer.
#[cfg(target_os = "linux")]
fn is_cached(file: &File, at: u64, len: usize) -> bool {
    use std::os::fd::AsRawFd;
    /// The number is the same on all machines but Alpha.
    const CACHESTAT: libc::c_long = 451;
    let range = [at, len as u64];
    // Pages cached, dirty, under write-back, evicted, recently evicted.
    let mut pages = [0u64; 5];
    // SAFETY: the kernel reads two numbers of `range` and writes five to `pages`, which are as long.
    let failed = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), pages.as_mut_ptr(), 0) } != 0;
    // SAFETY: the call has no conditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    failed || pages[0] * page * 2 > len as u64
}

#[cfg(not(target_os = "linux"))]
fn is_cached(_file: &File, _at: u64, _len: usize) -> bool {
    true
}

#[cfg(test)]
mod tests;
