//! What came of comparing training operators: who trains at a place, and by which times.

use std::fmt;

use morphgl_plan::Time;
use morphgl_registry::{Key, Place};
use serde::{Deserialize, Serialize};

use crate::Statistics;

/// Which of the training operators at a place trains, and what was measured of each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Selection {
    /// The place.
    pub place: Place,
    /// The fastest of those that can train the model.
    pub chosen: Key,
    /// Threads that each phase on the host's cores had.
    pub threads: usize,
    /// All operators at the place, those that cannot train the model last.
    pub candidates: Vec<CandidateProfile>,
    /// Seconds that comparing them took: a part of the time for profiling.
    pub seconds: f64,
}

/// What was measured of a training operator while it was compared with others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CandidateProfile {
    /// The operator.
    pub training: Key,
    /// What the comparison came to for it.
    pub outcome: Outcome,
    /// Why it cannot train the model, or could not go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Seconds of its first mini-batch, in which it allocates its memory: they count only where it is given up for them, or
    /// where there was no time for another one. `None` where nothing was measured.
    pub first: Option<f64>,
    /// Seconds of every later mini-batch: batching, with the features it needs, transferring and training, one after the
    /// other.
    pub seconds: Option<Statistics>,
    /// Of these, seconds of training.
    pub training_seconds: Option<Statistics>,
}

/// The outcome of a comparison for one training operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It trains.
    Chosen,
    /// It was timed to the end, and was not the fastest.
    Slower,
    /// It could not win any more, and was not timed further.
    GivenUp,
    /// It cannot train the model here.
    Unable,
}

impl CandidateProfile {
    /// An operator that cannot train the model, and why.
    pub fn unable(training: Key, reason: String) -> Self {
        let outcome = Outcome::Unable;
        Self { training, outcome, reason: Some(reason), first: None, seconds: None, training_seconds: None }
    }

    /// Seconds of a mini-batch: the median, or the first one's where there was only that.
    pub fn typical(&self) -> Option<f64> {
        self.seconds.as_ref().map(|s| s.median).or(self.first)
    }

    /// The least and the most seconds of a mini-batch, of those that count.
    pub fn range(&self) -> Option<(f64, f64)> {
        let Some(seconds) = &self.seconds else { return self.first.map(|first| (first, first)) };
        let fold = |f: fn(f64, f64) -> f64, start| seconds.samples.iter().copied().fold(start, f);
        Some((fold(f64::min, f64::INFINITY), fold(f64::max, 0.0)))
    }

    /// What became of it.
    pub fn in_words(&self) -> String {
        let steps = match self.steps() {
            1 => "1 step".to_string(),
            n => format!("{n} steps"),
        };
        match (self.outcome, &self.reason) {
            (Outcome::Unable, reason) => format!("cannot: {}", reason.as_deref().unwrap_or("no reason is known")),
            (Outcome::GivenUp, _) => format!("given up after {steps}"),
            _ if self.steps() == 0 => "the only one that can".to_string(),
            _ => steps,
        }
    }

    /// Mini-batches that it trained.
    pub fn steps(&self) -> usize {
        usize::from(self.first.is_some()) + self.seconds.as_ref().map_or(0, |s| s.samples.len())
    }
}

impl Selection {
    /// The choice of an operator that was compared with nobody.
    pub fn only(place: Place, training: Key, threads: usize) -> Self {
        let chosen = training.clone();
        let outcome = Outcome::Chosen;
        let only =
            CandidateProfile { training, outcome, reason: None, first: None, seconds: None, training_seconds: None };
        Self { place, chosen, threads, candidates: vec![only], seconds: 0.0 }
    }

    /// What was measured of the chosen operator.
    pub fn of_chosen(&self) -> Option<&CandidateProfile> {
        self.candidates.iter().find(|c| c.training == self.chosen)
    }
}

impl fmt::Display for CandidateProfile {
    /// The operator, its time and its outcome, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.training)?;
        if let Some(seconds) = self.typical() {
            write!(f, " {} a mini-batch", Time(seconds))?;
        }
        write!(f, " ({})", self.in_words())
    }
}

impl fmt::Display for Selection {
    /// All operators on one line, the chosen one first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (chosen, others): (Vec<_>, Vec<_>) = self.candidates.iter().partition(|c| c.outcome == Outcome::Chosen);
        let all: Vec<String> = chosen.into_iter().chain(others).map(ToString::to_string).collect();
        write!(f, "trained at {} by {}", self.place, all.join("; "))
    }
}
