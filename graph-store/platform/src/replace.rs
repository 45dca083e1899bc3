//! Files and directories that are whole or absent: written beside their target and renamed.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

mod directory;
mod exchange;
mod unfinished;

pub use directory::ReplacementDir;
pub use unfinished::discard_unfinished;

use unfinished::Unfinished;

/// A file that is being written beside the one that it replaces. Dropped before [`Replacement::finish`], it is removed and
/// the old file stays as it was.
#[derive(Debug)]
pub struct Replacement {
    /// The target, behind all links.
    target: PathBuf,
    /// The new file; `None` if the target is a device or a pipe, which is written to: a rename would replace it by a file.
    unfinished: Option<Unfinished>,
}

impl Replacement {
    /// For the file `target`, which need not exist: the file itself is not created yet. Of a symbolic link, the file that it
    /// names is replaced. What killed processes left of this target is removed.
    ///
    /// # Errors
    ///
    /// A target that is a directory or names no file, or a link that cannot be followed.
    pub fn new(target: &Path) -> io::Result<Self> {
        let target = behind_link(target)?;
        let found = fs::metadata(&target).ok();
        if found.as_ref().is_some_and(fs::Metadata::is_dir) {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory; name a file"));
        }
        let in_place = found.is_some_and(|found| !found.is_file());
        let unfinished = if in_place { None } else { Some(Unfinished::beside(&target)?) };
        Ok(Self { target, unfinished })
    }

    /// Creates the new file, which is empty, beside the target; nothing that is there already is opened, be it a link.
    ///
    /// # Errors
    ///
    /// The file system fails, or the file was created already.
    pub fn create(&self) -> io::Result<File> {
        match &self.unfinished {
            // Not beside an interrupt, which would have removed it already.
            Some(unfinished) => unfinished.under_lock(|path| File::create_new(path)),
            None => File::create(&self.target),
        }
    }

    /// Syncs the new file, gives it the permissions of the old one, puts it in its place, and syncs the directory: after
    /// that, the new file outlasts a power failure.
    ///
    /// # Errors
    ///
    /// The file was not created, or the file system fails; the old file is then as it was, unless the last sync failed.
    pub fn finish(self) -> io::Result<()> {
        let Self { target, unfinished } = self;
        let Some(unfinished) = unfinished else { return Ok(()) };
        File::open(unfinished.path())?.sync_all()?;
        if let Ok(old) = fs::metadata(&target) {
            fs::set_permissions(unfinished.path(), old.permissions())?;
        }
        unfinished.under_lock(|new| fs::rename(new, &target))?;
        sync_dir(parent(&target))
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
    let mut out = BufWriter::new(replacement.create()?);
    write(&mut out)?;
    out.flush()?;
    drop(out);
    replacement.finish()
}

/// Syncs a directory's entries: the names of the files in it then outlast a power failure. Where the system cannot do that
/// (other systems than Unix, some network file systems, a directory that may not be read), nothing happens.
///
/// # Errors
///
/// The directory does not exist, or the disk fails.
pub fn sync_dir(path: &Path) -> io::Result<()> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    match File::open(path).and_then(|dir| dir.sync_all()) {
        Err(e) if cfg!(unix) && !matches!(e.kind(), InvalidInput | PermissionDenied | Unsupported) => Err(e),
        _ => Ok(()),
    }
}

/// The path that a symbolic link names, and any other path itself.
fn behind_link(target: &Path) -> io::Result<PathBuf> {
    match fs::symlink_metadata(target) {
        Ok(found) if found.is_symlink() => fs::canonicalize(target),
        _ => Ok(target.to_path_buf()),
    }
}

/// The directory of `path`.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests;
