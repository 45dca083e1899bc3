//! Output during training: the progress bar and the table of epochs.

use indicatif::ProgressBar;
use morphgl_plan::Replanned;

use super::show::Show;
use crate::{BatchDone, EpochRow, Event};

/// The progress bar and the table of epochs.
pub(super) struct Screen {
    show: Show,
    pub(super) bar: ProgressBar,
    /// Epochs at most.
    most: u32,
    /// Whether early stopping decides how many epochs there are.
    open: bool,
    loss: f64,
}

const BAR: &str = "{msg:24} {bar:30} {pos}/{len} batches  {per_sec}  ETA {eta}";
/// With early stopping the end is not known: a count and its bound, without a bar and an ETA.
const OPEN_BAR: &str = "{spinner} {msg:40} {pos} of at most {len} batches  {per_sec}";

impl Screen {
    /// For `most` epochs; with `open` for that many at most, and the table has rows of evaluated epochs only.
    pub(super) fn new(show: Show, num_batches: usize, most: u32, open: bool) -> Self {
        show.line("epoch     loss  train     valid     seconds  batches/s   M edges/s  waiting");
        let bar = show.bar(if open { OPEN_BAR } else { BAR }, num_batches as u64 * u64::from(most));
        Self { show, bar, most, open, loss: f64::NAN }
    }

    pub(super) fn see(&mut self, event: &Event<'_>) {
        match event {
            Event::Begins(_) | Event::Ended(_) => {}
            Event::Trained(batch) => self.batch(batch),
            Event::Replanned(new) => self.replanned(new),
            Event::Evaluating => self.bar.set_message("evaluating"),
            Event::Epoch(row) => self.epoch(row),
        }
    }

    fn batch(&mut self, batch: &BatchDone) {
        let loss = batch.score.loss();
        // A moving average: single mini-batches jump too much to be read.
        self.loss = if self.loss.is_nan() { loss } else { 0.9 * self.loss + 0.1 * loss };
        if self.bar.is_hidden() {
            return;
        }
        let of = if self.open { " of at most " } else { "/" };
        self.bar.set_message(format!("epoch {}{of}{} loss {:.4}", batch.id.epoch + 1, self.most, self.loss));
        self.bar.inc(1);
    }

    fn replanned(&mut self, new: &Replanned) {
        self.bar.suspend(|| self.show.say(crate::recorder::in_words(new)));
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
