//! Files and directories under way, which every end of the process but a kill removes; after a kill, the next writer does.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::parent;

/// Paths under way in this process.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    // Paths are added and removed whole: a panic leaves a valid list.
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes every file and directory that this process is writing beside its target ([`Replacement`](super::Replacement),
/// [`ReplacementDir`](super::ReplacementDir)). For a handler of interrupts that ends the process next: each target is then
/// as it was or finished, and a thread that begins, finishes or drops a replacement afterwards waits for ever.
pub fn discard_unfinished() {
    let unfinished = unfinished();
    unfinished.iter().for_each(|path| discard(path));
    // Never unlocked: no half-removed directory is put in its place.
    mem::forget(unfinished);
}

fn discard(path: &Path) {
    if !fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
        return remove(path);
    }
    // Renamed first: threads that still write there fail, and add nothing during the removal.
    let mut aside = path.as_os_str().to_owned();
    aside.push(".discarded");
    let aside = PathBuf::from(aside);
    remove(if fs::rename(path, &aside).is_ok() { &aside } else { path });
}

/// Removes a file or a directory. One that is not there, or cannot be removed, is left: its name says what it is.
fn remove(path: &Path) {
    let is_dir = fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    let _ = if is_dir { fs::remove_dir_all(path) } else { fs::remove_file(path) };
}

/// A path beside a target, where the file or the directory that replaces it is written. Dropped, whatever is there is removed.
#[derive(Debug)]
pub(super) struct Unfinished {
    path: PathBuf,
}

impl Unfinished {
    /// A fresh path at which nothing is; nothing is created. Those of killed processes are removed.
    pub(super) fn beside(target: &Path) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let Some(stem) = stem(target) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"));
        };
        remove_stale(parent(target), &stem);
        // Another machine's process may have this one's number.
        let path = loop {
            let mut name = stem.clone();
            name.push(format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
            let path = target.with_file_name(name);
            if fs::symlink_metadata(&path).is_err() {
                break path;
            }
        };
        unfinished().push(path.clone());
        Ok(Self { path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Calls `change`, which creates what is here, or puts it in its place; an interrupt comes before it or after it.
    pub(super) fn under_lock<T>(&self, change: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
        let _no_interrupt = unfinished();
        change(&self.path)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // In its place, or exchanged for the old one.
        remove(&self.path);
        unfinished().retain(|path| *path != self.path);
    }
}

/// The beginning of all names beside `target`; a number of the process follows.
fn stem(target: &Path) -> Option<OsString> {
    let mut stem = OsString::from(".");
    stem.push(target.file_name()?);
    stem.push(".partial-");
    Some(stem)
}

/// Removes what killed processes left in `dir` under a name that begins with `stem`, where the system has `/proc`.
fn remove_stale(dir: &Path, stem: &OsString) {
    if !Path::new("/proc/self").exists() {
        return;
    }
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(rest) = name.as_encoded_bytes().strip_prefix(stem.as_encoded_bytes()) else { continue };
        let digits = rest.split(|byte| !byte.is_ascii_digit()).next().unwrap_or_default();
        let Some(pid) = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u32>().ok()) else {
            continue;
        };
        // A process of a container often has the number that the one before it had.
        let ours = || unfinished().iter().any(|path| path.file_name() == Some(&name));
        let alive = if pid == std::process::id() { ours() } else { Path::new(&format!("/proc/{pid}")).exists() };
        if !alive {
            remove(&entry.path());
        }
    }
}
