//! What a run can fail with.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use morphgl_plan::Time;
use morphgl_registry::{BatchId, Key, MiniBatch};

/// Result of every fallible function of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure, with who failed at which mini-batch.
#[derive(Debug)]
pub struct Error {
    /// The operator; `None` when the caller's own function failed.
    pub operator: Option<Box<Key>>,
    /// The mini-batch; `None` when no mini-batch was at hand.
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
    /// The operator panicked; what it said.
    Panicked(String),
    /// The operator has not answered for so long; its thread is left to itself, and the process should end.
    Hangs(Duration),
    /// What was asked for cannot be run; the text says the cure.
    Setting(String),
    /// A worker's thread could not be started, or ended without a word.
    Thread(String),
}

impl Error {
    pub(crate) fn setting(operator: &Key, what: String) -> Self {
        Self { operator: Some(Box::new(operator.clone())), batch: None, kind: ErrorKind::Setting(what) }
    }

    pub(crate) fn failed(operator: Option<&Key>, batch: Option<BatchId>, source: morphgl_registry::Error) -> Self {
        Self { operator: operator.cloned().map(Box::new), batch, kind: ErrorKind::Failed(source) }
    }

    pub(crate) fn panicked(operator: Option<&Key>, batch: Option<BatchId>, payload: &(dyn Any + Send)) -> Self {
        let message = payload.downcast_ref::<&str>().map(ToString::to_string);
        let message = message.or_else(|| payload.downcast_ref::<String>().cloned());
        let message = message.unwrap_or_else(|| "it did not say why".to_string());
        Self { operator: operator.cloned().map(Box::new), batch, kind: ErrorKind::Panicked(message) }
    }
}

/// Runs an operator's call; a panic is an error.
pub(crate) fn guarded<T>(
    operator: Option<&Key>,
    batch: Option<BatchId>,
    call: impl FnOnce() -> morphgl_registry::Result<T>,
) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(e)) => Err(Error::failed(operator, batch, e)),
        Err(payload) => Err(Error::panicked(operator, batch, payload.as_ref())),
    }
}

/// Passes on the mini-batch that was asked for; another one is a failure of the operator.
pub(crate) fn delivered(operator: &Key, id: BatchId, batch: MiniBatch) -> Result<MiniBatch> {
    if batch.id() == id {
        return Ok(batch);
    }
    let other = morphgl_registry::Error::failed(operator, format!("it delivered {} instead", batch.id()));
    Err(Error::failed(Some(operator), Some(id), other))
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(key) = &self.operator {
            write!(f, "{key}: ")?;
        }
        if let Some(batch) = &self.batch {
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
            ErrorKind::Setting(what) | ErrorKind::Thread(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            ErrorKind::Failed(source) => Some(source),
            _ => None,
        }
    }
}
