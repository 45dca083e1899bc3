//! Plans and what is predicted of them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Invalid, Policy, Schedule};

/// The operators of a route, by their keys.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RouteKeys {
    /// Who batches.
    pub batching: String,
    /// Who transfers.
    pub transferring: String,
    /// Who trains.
    pub training: String,
}

impl fmt::Display for RouteKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} → {} → {}", self.batching, self.transferring, self.training)
    }
}

/// What an epoch waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Bottleneck {
    /// Batching.
    Batching,
    /// Transferring.
    Transferring,
    /// Training.
    Training,
    /// The cores, which all phases together keep busy.
    Cores,
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Bottleneck::Batching => "batching",
            Bottleneck::Transferring => "transferring",
            Bottleneck::Training => "training",
            Bottleneck::Cores => "cores",
        })
    }
}

/// What is predicted of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Seconds an epoch.
    pub epoch_seconds: f64,
    /// Seconds no plan can go below: the same for every plan of a problem.
    pub bound_seconds: f64,
    /// Seconds until training starts.
    pub first_fill_seconds: f64,
    /// Seconds between two mini-batches when the pipeline is full.
    pub period_seconds: f64,
    /// Share of the cores that is busy over the epoch, from 0 to 1.
    pub utilisation: f64,
    /// What the epoch waits for.
    pub bottleneck: Bottleneck,
}

/// One way to run an epoch, with its prediction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Who runs it.
    pub route: RouteKeys,
    /// Mini-batches of an epoch.
    pub num_batches: usize,
    /// Policy, thread split, queue.
    pub schedule: Schedule,
    /// What is predicted.
    pub prediction: Prediction,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Prediction { epoch_seconds, bound_seconds, bottleneck, .. } = self.prediction;
        let (epoch, bound) = (Time(epoch_seconds), Time(bound_seconds));
        write!(f, "{}; predicted {epoch} an epoch (bound {bound}); bottleneck: {bottleneck}", self.schedule)
    }
}

/// Seconds with three digits that count.
struct Time(f64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = if self.0 >= 1.0 || self.0 == 0.0 {
            (self.0, "s")
        } else if self.0 >= 1e-3 {
            (self.0 * 1e3, "ms")
        } else {
            (self.0 * 1e6, "µs")
        };
        let digits = if value >= 100.0 {
            0
        } else if value >= 10.0 {
            1
        } else {
            2
        };
        f.pad(&format!("{value:.digits$} {unit}"))
    }
}

/// All plans of a problem, the best first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Plan>", into = "Vec<Plan>")]
pub struct Plans(
    // Invariant: not empty, ascending by predicted epoch seconds.
    Vec<Plan>,
);

impl Plans {
    pub(crate) fn new(mut plans: Vec<Plan>) -> Self {
        assert!(!plans.is_empty(), "every problem has a sequential plan");
        // A stable sort: of equal plans the one listed first, which holds fewer threads.
        plans.sort_by(|a, b| a.prediction.epoch_seconds.total_cmp(&b.prediction.epoch_seconds));
        Self(plans)
    }

    /// The plan with the least predicted epoch time.
    pub fn best(&self) -> &Plan {
        &self.0[0]
    }

    /// The best plan of a policy.
    pub fn best_of(&self, policy: Policy) -> Option<&Plan> {
        self.0.iter().find(|p| p.schedule.policy == policy)
    }

    /// Every candidate, by ascending predicted epoch time.
    pub fn all(&self) -> &[Plan] {
        &self.0
    }
}

impl From<Plans> for Vec<Plan> {
    fn from(plans: Plans) -> Self {
        plans.0
    }
}

impl TryFrom<Vec<Plan>> for Plans {
    type Error = Invalid;

    fn try_from(plans: Vec<Plan>) -> Result<Self, Invalid> {
        if plans.is_empty() {
            return Err(Invalid("a list of plans: it is empty; plan again".to_string()));
        }
        Ok(Self::new(plans))
    }
}

impl fmt::Display for Plans {
    /// Prints a table, one line a plan.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "policy      workers x threads  training  queue  predicted   bound       cores busy  bottleneck")?;
        for Plan { schedule: s, prediction: p, .. } in &self.0 {
            writeln!(
                f,
                "{:<11} {:>7} x {:<7}  {:>8}  {:>5}  {:<10}  {:<10}  {:>9.0}%  {}",
                s.policy,
                s.workers,
                s.threads_per_worker,
                s.training_threads,
                s.queue,
                Time(p.epoch_seconds),
                Time(p.bound_seconds),
                100.0 * p.utilisation,
                p.bottleneck
            )?;
        }
        Ok(())
    }
}
