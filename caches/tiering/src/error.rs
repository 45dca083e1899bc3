//! Errors: an impossible argument, or an error of the store.

use std::fmt;

/// Result of every fallible function of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure on one line of text, with its cure.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
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
    Store(morphgl_graph_store::Error),
}

impl Error {
    pub(crate) fn argument(name: &'static str, what: impl Into<String>, cure: impl Into<String>) -> Self {
        Self::Argument { name, what: what.into(), cure: cure.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument { name, what, cure } => write!(f, "{name}: {what}; {cure}"),
            Self::Store(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let Self::Store(e) = self { e.source() } else { None }
    }
}

impl From<morphgl_graph_store::Error> for Error {
    fn from(e: morphgl_graph_store::Error) -> Self {
        Self::Store(e)
    }
}
