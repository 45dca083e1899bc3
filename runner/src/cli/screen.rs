//! Output during training: the progress bar and the table of epochs.

use indicatif::ProgressBar;

use super::show::Show;
use crate::{BatchDone, EpochRow, Event};

/// The progress bar and the table of epochs.
pub(super) struct Screen {
    show: Show,
    pub(super) bar: ProgressBar,
    max_epochs: u32,
    /// Whether early stopping may end the run sooner.
    open: bool,
    /// Moving average of the loss.
    loss: f64,
}

const BAR: &str = "{msg:24} {bar:30} {pos}/{len} batches  {per_sec}  ETA {eta}";
/// With early stopping the end is unknown: a count and its bound, without a bar and an ETA.
const OPEN_BAR: &str = "{spinner} {msg:40} {pos} of at most {len} batches  {per_sec}";

impl Screen {
    /// For `max_epochs` epochs; with `open` early stopping may end sooner, and the table has only evaluated epochs.
    pub(super) fn new(show: Show, num_batches: usize, max_epochs: u32, open: bool) -> Self {
        show.line("epoch     loss  train     valid     seconds  batches/s   M edges/s  waiting");
        let bar = show.bar(if open { OPEN_BAR } else { BAR }, num_batches as u64 * u64::from(max_epochs));
        Self { show, bar, max_epochs, open, loss: f64::NAN }
    }

    pub(super) fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Begins(_) | Event::Ended(_) | Event::Followed(..) | Event::Added(..) | Event::Exported(..) => {}
            Event::Trained(batch) => self.batch(batch),
            Event::Replanned(new) => self.bar.suspend(|| self.show.say(new)),
            Event::Evaluating => self.bar.set_message("evaluating"),
            Event::Epoch(row) => self.epoch(row),
        }
    }

    fn batch(&mut self, batch: &BatchDone) {
        // A mini-batch without a label has no loss.
        if batch.score.count > 0 {
            let loss = batch.score.loss();
            self.loss = if self.loss.is_nan() { loss } else { 0.9 * self.loss + 0.1 * loss };
        }
        if self.bar.is_hidden() {
            return;
        }
        let of = if self.open { " of at most " } else { "/" };
        self.bar.set_message(format!("epoch {}{of}{} loss {:.4}", batch.id.epoch + 1, self.max_epochs, self.loss));
        self.bar.inc(1);
    }

    fn epoch(&mut self, row: &EpochRow) {
        let report = &row.report;
        if self.open && row.valid_accuracy.is_none() && !report.stopped {
            return;
        }
        let line = format!(
            "{:>5}  {:>7.4}  {:>6.2}%  {:>8}  {:>7.2}  {:>9.2}  {:>10.2}  {:>6.0}%",
            row.epoch,
            row.loss,
            100.0 * row.train_accuracy,
            row.valid_accuracy.map_or("–".into(), |a| format!("{:.2}%", 100.0 * a)),
            row.seconds,
            report.batches as f64 / row.seconds,
            report.edges as f64 / row.seconds / 1e6,
            100.0 * report.trainer_waited / row.seconds,
        );
        self.bar.suspend(|| self.show.line(line));
    }
}
