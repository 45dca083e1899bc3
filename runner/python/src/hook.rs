//! A function of Python's that is called after each epoch of training.

use std::sync::{Arc, Mutex, PoisonError};

use morphgl::{Beginning, EpochRow, Event, Observer, Stop};
use morphgl_model_core::ScoreKind;
use pyo3::prelude::*;

/// Calls `function(epoch, score, highest_is_best)` with the row of each epoch that was trained to its end, as JSON, and the score by which
/// the best model is chosen. Training ends after the epoch if it returns true, and at once if it raises.
#[derive(Debug)]
pub(crate) struct EpochHook {
    function: Py<PyAny>,
    stop: Stop,
    score: Mutex<ScoreKind>,
    raised: Arc<Mutex<Option<PyErr>>>,
}

impl EpochHook {
    /// The hook that ends training by `stop`; what the function raises is left in `raised`.
    pub(crate) fn new(function: Py<PyAny>, stop: Stop, raised: Arc<Mutex<Option<PyErr>>>) -> Self {
        Self { function, stop, score: Mutex::default(), raised }
    }

    fn called(&self, row: &EpochRow) -> PyResult<bool> {
        let kind = *self.score.lock().unwrap_or_else(PoisonError::into_inner);
        let score = match kind {
            ScoreKind::Loss => row.valid_loss,
            ScoreKind::Accuracy => row.valid_accuracy,
            _ => row.valid_score,
        };
        let document = serde_json::to_string(row).expect("a row is valid JSON");
        Python::attach(|py| {
            let arguments = (document, score, kind.highest_is_best());
            self.function.bind(py).call1(arguments)?.extract()
        })
    }
}

impl Observer for EpochHook {
    fn begins(&self, beginning: Beginning) {
        *self.score.lock().unwrap_or_else(PoisonError::into_inner) = beginning.score;
    }

    fn observe(&self, event: &Event<'_>) {
        let Event::Epoch(row) = event else { return };
        if row.report.stopped {
            return;
        }
        match self.called(row) {
            Ok(true) => self.stop.request_after_epoch(),
            Ok(false) => {}
            Err(error) => {
                *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                self.stop.request();
            }
        }
    }
}
