//! Files of outside data, opened only where they are regular; and a directory held open.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

/// Opens a file for reading that has to be a regular one: a pipe nobody writes to would be waited for forever, and a device such
/// as `/dev/zero` has no end. It is looked at before it is opened, since opening alone may wait or act.
///
/// # Errors
///
/// The file cannot be opened; a directory ([`io::ErrorKind::IsADirectory`]); a pipe, a socket or a device, which
/// [`io::ErrorKind::NotSeekable`] says.
pub fn open_regular(path: &Path) -> io::Result<File> {
    check_regular(&fs::metadata(path)?)?;
    let mut options = File::options();
    options.read(true);
    #[cfg(target_os = "linux")]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    let file = options.open(path)?;
    // Another one may have taken its place in between.
    check_regular(&file.metadata()?)?;
    Ok(file)
}

fn check_regular(found: &Metadata) -> io::Result<()> {
    if found.is_file() {
        return Ok(());
    }
    if found.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    #[cfg(unix)]
    let what = {
        use std::os::unix::fs::FileTypeExt;
        let kind = found.file_type();
        if kind.is_fifo() {
            "a pipe"
        } else if kind.is_socket() {
            "a socket"
        } else {
            "a device"
        }
    };
    #[cfg(not(unix))]
    let what = "a device";
    let what = format!("this is {what}, not a regular file; write its content to a file and name that");
    Err(io::Error::new(io::ErrorKind::NotSeekable, what))
}

/// Whether `path` still names the open file or directory, rather than nothing or another one that has taken its place. On other
/// systems than Unix, whether it names anything.
pub fn is_at(file: &File, path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let inode = |found: io::Result<Metadata>| found.map(|found| (found.dev(), found.ino())).ok();
        // No other file can get the inode's number while this one is open.
        inode(file.metadata()).is_some_and(|held| inode(fs::metadata(path)) == Some(held))
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        path.exists()
    }
}

/// A directory held open: [`HeldDir::open_file`] finds its files even where another directory has taken its place at its path.
/// On other systems than Linux it is a path.
#[derive(Debug)]
pub struct HeldDir {
    path: PathBuf,
    #[cfg(target_os = "linux")]
    handle: File,
}

impl HeldDir {
    /// Opens the directory at `path`.
    ///
    /// # Errors
    ///
    /// There is none, or it may not be entered.
    pub fn open(path: &Path) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        let handle = {
            use std::os::unix::fs::OpenOptionsExt;
            File::options().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(path)?
        };
        Ok(Self {
            path: path.to_path_buf(),
            #[cfg(target_os = "linux")]
            handle,
        })
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether its path still names this directory.
    pub fn is_in_place(&self) -> bool {
        #[cfg(target_os = "linux")]
        return is_at(&self.handle, &self.path);
        #[cfg(not(target_os = "linux"))]
        true
    }

    /// Opens a file of the directory, as [`open_regular`].
    ///
    /// # Errors
    ///
    /// As [`open_regular`].
    pub fn open_file(&self, name: &OsStr) -> io::Result<File> {
        #[cfg(target_os = "linux")]
        {
            use std::ffi::CString;
            use std::os::fd::{AsRawFd, FromRawFd};
            use std::os::unix::ffi::OsStrExt;
            let name = CString::new(name.as_bytes())?;
            let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
            // SAFETY: the name ends with a zero and outlives the call.
            let opened = unsafe { libc::openat(self.handle.as_raw_fd(), name.as_ptr(), flags) };
            if opened < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: a descriptor that was just opened, and that nothing else owns.
            let file = unsafe { File::from_raw_fd(opened) };
            check_regular(&file.metadata()?)?;
            Ok(file)
        }
        #[cfg(not(target_os = "linux"))]
        open_regular(&self.path.join(name))
    }
}

#[cfg(test)]
mod tests;
