//! Errors of datasets: the file, the fault and its cure.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use morphgl_platform::{excerpt, limit_cure};

/// Maximum characters of a fault in a message.
const MAX_WHAT: usize = 500;

/// Result of every fallible function of the store and of the readers built on it.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure of one file, as one line of text: file, position, fault, cure.
#[derive(Debug)]
pub struct Error {
    /// The file or directory at fault.
    pub path: PathBuf,
    /// What happened.
    pub kind: ErrorKind,
}

/// Position of a fault in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// The file as a whole.
    File,
    /// A line of a text file, counted from 1.
    Line(u64),
    /// A byte offset, counted from 0.
    Byte(u64),
    /// An element of an array, counted from 0.
    Element(u64),
}

/// The kinds of failure.
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system refused: missing file, no permission, disk full.
    Io(io::Error),
    /// The content is corrupt or impossible.
    Invalid {
        /// Position of the fault.
        at: Position,
        /// The fault.
        what: String,
        /// What the user can do about it.
        cure: String,
    },
    /// The dataset was written by a newer version of the format.
    Newer {
        /// The version found in the file.
        found: u32,
        /// The newest version this build reads.
        supported: u32,
    },
}

impl Error {
    /// Wraps an operating system error.
    pub fn io(path: impl AsRef<Path>, error: io::Error) -> Self {
        Self { path: path.as_ref().to_path_buf(), kind: ErrorKind::Io(error) }
    }

    /// The same error of a file below `to`, which is below `from` now.
    pub(crate) fn at(self, from: &Path, to: &Path) -> Self {
        match self.path.strip_prefix(from) {
            Ok(file) => Self { path: to.join(file), ..self },
            Err(_) => self,
        }
    }

    /// Reports invalid content, with its cure; what quotes a file at length is cut.
    pub fn invalid(path: impl AsRef<Path>, at: Position, what: impl Into<String>, cure: impl Into<String>) -> Self {
        let what = excerpt(&what.into(), MAX_WHAT).into_owned();
        let kind = ErrorKind::Invalid { at, what, cure: cure.into() };
        Self { path: path.as_ref().to_path_buf(), kind }
    }
}

/// The error of an edge in the mapped `file` whose source `node` does not exist: the file was changed after it was checked.
pub fn unknown_neighbor(file: &Path, node: u32, num_nodes: usize) -> Error {
    let what = format!("an edge comes from node {node}, but there are {num_nodes} nodes");
    Error::invalid(file, Position::File, what, "the mapped file was changed: import it again")
}

/// The error of functions that make datasets: an impossible argument, or an error of the store; on one line, with its cure.
#[derive(Debug)]
#[non_exhaustive]
pub enum MakeError {
    /// An argument is impossible, or does not fit another one.
    Argument {
        /// Name of the argument.
        name: &'static str,
        /// The fault.
        what: String,
        /// The cure.
        cure: String,
    },
    /// A dataset or an array could not be read or written.
    Store(Error),
}

impl MakeError {
    /// Reports an impossible argument, with its cure.
    pub fn argument(name: &'static str, what: impl Into<String>, cure: impl Into<String>) -> Self {
        Self::Argument { name, what: what.into(), cure: cure.into() }
    }
}

impl fmt::Display for MakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument { name, what, cure } => write!(f, "{name}: {what}; {cure}"),
            Self::Store(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for MakeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let Self::Store(e) = self { e.source() } else { None }
    }
}

impl From<Error> for MakeError {
    fn from(e: Error) -> Self {
        Self::Store(e)
    }
}

#[cfg(all(unix, feature = "direct"))]
impl From<morphgl_platform::direct::Error> for Error {
    /// The error of a dataset's file that is read past the page cache, with its cure.
    fn from(error: morphgl_platform::direct::Error) -> Self {
        use morphgl_platform::direct::ErrorKind::{Open, Read, Short};
        let morphgl_platform::direct::Error { path, kind } = error;
        let (at, what, cure) = match kind {
            Open(error) => return Self::io(path, error),
            Read { at, error } => {
                (at, format!("cannot be read ({error})"), "check the disk, or copy the dataset to another one")
            }
            Short { at, end } => {
                let what = format!("the file ends here, and is read up to byte {end}");
                (at, what, "the file was cut short: copy or create the dataset again")
            }
        };
        Self::invalid(path, Position::Byte(at), what, cure)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Position::File => Ok(()),
            Position::Line(n) => write!(f, ", line {n}"),
            Position::Byte(n) => write!(f, ", byte {n}"),
            Position::Element(n) => write!(f, ", element {n}"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.kind {
            ErrorKind::Io(e) => {
                // libc's text ends in "(os error N)", which does not help users.
                let text = e.to_string();
                let text = text.split(" (os error").next().unwrap_or(&text);
                let text = lower_first(text);
                // What is no regular file was refused with its cure.
                let has_cure = e.kind() == io::ErrorKind::NotSeekable;
                if has_cure { write!(f, "{path}: {text}") } else { write!(f, "{path}: {text}; {}", io_cure(e)) }
            }
            ErrorKind::Invalid { at, what, cure } => write!(f, "{path}{at}: {what}; {cure}"),
            ErrorKind::Newer { found, supported } => write!(
                f,
                "{path}: dataset version {found} is newer than {supported}, the newest this build reads; \
                 update morphgl or import the dataset again"
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            ErrorKind::Io(e) => Some(e),
            _ => None,
        }
    }
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().into_iter().flat_map(char::to_lowercase).collect::<String>() + chars.as_str()
}

fn io_cure(error: &io::Error) -> &'static str {
    if let Some(cure) = limit_cure(error) {
        return cure;
    }
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => "check the path",
        io::ErrorKind::PermissionDenied => "check the permissions",
        io::ErrorKind::ReadOnlyFilesystem => "write to another disk",
        io::ErrorKind::UnexpectedEof => "the file is cut short: copy or create it again",
        io::ErrorKind::AlreadyExists => "choose another output or remove it first",
        _ => "check the disk and try again",
    }
}
