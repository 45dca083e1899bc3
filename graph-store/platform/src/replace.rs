//! Files that are whole or absent: written beside their target and renamed.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A file that is being written beside the one that it replaces. Dropped before [`Replacement::finish`], it is removed and
/// the old file stays as it was.
#[derive(Debug)]
pub struct Replacement {
    /// Where it is written; the target itself if that is a device or a pipe, which a rename would replace by a file.
    path: PathBuf,
    /// The target, behind all links.
    target: PathBuf,
    finished: bool,
}

impl Replacement {
    /// For the file `target`, which need not exist: the file itself is not created yet. Of a symbolic link, the file that it
    /// names is replaced.
    ///
    /// # Errors
    ///
    /// A target that is a directory or names no file, or a link that cannot be followed.
    pub fn new(target: &Path) -> io::Result<Self> {
        let target = match fs::symlink_metadata(target) {
            Ok(found) if found.is_symlink() => fs::canonicalize(target)?,
            _ => target.to_path_buf(),
        };
        let found = fs::metadata(&target).ok();
        if found.as_ref().is_some_and(fs::Metadata::is_dir) {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory; name a file"));
        }
        if found.is_some_and(|found| !found.is_file()) {
            return Ok(Self { path: target.clone(), target, finished: true });
        }
        let Some(name) = target.file_name() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"));
        };
        let mut partial = OsString::from(name);
        partial.push(format!(".partial-{}", std::process::id()));
        Ok(Self { path: target.with_file_name(partial), target, finished: false })
    }

    /// Where the new file is written.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Syncs the new file, gives it the permissions of the old one, and puts it in its place.
    ///
    /// # Errors
    ///
    /// The file was not created, or the file system fails; the old file is then as it was.
    pub fn finish(mut self) -> io::Result<()> {
        if self.finished {
            return Ok(());
        }
        File::open(&self.path)?.sync_all()?;
        if let Ok(old) = fs::metadata(&self.target) {
            fs::set_permissions(&self.path, old.permissions())?;
        }
        fs::rename(&self.path, &self.target)?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if !self.finished {
            // It may not have been created; and one that cannot be removed has a name that says what it is.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Replaces the file `target` by what `write` writes, or leaves it as it was.
///
/// ```
/// use std::io::Write;
///
/// let path = std::env::temp_dir().join(format!("morphgl-replace-{}.txt", std::process::id()));
/// morphgl_platform::replace_file(&path, |out| writeln!(out, "whole"))?;
/// assert_eq!(std::fs::read_to_string(&path)?, "whole\n");
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// Those of [`Replacement`], and those of `write`.
pub fn replace_file(target: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let replacement = Replacement::new(target)?;
    let mut out = BufWriter::new(File::create(replacement.path())?);
    write(&mut out)?;
    out.flush()?;
    drop(out);
    replacement.finish()
}

#[cfg(test)]
mod tests;
