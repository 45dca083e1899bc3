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
        let said = matches!((&self.kind, self.batch), (ErrorKind::Failed(e), Some(id)) if e.context == id.to_string());
        if let Some(batch) = self.batch.filter(|_| !said) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mini_batch_is_named_once_whoever_names_it() {
        let key: Key = "Batching_CPU_Fake".parse().expect("a key");
        let id = BatchId { epoch: 2, index: 7 };
        let text = |context: &str| {
            let source = morphgl_registry::Error::failed(context, "the disk is gone");
            Error::failed(Some(&key), Some(id), source).to_string()
        };
        assert_eq!(text("mini-batch 7 of epoch 2"), "Batching_CPU_Fake: mini-batch 7 of epoch 2: the disk is gone");
        assert_eq!(text("disk"), "Batching_CPU_Fake: mini-batch 7 of epoch 2: disk: the disk is gone");
    }
}
