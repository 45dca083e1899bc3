//! Opening files, and the faults that several readers find in them.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use morphgl_graph_store::{Error, Position, Result};
use morphgl_platform::{excerpt, open_regular};

/// Cure for bytes that no writer of the format leaves.
pub(crate) const DAMAGED: &str = "the file is damaged or cut short: download it again";
/// Cure for content that contradicts itself.
pub(crate) const DOWNLOAD: &str = "download the file again";

/// Cure for what is held whole and does not fit.
pub(crate) const RAISE_MEMORY: &str = "raise the memory limit (--memory)";

/// A fault and its cure, from code that does not know the file.
pub(crate) type Fault = (String, &'static str);

/// Fails with a fault of a file as a whole.
pub(crate) fn invalid<T>(path: impl AsRef<Path>, what: impl Into<String>, cure: impl Into<String>) -> Result<T> {
    Err(Error::invalid(path, Position::File, what, cure))
}

/// Opens a regular file; refuses a directory with `cure`.
pub(crate) fn open_file(path: &Path, cure: &str) -> Result<File> {
    open_regular(path).or_else(|e| match e.kind() {
        io::ErrorKind::IsADirectory => invalid(path, "this is a directory", cure),
        _ => Err(Error::io(path, e)),
    })
}

/// The first bytes of a file, at most eight: enough to distinguish formats.
pub(crate) fn magic(path: &Path) -> Result<Vec<u8>> {
    let mut head = Vec::new();
    let file = open_file(path, "name the file itself")?;
    file.take(8).read_to_end(&mut head).map_err(|e| Error::io(path, e))?;
    Ok(head)
}

/// A file's name without its directory, for notes.
pub(crate) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The name of a dataset by its source: a directory's whole name, a file's without the ending of its format, and before it that of
/// its compression.
pub(crate) fn stem(path: &Path) -> Option<String> {
    if path.is_dir() {
        return Some(path.file_name()?.to_string_lossy().into_owned());
    }
    let is_compressed =
        path.extension().is_some_and(|ending| ["gz", "bz2", "xz", "zst"].iter().any(|known| ending == *known));
    let inner = if is_compressed { Path::new(path.file_stem()?) } else { path };
    Some(inner.file_stem()?.to_string_lossy().into_owned())
}

/// The beginning of a text of a file in quotation marks, for messages.
pub(crate) fn quoted(text: &str) -> String {
    format!("{:?}", excerpt(text, 80))
}

/// Whether an error is about the content of a file, and not the system's refusal.
pub(crate) fn is_damage(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, Other, UnexpectedEof};
    matches!(error.kind(), InvalidData | InvalidInput | Other | UnexpectedEof)
}
