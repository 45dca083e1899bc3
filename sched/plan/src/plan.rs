//! Plans and their predictions.

use std::fmt;

use morphgl_registry::Phase;
use serde::{Deserialize, Serialize};

use crate::simulate::{Simulation, simulate};
use crate::{CacheSize, Memory, Resource, Schedule, ScheduleShare, Time};

/// The kind of a plan: a baseline, or ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Strategy {
    /// One mini-batch after the other.
    Sequential,
    /// A pipeline on a route batched by the host: Category I, as SALIENT.
    Pipeline,
    /// A pipeline on a route batched by the device: Category II, as DUCATI.
    Device,
    /// MorphGL's own plan: Equation 6, dual buffer, feedback.
    Paper,
    /// Several routes, interleaved in groups.
    Interleaved,
}

impl Strategy {
    /// All strategies.
    pub const ALL: [Strategy; 5] =
        [Strategy::Sequential, Strategy::Pipeline, Strategy::Device, Strategy::Paper, Strategy::Interleaved];
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(["sequential", "pipeline", "device", "paper", "interleaved"][*self as usize])
    }
}

/// The resource that limits an epoch, and the phase that keeps it busiest.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Bottleneck {
    /// The resource.
    pub resource: String,
    /// The phase.
    pub phase: Phase,
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} ({})", self.resource, self.phase.noun()))
    }
}

/// Utilisation of a resource: the fraction of an epoch in which it is busy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Utilisation {
    /// The resource.
    pub resource: String,
    /// Fraction of the epoch, 0 to 1; of all cores where it has cores.
    pub share: f64,
}

/// The prediction of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Seconds per epoch.
    pub epoch_seconds: f64,
    /// The lower bound with the plan's sizes of caches, the same for every plan of a problem.
    pub bound_seconds: f64,
    /// Seconds until training starts.
    pub first_fill_seconds: f64,
    /// Utilisation of each resource.
    pub utilisation: Vec<Utilisation>,
    /// The bottleneck.
    pub bottleneck: Bottleneck,
}

impl Prediction {
    /// Predicted seconds as a multiple of the bound, from 1; 1 when both are 0.
    pub fn ratio(&self) -> f64 {
        if self.bound_seconds > 0.0 { self.epoch_seconds / self.bound_seconds } else { 1.0 }
    }
}

/// One way to run an epoch, with its prediction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Its kind.
    pub strategy: Strategy,
    /// The schedule.
    pub schedule: Schedule,
    /// The prediction.
    pub prediction: Prediction,
    /// Peak bytes of its buffers, workers and caches.
    pub memory: Memory,
    /// Sizes of its operators' caches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caches: Vec<CacheSize>,
}

impl Plan {
    /// Mini-batches of the epoch.
    pub fn num_batches(&self) -> usize {
        self.schedule.num_batches()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let p = &self.prediction;
        write!(
            f,
            "{}; predicted {} per epoch ({:.3} of the bound {}); bottleneck: {}",
            self.schedule,
            Time(p.epoch_seconds),
            p.ratio(),
            Time(p.bound_seconds),
            p.bottleneck
        )
    }
}

/// Predicts an epoch by `schedule`, which need not be one that [`plan`](crate::plan()) would propose.
///
/// # Complexity
///
/// As [`simulate`].
pub fn predict(schedule: &Schedule, bound_seconds: f64) -> Prediction {
    prediction(schedule, &simulate(schedule), bound_seconds)
}

pub(crate) fn prediction(schedule: &Schedule, simulation: &Simulation, bound_seconds: f64) -> Prediction {
    let seconds = simulation.seconds;
    let of_epoch = |busy: f64| if seconds > 0.0 { busy / seconds } else { 0.0 };
    // Seconds that a phase of a share keeps one worker or lane busy.
    let busy = |share: &ScheduleShare, phase: Phase| share.batches as f64 * share.seconds()[phase as usize].mean;
    let busy_shares: Vec<f64> = schedule
        .resources
        .iter()
        .zip(&simulation.busy)
        .map(|(r, busy)| of_epoch(*busy) / r.cores.unwrap_or(1) as f64)
        .collect();
    // Candidates for the bottleneck: resources, worker pools, and the lanes of the other phases.
    let mut candidates: Vec<(f64, String, Phase)> = Vec::new();
    for (Resource { name, .. }, &share) in schedule.resources.iter().zip(&busy_shares) {
        let seconds = |phase: Phase| -> f64 {
            schedule.shares.iter().filter(|s| s.hardware[phase].contains(name)).map(|s| busy(s, phase)).sum()
        };
        let phase = Phase::ALL.into_iter().max_by(|&a, &b| seconds(a).total_cmp(&seconds(b)));
        candidates.push((share, name.clone(), phase.expect("there are phases")));
    }
    for share in &schedule.shares {
        for (phase, lanes) in [(Phase::Batching, share.workers.max(1)), (Phase::Transferring, 1)] {
            candidates.push((of_epoch(busy(share, phase)) / lanes as f64, share.hardware[phase].join("+"), phase));
        }
    }
    let training: f64 = schedule.shares.iter().map(|s| busy(s, Phase::Training)).sum();
    candidates.push((of_epoch(training), schedule.shares[0].hardware.training.join("+"), Phase::Training));
    // Of candidates that are equally busy, the first.
    let busiest = candidates.into_iter().reduce(|a, b| if b.0 > a.0 + 1e-9 { b } else { a });
    let (_, resource, phase) = busiest.expect("training is a candidate");
    let utilisation = schedule.resources.iter().zip(&busy_shares);
    Prediction {
        epoch_seconds: seconds,
        bound_seconds,
        first_fill_seconds: simulation.first_fill_seconds,
        utilisation: utilisation.map(|(r, s)| Utilisation { resource: r.name.clone(), share: s.min(1.0) }).collect(),
        bottleneck: Bottleneck { resource, phase },
    }
}

/// The best plan of each strategy and set of routes, the best of all first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plans(
    // Invariant: not empty, ascending by predicted epoch seconds.
    Vec<Plan>,
);

impl Plans {
    pub(crate) fn new(mut plans: Vec<Plan>) -> Self {
        assert!(!plans.is_empty(), "every problem has a sequential plan");
        // The sort is stable: of equal plans the simpler one is listed first.
        plans.sort_by(|a, b| a.prediction.epoch_seconds.total_cmp(&b.prediction.epoch_seconds));
        Self(plans)
    }

    /// The plan with the minimum predicted epoch time.
    pub fn best(&self) -> &Plan {
        &self.0[0]
    }

    /// The best plan of a strategy.
    pub fn best_of(&self, strategy: Strategy) -> Option<&Plan> {
        self.0.iter().find(|p| p.strategy == strategy)
    }

    /// Every plan, by ascending predicted epoch time.
    pub fn all(&self) -> &[Plan] {
        &self.0
    }

    /// A plan's schedule in words, with its batching operator where these plans are of several routes.
    pub fn describe(&self, plan: &Plan) -> String {
        let same_routes =
            |p: &Plan| p.schedule.shares.iter().map(|s| &s.keys).eq(plan.schedule.shares.iter().map(|s| &s.keys));
        match &plan.schedule.shares[..] {
            [only] if !self.0.iter().all(same_routes) => format!("{}, by {}", plan.schedule, only.keys.batching),
            _ => plan.schedule.to_string(),
        }
    }
}

impl fmt::Display for Plans {
    /// Prints a table, one line per plan; the first is the best.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resources = &self.best().schedule.resources;
        let names: String = resources.iter().map(|r| format!("  {:>6}", r.name)).collect();
        let width = |p: &Plan| p.prediction.bottleneck.to_string().chars().count();
        let wide = self.0.iter().map(width).fold(10, usize::max);
        writeln!(f, "strategy     epoch        / bound{names}  {:<wide$}  plan", "bottleneck")?;
        for plan in &self.0 {
            let Plan { strategy, prediction: p, .. } = plan;
            write!(f, "{strategy:<11}  {:<11}  {:>7.3}", Time(p.epoch_seconds), p.ratio())?;
            for used in &p.utilisation {
                write!(f, "  {:>w$.0}%", 100.0 * used.share, w = used.resource.len().max(6) - 1)?;
            }
            writeln!(f, "  {:<wide$}  {}", p.bottleneck, self.describe(plan))?;
        }
        Ok(())
    }
}
