//! When a run keeps checkpoints.

use std::cell::RefCell;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use morphgl_execute::TrainingState;
use serde::Serialize;
use serde_json::Value;

use super::RunDir;
use crate::{Checkpointer, Observer, Position, Progress, words};

/// Time after which a checkpoint is due within an epoch, unless `--checkpoint-every` is given.
const WITHIN: Duration = Duration::from_secs(600);

/// Checkpoints take at most one part in so many of the time.
const SPARSE: u32 = 100;

/// Whether one more checkpoint keeps all of them within their part of the time: `elapsed` since the beginning and `since` the last
/// one, where those so far took `spent`, and the last one `took`.
fn is_affordable(elapsed: Duration, since: Duration, spent: Duration, took: Duration) -> bool {
    since >= SPARSE * took && elapsed >= SPARSE * (spent + took)
}

/// The interval between checkpoints within an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Every {
    /// A time.
    Time(Duration),
    /// A number of mini-batches.
    Batches(u32),
}

impl FromStr for Every {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || format!("{text:?}: neither a time nor a number of mini-batches; give for example 600s or 500b");
        let number = |unit: char| text.strip_suffix(unit).map(str::trim);
        if let Some(batches) = number('b') {
            return batches.parse().ok().filter(|&n| n > 0).map(Self::Batches).ok_or_else(wrong);
        }
        let (seconds, unit) = [('s', 1.0), ('m', 60.0), ('h', 3600.0)]
            .into_iter()
            .find_map(|(name, unit)| Some((number(name)?, unit)))
            .ok_or_else(wrong)?;
        let seconds = seconds.parse::<f64>().ok().map(|n| n * unit).filter(|s| *s >= 0.0 && *s <= 1e9);
        seconds.map(|s| Self::Time(Duration::from_secs_f64(s))).ok_or_else(wrong)
    }
}

/// Checkpoints that were written, and their time, from the moment each was due; of one that was not waited for, from its writing.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Cost {
    kept: u32,
    seconds: f64,
}

/// What the checkpoints of a training cost.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Costs {
    /// Of those that were due during training.
    due: Cost,
    /// Of those at its beginning and its end.
    ends: Cost,
}

/// Keeps the checkpoints of a run, in its directory if it has one.
pub(crate) struct Checkpoints<'a> {
    dir: Option<&'a RefCell<RunDir>>,
    /// The run besides its progress.
    run: Value,
    every: Option<Every>,
    observer: Arc<dyn Observer>,
    begin: Instant,
    /// End of the last checkpoint.
    last: Instant,
    /// Duration of the last checkpoint, the copy of the parameters included.
    took: Duration,
    /// Duration of all of them.
    spent: Duration,
    /// Mini-batches trained since the last one.
    batches: u32,
    /// Since when a checkpoint is due.
    due: Option<Instant>,
    warned: bool,
    costs: Costs,
}

impl<'a> Checkpoints<'a> {
    pub(crate) fn new(
        dir: Option<&'a RefCell<RunDir>>,
        run: Value,
        every: Option<Every>,
        observer: &Arc<dyn Observer>,
    ) -> Self {
        let (now, none) = (Instant::now(), Duration::ZERO);
        Self {
            dir,
            run,
            every,
            observer: Arc::clone(observer),
            begin: now,
            last: now,
            took: none,
            spent: none,
            batches: 0,
            due: None,
            warned: false,
            costs: Costs::default(),
        }
    }

    pub(crate) fn costs(&self) -> Costs {
        self.costs
    }
}

impl Checkpointer for Checkpoints<'_> {
    fn is_due(&mut self, within: bool) -> bool {
        if self.dir.is_none() || self.due.is_some() {
            return false;
        }
        self.batches += u32::from(within);
        let since = self.last.elapsed();
        let is_sparse = is_affordable(self.begin.elapsed(), since, self.spent, self.took);
        let is_due = match self.every.filter(|_| within) {
            None => is_sparse && (!within || since >= WITHIN),
            Some(Every::Time(time)) => since >= time,
            Some(Every::Batches(batches)) => self.batches >= batches,
        };
        self.due = is_due.then(Instant::now);
        is_due
    }

    fn keep(&mut self, progress: &Progress, position: &Position, training: &TrainingState) {
        let Some(dir) = self.dir else { return };
        let due = self.due.take();
        let start = due.unwrap_or_else(Instant::now);
        let kept = dir.borrow_mut().keep(progress, position, training, &mut self.run);
        let written = u32::from(kept.is_ok());
        if let Err(e) = kept
            && !std::mem::replace(&mut self.warned, true)
        {
            let text = format!("{}; the run goes on without this checkpoint", words::one_line(&e));
            self.observer.remark(&text);
        }
        (self.last, self.batches) = (Instant::now(), 0);
        self.took = start.elapsed();
        self.spent += self.took;
        let cost = if due.is_some() { &mut self.costs.due } else { &mut self.costs.ends };
        (cost.kept, cost.seconds) = (cost.kept + written, cost.seconds + self.took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests;
