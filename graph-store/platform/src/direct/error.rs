//! Errors of direct reads.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Result of opening and reading.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure tied to one file.
#[derive(Debug)]
pub struct Error {
    /// The file.
    pub path: PathBuf,
    /// What happened.
    pub kind: ErrorKind,
}

/// The kinds of failure.
#[derive(Debug)]
pub enum ErrorKind {
    /// The file cannot be opened.
    Open(io::Error),
    /// A read failed.
    Read {
        /// First byte of the read.
        at: u64,
        /// The system's error.
        error: io::Error,
    },
    /// The file is shorter than the requested elements.
    Short {
        /// Length of the file.
        at: u64,
        /// Byte after the last requested element.
        end: u64,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.kind {
            ErrorKind::Open(error) => write!(f, "{path}: cannot be opened ({error})"),
            ErrorKind::Read { at, error } => write!(f, "{path}, byte {at}: cannot be read ({error})"),
            ErrorKind::Short { at, end } => {
                write!(f, "{path}, byte {at}: the file ends here, and is read up to byte {end}")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            ErrorKind::Open(error) | ErrorKind::Read { error, .. } => Some(error),
            ErrorKind::Short { .. } => None,
        }
    }
}
