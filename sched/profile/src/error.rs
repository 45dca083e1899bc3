//! What profiling can fail with.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use morphgl_registry::Key;

/// Result of every fallible function of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure, with what was being done.
#[derive(Debug)]
pub struct Error {
    /// What was being measured (an operator's key), or the file.
    pub context: String,
    /// What went wrong.
    pub kind: ErrorKind,
}

/// The kinds of failure.
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An operator failed while it was measured.
    Operator(morphgl_registry::Error),
    /// An operator panicked while it was measured; what it said.
    Panicked(String),
    /// A thread could not be started; what the system said.
    Thread(String),
    /// There is nothing to measure.
    Nothing(String),
    /// The operators do not fit together.
    Operators(String),
    /// It was asked to stop.
    Stopped,
    /// The profile's file cannot be read or written.
    Io(std::io::Error),
    /// The file is no profile of this version.
    Format(String),
}

impl Error {
    /// Calls an operator; a panic is an error.
    pub(crate) fn catch<T>(key: &Key, call: impl FnOnce() -> morphgl_registry::Result<T>) -> Result<T> {
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(source)) => Err(Self { context: key.to_string(), kind: ErrorKind::Operator(source) }),
            Err(payload) => {
                let message = payload.downcast_ref::<&str>().map(ToString::to_string);
                let message = message.or_else(|| payload.downcast_ref::<String>().cloned());
                let message = message.unwrap_or_else(|| "it did not say why".to_string());
                Err(Self { context: key.to_string(), kind: ErrorKind::Panicked(message) })
            }
        }
    }

    pub(crate) fn thread(key: &Key, source: &std::io::Error) -> Self {
        Self { context: key.to_string(), kind: ErrorKind::Thread(source.to_string()) }
    }

    pub(crate) fn nothing(key: &Key, what: &str) -> Self {
        Self { context: key.to_string(), kind: ErrorKind::Nothing(what.to_string()) }
    }

    pub(crate) fn operators(context: impl fmt::Display, what: String) -> Self {
        Self { context: context.to_string(), kind: ErrorKind::Operators(what) }
    }

    pub(crate) fn stopped() -> Self {
        Self { context: "profiling".to_string(), kind: ErrorKind::Stopped }
    }

    pub(crate) fn io(path: &Path, source: std::io::Error) -> Self {
        Self { context: path.display().to_string(), kind: ErrorKind::Io(source) }
    }

    pub(crate) fn format(path: &Path, what: String) -> Self {
        Self { context: path.display().to_string(), kind: ErrorKind::Format(what) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let context = &self.context;
        match &self.kind {
            ErrorKind::Operator(source) => write!(f, "{context} failed while it was profiled: {source}"),
            ErrorKind::Panicked(what) => write!(f, "{context} panicked while it was profiled: {what}"),
            ErrorKind::Thread(what) => write!(f, "{context}: a thread could not be started: {what}; use fewer threads"),
            ErrorKind::Nothing(what) | ErrorKind::Operators(what) => write!(f, "{context}: {what}"),
            ErrorKind::Stopped => write!(f, "{context} was stopped; nothing of it is kept"),
            ErrorKind::Io(source) => write!(f, "{context}: {source}; check the path of the profile"),
            ErrorKind::Format(what) => write!(f, "{context}: not a profile: {what}; profile again"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            ErrorKind::Operator(source) => Some(source),
            ErrorKind::Io(source) => Some(source),
            _ => None,
        }
    }
}
