//! The choice among plans by what whole epochs took.

use serde::{Deserialize, Serialize};

use crate::{Plan, Plans, Policy, RouteKeys};

/// Measured over predicted seconds of the last whole epochs, for each set of routes.
///
/// A prediction may be wrong for a reason that no phase's duration shows: routes that slow each other, say. So predictions of plans
/// of a set of routes are multiplied by its pace, the lower one of its last two epochs, as soon as it has run two. Before, the pace
/// of a single route is taken to be 1, of a mix 1.05. A set of routes whose plans run slower than predicted is replaced
/// after two epochs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PaceHistory(Vec<Pace>);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Pace {
    /// The routes of the plans, and whether their phases do not overlap.
    routes: Vec<RouteKeys>,
    sequential: bool,
    last: f64,
    before: Option<f64>,
}

/// Pace assumed of a mix of routes until it is known: each route's durations were measured without the others. On an H200 mixes took
/// 1.1 to 1.4 times as long as predicted, single routes at most as long.
const OF_MIXES: f64 = 1.05;

/// Pace assumed of sequential schedules, just above 1 so that a pipeline wins a tie: it hides the time between phases.
const OF_SEQUENTIAL: f64 = 1.0 + 1e-6;

/// Minimum ratio of the current plan's expected seconds to another plan's for a change to that plan.
const WORTHWHILE: f64 = 1.1;

impl PaceHistory {
    /// Adds a whole epoch by `plan`, which took `seconds`.
    pub fn record(&mut self, plan: &Plan, seconds: f64) {
        let last = seconds / plan.prediction.epoch_seconds;
        if !last.is_finite() || last <= 0.0 {
            return;
        }
        match self.0.iter_mut().find(|pace| pace.is_of(plan)) {
            Some(pace) => (pace.last, pace.before) = (last, Some(pace.last)),
            None => {
                let sequential = plan.schedule.policy == Policy::Sequential;
                self.0.push(Pace { routes: routes(plan).cloned().collect(), sequential, last, before: None });
            }
        }
    }

    /// The pace of a plan's routes; `None` before two whole epochs.
    pub fn of(&self, plan: &Plan) -> Option<f64> {
        let pace = self.0.iter().find(|pace| pace.is_of(plan))?;
        Some(pace.last.min(pace.before?))
    }

    /// Predicted seconds of an epoch by `plan`, at the pace of its routes where that is known.
    pub fn seconds(&self, plan: &Plan) -> f64 {
        plan.prediction.epoch_seconds * self.of(plan).unwrap_or(1.0)
    }

    /// As [`PaceHistory::seconds`], with the paces assumed of plans whose pace is not known.
    fn expected(&self, plan: &Plan) -> f64 {
        let assumed = match plan.schedule.policy {
            Policy::Sequential => OF_SEQUENTIAL,
            _ if plan.schedule.shares.len() > 1 => OF_MIXES,
            _ => 1.0,
        };
        plan.prediction.epoch_seconds * self.of(plan).unwrap_or(assumed)
    }

    /// The plan with the minimum expected seconds.
    pub fn best<'a>(&self, plans: &'a Plans) -> &'a Plan {
        let shortest = plans.all().iter().min_by(|a, b| self.expected(a).total_cmp(&self.expected(b)));
        shortest.expect("there is a plan")
    }

    /// The plan to change to from the one in force, after two whole epochs of its routes: one expected to take a tenth less.
    pub fn better<'a>(&self, plans: &'a Plans, in_force: &Plan) -> Option<&'a Plan> {
        self.of(in_force)?;
        let best = self.best(plans);
        (self.expected(in_force) > WORTHWHILE * self.expected(best)).then_some(best)
    }
}

impl Plans {
    /// The plan to run before any epoch was measured. A mix of routes is taken only where its predicted epoch is 5% shorter than every
    /// other plan's: its prediction is optimistic, since each route was measured alone and concurrent routes slow each other.
    pub fn chosen(&self) -> &Plan {
        PaceHistory::default().best(self)
    }

    /// The mix of routes with the minimum predicted epoch, where [`Plans::chosen`] is another plan because that one is less than 5% longer.
    pub fn passed_over(&self) -> Option<&Plan> {
        let (chosen, best) = (self.chosen(), self.best());
        let is_shorter = best.prediction.epoch_seconds < chosen.prediction.epoch_seconds;
        (is_shorter && best.schedule.shares.len() > 1).then_some(best)
    }
}

impl Pace {
    fn is_of(&self, plan: &Plan) -> bool {
        self.sequential == (plan.schedule.policy == Policy::Sequential) && routes(plan).eq(&self.routes)
    }
}

fn routes(plan: &Plan) -> impl Iterator<Item = &RouteKeys> {
    plan.schedule.shares.iter().map(|share| &share.keys)
}
