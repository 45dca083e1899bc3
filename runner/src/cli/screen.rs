//! Output while a run goes on: remarks, progress bars, and the table of epochs.

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use indicatif::ProgressBar;
use morphgl_profile::Progress;

use super::interrupt;
use super::show::Show;
use morphgl_model_core::Task;

use crate::{BatchDone, Beginning, EpochRow, Event, Observer, Stop};

/// Shows a run on the terminal.
#[derive(Debug)]
pub(super) struct Terminal {
    show: Show,
    /// Whether the process is this one command, which signals stop.
    is_program: bool,
    /// Who watches training beside it.
    beside: Option<Arc<dyn Observer>>,
    /// Of the measurements under way.
    bar: Mutex<Option<ProgressBar>>,
    /// Of the training under way.
    screen: Mutex<Option<Screen>>,
}

impl Terminal {
    pub(super) fn new(show: Show, is_program: bool, beside: Option<Arc<dyn Observer>>) -> Self {
        Self { show, is_program, beside, bar: Mutex::default(), screen: Mutex::default() }
    }

    fn screen(&self) -> MutexGuard<'_, Option<Screen>> {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bar(&self) -> MutexGuard<'_, Option<ProgressBar>> {
        self.bar.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Terminal {
    fn remark(&self, text: &dyn Display) {
        match (&*self.screen(), &*self.bar()) {
            (Some(Screen { bar, .. }), _) | (None, Some(bar)) => bar.suspend(|| self.show.say(text)),
            (None, None) => self.show.say(text),
        }
    }

    fn line(&self, text: &dyn Display) {
        match &*self.screen() {
            Some(screen) => screen.bar.suspend(|| self.show.line(text)),
            None => self.show.line(text),
        }
    }

    fn measures(&self, progress: Option<&Progress>) {
        let mut bar = self.bar();
        match progress {
            None => bar.take().iter().for_each(ProgressBar::finish_and_clear),
            Some(progress) => {
                let bar = bar.get_or_insert_with(|| self.show.bar("profiling {bar:30} {pos}/{len}  {msg}", 0));
                bar.set_length(progress.total as u64);
                bar.set_position(progress.done as u64);
                bar.set_message(progress.what.clone());
            }
        }
    }

    fn begins(&self, beginning: Beginning) {
        *self.screen() = Some(Screen::new(self.show, beginning));
        self.beside.iter().for_each(|observer| observer.begins(beginning));
    }

    fn observe(&self, event: &Event<'_>) {
        self.screen().iter_mut().for_each(|screen| screen.show(event));
        self.beside.iter().for_each(|observer| observer.observe(event));
    }

    fn ends(&self) {
        self.screen().take().iter().for_each(|screen| screen.bar.finish_and_clear());
        self.beside.iter().for_each(|observer| observer.ends());
    }

    fn heeds(&self, stop: &Stop) {
        if self.is_program {
            interrupt::heed(stop);
        }
    }

    fn of_every_rank(&self) -> Option<&dyn Observer> {
        self.beside.as_deref()
    }
}

/// The progress bar and the table of epochs.
#[derive(Debug)]
struct Screen {
    show: Show,
    bar: ProgressBar,
    max_epochs: u32,
    /// Whether early stopping may end the run sooner.
    open: bool,
    /// Width in characters of the column with the validation score; `None` where the run goes by accuracy or loss.
    score: Option<usize>,
    /// Whether what is learned is right or wrong, not a value.
    accuracy: bool,
    /// Moving average of the loss.
    loss: f64,
}

const BAR: &str = "{msg:24} {bar:30} {pos}/{len} batches  {per_sec}  ETA {eta}";
/// With early stopping the end is unknown: a count and its bound, without a bar and an ETA.
const OPEN_BAR: &str = "{spinner} {msg:40} {pos} of at most {len} batches  {per_sec}";

impl Screen {
    /// Where early stopping may end training sooner, the table has only evaluated epochs.
    fn new(show: Show, beginning: Beginning) -> Self {
        let Beginning { steps_per_epoch, epochs: max_epochs, open, score, task, done } = beginning;
        let score = (!score.is_of_sums()).then(|| format!("{score:>7}"));
        let column = score.as_ref().map_or(String::new(), |score| format!("{score}  "));
        show.line(format_args!("epoch     loss  train     valid     {column}seconds  batches/s   M edges/s  waiting"));
        let bar = show.bar(if open { OPEN_BAR } else { BAR }, steps_per_epoch as u64 * u64::from(max_epochs));
        bar.set_position(done);
        let (score, accuracy) = (score.map(|score| score.len()), task != Task::Regress);
        Self { show, bar, max_epochs, open, score, accuracy, loss: f64::NAN }
    }

    fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Begins(_)
            | Event::Ended(_)
            | Event::Followed(..)
            | Event::Switched(..)
            | Event::Added(..)
            | Event::Exported(..) => {}
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
        let value = row.valid_score.map_or("–".into(), |value| format!("{value:.4}"));
        let score = self.score.map_or(String::new(), |width| format!("{value:>width$}  "));
        let accuracy = |accuracy: Option<f64>| match accuracy.filter(|_| self.accuracy) {
            Some(accuracy) => format!("{:.2}%", 100.0 * accuracy),
            None => "–".to_string(),
        };
        let line = format!(
            "{:>5}  {:>7.4}  {:>7}  {:>8}  {score}{:>7.2}  {:>9.2}  {:>10.2}  {:>6.0}%",
            row.epoch,
            row.loss,
            accuracy(Some(row.train_accuracy)),
            accuracy(row.valid_accuracy),
            row.seconds,
            report.batches as f64 / row.seconds,
            report.edges as f64 / row.seconds / 1e6,
            100.0 * report.trainer_waited / row.seconds,
        );
        self.bar.suspend(|| self.show.line(line));
    }
}
