//! Errors of a run.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use morphgl_plan::Time;
use morphgl_registry::{BatchId, Key, MiniBatch, panic_message};

/// Result of every fallible function of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure, with the operator that failed and the mini-batch at which it did.
#[derive(Debug)]
pub struct Error {
    /// The operator; `None` for the caller's own function, and for a schedule as a whole.
    pub operator: Option<Box<Key>>,
    /// The mini-batch; `None` for a failure outside of any.
    pub batch: Option<BatchId>,
    /// What went wrong.
    pub kind: ErrorKind,
}

/// The kinds of failure.
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operator returned an error.
    Failed(morphgl_registry::Error),
    /// The operator panicked, with this message.
    Panicked(String),
    /// The operator has not answered within the time limit; its thread is abandoned, and the process should end.
    Hangs(Duration),
    /// A setting or schedule that cannot be run; the text says the cure.
    Setting(String),
    /// The operator's thread cannot be started.
    Thread(std::io::Error),
}

impl Error {
    pub(crate) fn new(operator: Option<&Key>, batch: Option<BatchId>, kind: ErrorKind) -> Self {
        Self { operator: operator.cloned().map(Box::new), batch, kind }
    }

    pub(crate) fn setting(operator: Option<&Key>, text: impl Into<String>) -> Self {
        Self::new(operator, None, ErrorKind::Setting(text.into()))
    }

    pub(crate) fn is_panic(&self) -> bool {
        matches!(self.kind, ErrorKind::Panicked(_))
    }
}

/// Calls an operator; a panic becomes an error.
pub(crate) fn guarded<T>(
    operator: Option<&Key>,
    batch: Option<BatchId>,
    call: impl FnOnce() -> morphgl_registry::Result<T>,
) -> Result<T> {
    let outcome = catch_unwind(AssertUnwindSafe(call));
    let outcome = outcome.map_err(|payload| ErrorKind::Panicked(panic_message(payload.as_ref())));
    outcome.and_then(|value| value.map_err(ErrorKind::Failed)).map_err(|kind| Error::new(operator, batch, kind))
}

/// Returns `batch` if it is the requested one; another one is a failure of the operator.
pub(crate) fn delivered(operator: &Key, id: BatchId, batch: MiniBatch) -> Result<MiniBatch> {
    if batch.id() == id {
        return Ok(batch);
    }
    let other = morphgl_registry::Error::failed(operator, format!("it delivered {} instead", batch.id()));
    Err(Error::new(Some(operator), Some(id), ErrorKind::Failed(other)))
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(key) = &self.operator {
            write!(f, "{key}: ")?;
        }
        let named = |id: BatchId| matches!(&self.kind, ErrorKind::Failed(e) if e.context == id.to_string());
        if let Some(batch) = self.batch.filter(|&id| !named(id)) {
            write!(f, "{batch}: ")?;
        }
        match &self.kind {
            ErrorKind::Failed(source) => source.fmt(f),
            ErrorKind::Panicked(message) => write!(f, "panicked: {message}; this is a fault of the operator"),
            ErrorKind::Hangs(limit) => {
                let limit = Time(limit.as_secs_f64());
                write!(f, "has not answered for {limit}; this is a fault of the operator, or of its device; ")?;
                f.write_str("raise the time limit if it only is that slow")
            }
            ErrorKind::Setting(text) => f.write_str(text),
            ErrorKind::Thread(source) => write!(f, "cannot start its thread: {source}; use fewer workers"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            ErrorKind::Failed(source) => Some(source),
            ErrorKind::Thread(source) => Some(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
