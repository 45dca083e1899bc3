//! Errors of profiling.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use morphgl_registry::{Key, panic_message};

/// Result of every fallible function of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure, with its context.
#[derive(Debug)]
pub struct Error {
    /// The key of the operator that was measured, or the path of the file.
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
    /// An operator panicked while it was measured, with this message.
    Panicked(String),
    /// There is nothing to measure, the operators do not fit together, or a thread cannot be started; the text says the cure.
    Operators(String),
    /// A stop was requested.
    Stopped,
    /// The profile's file cannot be read or written.
    Io(std::io::Error),
    /// The file is no profile of this version.
    Format(String),
}

impl Error {
    pub(crate) fn new(context: impl fmt::Display, kind: ErrorKind) -> Self {
        Self { context: context.to_string(), kind }
    }

    pub(crate) fn operators(context: impl fmt::Display, text: impl Into<String>) -> Self {
        Self::new(context, ErrorKind::Operators(text.into()))
    }

    /// Calls an operator; a panic becomes an error.
    pub(crate) fn catch<T>(key: &Key, call: impl FnOnce() -> morphgl_registry::Result<T>) -> Result<T> {
        let outcome = catch_unwind(AssertUnwindSafe(call));
        let outcome = outcome.map_err(|payload| ErrorKind::Panicked(panic_message(payload.as_ref())));
        outcome.and_then(|value| value.map_err(ErrorKind::Operator)).map_err(|kind| Self::new(key, kind))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let context = &self.context;
        match &self.kind {
            // What stops a step of profiling, such as a learning rate that is too high, is no fault of profiling.
            ErrorKind::Operator(source) => {
                write!(f, "{source}; {context} met this while it was profiled, and would while it trains")
            }
            ErrorKind::Panicked(text) => write!(f, "{context} panicked while it was profiled: {text}"),
            ErrorKind::Operators(text) => write!(f, "{context}: {text}"),
            ErrorKind::Stopped => write!(f, "{context} was stopped; nothing of it is kept"),
            ErrorKind::Io(source) => write!(f, "{context}: {source}; check the path of the profile"),
            ErrorKind::Format(text) => write!(f, "{context}: not a profile: {text}; profile again"),
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
