#![doc = include_str!("../README.md")]

use std::path::{Path, PathBuf};

/// Names a directory of larger data, in the layout of `testdata/`.
pub const VARIABLE: &str = "MORPHGL_TEST_DATA";

/// The file or folder `name` of `testdata/`.
///
/// # Panics
///
/// Panics where it is absent: a test without its data fails.
#[track_caller]
pub fn path(name: &str) -> PathBuf {
    below(Path::new(env!("CARGO_MANIFEST_DIR")), name)
}

/// The file or folder `name` of the larger data; `None` where `MORPHGL_TEST_DATA` is not set.
///
/// # Panics
///
/// Panics where the variable is set and names a directory without it.
#[track_caller]
pub fn extra(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os(VARIABLE).filter(|root| !root.is_empty())?;
    Some(below(Path::new(&root), name))
}

#[track_caller]
fn below(root: &Path, name: &str) -> PathBuf {
    let path = root.join(name);
    assert!(path.exists(), "{} is absent", path.display());
    path
}
