//! The outcome of comparing training operators: which one trains at a place, and the measured times.

use std::fmt;

use morphgl_plan::Time;
use morphgl_registry::{Key, Place};
use serde::{Deserialize, Serialize};

use crate::Statistics;
use crate::budget::count;
use crate::compare::NOISE;

/// The choice among the training operators at a place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Selection {
    /// The place.
    pub place: Place,
    /// The fastest of those that can train the model.
    pub chosen: Key,
    /// Threads of each phase on the host's cores.
    pub threads: usize,
    /// All operators at the place, those that cannot train the model last.
    pub candidates: Vec<CandidateProfile>,
    /// Seconds that the comparison took: a part of the time for profiling.
    pub seconds: f64,
}

/// Measurements of a training operator during the comparison with others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CandidateProfile {
    /// The operator.
    pub training: Key,
    /// Its outcome.
    pub outcome: Outcome,
    /// Why it cannot train the model, or could not continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Seconds of its first mini-batch, in which it allocates its memory: they count only where it is abandoned for them, or
    /// where there was no time for another one. `None` where nothing was measured.
    pub first: Option<f64>,
    /// Seconds of every later mini-batch: batching, with the features it needs, transferring and training, one after the
    /// other.
    pub seconds: Option<Statistics>,
    /// Seconds of training of every later mini-batch.
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
    /// It was not timed further, since it could not be the fastest any more.
    #[serde(rename = "given-up")]
    Abandoned,
    /// It cannot train the model here.
    Unable,
}

impl CandidateProfile {
    fn unmeasured(training: Key, outcome: Outcome, reason: Option<String>) -> Self {
        Self { training, outcome, reason, first: None, seconds: None, training_seconds: None }
    }

    /// An operator that cannot train the model, and why.
    pub fn unable(training: Key, reason: String) -> Self {
        Self::unmeasured(training, Outcome::Unable, Some(reason))
    }

    /// Seconds of a mini-batch: the median, or the first one's where there was only that.
    pub fn typical(&self) -> Option<f64> {
        self.seconds.as_ref().map(|s| s.median).or(self.first)
    }

    /// Minimum and maximum seconds of a mini-batch, of those that count.
    pub fn range(&self) -> Option<(f64, f64)> {
        let samples = self.seconds.as_ref().map_or(self.first.as_slice(), |s| &s.samples);
        let fold = |f: fn(f64, f64) -> f64, start| samples.iter().copied().fold(start, f);
        (!samples.is_empty()).then(|| (fold(f64::min, f64::INFINITY), fold(f64::max, 0.0)))
    }

    /// The outcome in words.
    pub fn in_words(&self) -> String {
        let steps = count(self.steps(), "step");
        match (self.outcome, &self.reason) {
            (Outcome::Unable, reason) => format!("cannot: {}", reason.as_deref().unwrap_or("no reason is known")),
            (Outcome::Abandoned, _) => format!("stopped after {steps}"),
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
    /// The choice of the only operator at a place.
    pub(crate) fn only(place: Place, training: Key, threads: usize) -> Self {
        let only = CandidateProfile::unmeasured(training.clone(), Outcome::Chosen, None);
        Self { place, chosen: training, threads, candidates: vec![only], seconds: 0.0 }
    }

    /// Operators that were as fast as the chosen one within the noise of measurement: another run may choose one of them.
    pub fn rivals(&self) -> impl Iterator<Item = &CandidateProfile> {
        let chosen = self.chosen_profile().and_then(CandidateProfile::typical);
        let is_close =
            move |c: &&CandidateProfile| c.typical().zip(chosen).is_some_and(|(own, chosen)| own <= NOISE * chosen);
        self.candidates.iter().filter(|c| c.outcome == Outcome::Slower).filter(is_close)
    }

    /// Measurements of the chosen operator.
    pub fn chosen_profile(&self) -> Option<&CandidateProfile> {
        self.candidates.iter().find(|c| c.training == self.chosen)
    }
}

impl fmt::Display for CandidateProfile {
    /// The operator, its time and its outcome, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.training)?;
        if let Some(seconds) = self.typical() {
            write!(f, " {} per mini-batch", Time(seconds))?;
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
