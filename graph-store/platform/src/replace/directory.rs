//! A directory that is replaced whole.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::exchange::exchange;
use super::unfinished::Unfinished;
use super::{behind_link, parent, sync_dir};

/// A directory that is being written beside the one that it replaces. Dropped before [`ReplacementDir::finish`], it is removed
/// and the old directory stays as it was.
#[derive(Debug)]
pub struct ReplacementDir {
    /// The target, behind all links.
    target: PathBuf,
    unfinished: Unfinished,
}

impl ReplacementDir {
    /// Creates the directory, and those above it, beside `target`, which need not exist. Of a symbolic link, the directory
    /// that it names is replaced. What killed processes left of this target is removed, or put back if one was killed
    /// between the two renames of [`ReplacementDir::finish`].
    ///
    /// # Errors
    ///
    /// A target that names no directory, a link that cannot be followed, a directory that cannot be created.
    pub fn new(target: &Path) -> io::Result<Self> {
        Self::restore(target);
        let target = behind_link(target)?;
        let unfinished = Unfinished::beside(&target)?;
        // Not beside an interrupt, which would have removed it already.
        unfinished.under_lock(|path| {
            fs::create_dir_all(parent(path))?;
            fs::create_dir(path)
        })?;
        Ok(Self { target, unfinished })
    }

    /// The directory to write to.
    pub fn path(&self) -> &Path {
        self.unfinished.path()
    }

    /// Puts the directory in its place, and with `replace` removes the old one; its files must be synced. The old directory
    /// and the new one are exchanged in one step where the file system can do that (`renameat2`, Linux). Elsewhere there are
    /// two renames: a process killed between them leaves no directory at the target, and the old one at
    /// [`ReplacementDir::aside`], from where [`ReplacementDir::restore`] puts it back.
    ///
    /// # Errors
    ///
    /// Without `replace`, a directory at the target that is not empty. The file system fails; the old directory is then as it
    /// was, unless the last sync failed.
    pub fn finish(self, replace: bool) -> io::Result<()> {
        let Self { target, unfinished } = self;
        sync_dir(unfinished.path())?;
        let aside = Self::aside(&target);
        let replaced = replace && fs::symlink_metadata(&target).is_ok();
        unfinished.under_lock(|new| match replaced {
            false => fs::rename(new, &target),
            true if exchange(new, &target)? => Ok(()),
            true => in_two_steps(new, &target, &aside),
        })?;
        // The new name is on disk before the old directory is removed, which lies where the new one was written.
        sync_dir(parent(&target))
    }

    /// Recovers from a process killed between two renames: puts the old directory back if there is no new one, and else
    /// removes it.
    pub fn restore(target: &Path) {
        // A failure here occurs again, with a message, when the target is written.
        let Ok(target) = behind_link(target) else { return };
        let aside = Self::aside(&target);
        if aside.exists() {
            let _ = if target.exists() { fs::remove_dir_all(&aside) } else { fs::rename(&aside, &target) };
        }
    }

    /// The path of the old directory between two renames.
    pub fn aside(target: &Path) -> PathBuf {
        let mut name = std::ffi::OsString::from(".");
        name.push(target.file_name().unwrap_or_default());
        name.push(".old");
        target.with_file_name(name)
    }
}

/// As an exchange, but with moments at which the old directory is at `aside`.
fn in_two_steps(new: &Path, target: &Path, aside: &Path) -> io::Result<()> {
    fs::rename(target, aside)?;
    fs::rename(new, target).inspect_err(|_| {
        // If this fails too, the next replacement does it.
        let _ = fs::rename(aside, target);
    })?;
    // One that stays aside is removed by the next replacement.
    let _ = fs::rename(aside, new);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(dir: &Path) -> String {
        fs::read_to_string(dir.join("file")).expect("there")
    }

    fn directory(path: PathBuf, content: &str) -> PathBuf {
        fs::create_dir(&path).expect("room");
        fs::write(path.join("file"), content).expect("room");
        path
    }

    #[test]
    fn two_renames_where_there_is_no_exchange() {
        let dir = tempfile::tempdir().expect("a directory");
        let [target, new] = ["set", "new"].map(|name| directory(dir.path().join(name), name));
        let aside = ReplacementDir::aside(&target);
        in_two_steps(&new, &target, &aside).expect("renamed");
        assert_eq!((content(&target), content(&new), aside.exists()), ("new".into(), "set".into(), false));
        // The second rename fails, and the first one is undone.
        fs::remove_dir_all(&new).expect("removed");
        in_two_steps(&new, &target, &aside).expect_err("nothing to rename");
        assert_eq!((content(&target), aside.exists()), ("new".into(), false));
    }

    #[test]
    fn an_exchange_leaves_no_moment_without_a_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        let [a, b] = ["a", "b"].map(|name| directory(dir.path().join(name), name));
        // Some file systems cannot, and then nothing changes.
        let [in_a, in_b] = if exchange(&a, &b).expect("both are there") { ["b", "a"] } else { ["a", "b"] };
        assert_eq!([content(&a), content(&b)], [in_a, in_b]);
        exchange(&a, &dir.path().join("none")).expect_err("nothing there");
    }
}
