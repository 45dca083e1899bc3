//! The error of a file that cannot be written.

use std::io;
use std::path::Path;

use morphgl_platform::limit_cure;

/// Names the file and the cure: that of the limit that was reached, or else `otherwise`.
pub(crate) fn unwritten(path: &Path, error: io::Error, otherwise: &str) -> anyhow::Error {
    let cure = limit_cure(&error).unwrap_or(otherwise);
    anyhow::Error::new(error).context(format!("{}: cannot be written; {cure}", path.display()))
}
