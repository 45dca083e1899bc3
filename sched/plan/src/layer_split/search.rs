//! The search for a layer-split plan.

use super::{Split, SplitChoice, SplitPlan, SplitPoint, SplitProblem, simulate_split};
use crate::memory::{self, DoesNotFit, memory};
use crate::search::{lower_bound, pipelines};
use crate::{Candidate, PerPhase, Plan, Policy, Problem, assemble, bound, plan};

/// Tolerance of ties: another candidate is better only if its epoch is below this factor times the shortest one so far.
pub(super) const BETTER: f64 = 0.999;

/// Predicts every point within the bound of staleness, and keeps the split of the shortest epoch beside the exact plans; of
/// nearly equal ones that of the least staleness, then of the least hot ratio.
///
/// Candidates of a point are the plans of one route that [`plan`](crate::plan()) finds for the durations with given rows, and the
/// pipelines of that route with every split of the cores and the largest buffers, in which mini-batches wait for given rows. Each
/// is simulated beside the computation of these, for every measured count of its threads; those whose own lower bound is not
/// below the best are not. Plans of several routes are not split, as their mini-batches are not trained in the order in which they
/// are batched.
///
/// # Errors
///
/// No exact plan fits.
///
/// # Complexity
///
/// That of `plan` for each different problem of a point, and up to as many simulations for each point and count of threads.
pub fn layer_split(problem: &SplitProblem) -> Result<SplitChoice, DoesNotFit> {
    let exact = plan(&problem.exact)?;
    let mut searched = Searched::default();
    let mut split: Option<SplitPlan> = None;
    for point in problem.allowed() {
        let Found { bound, plans } = searched.of(&with_exact_bytes(&point.problem, &problem.exact));
        for threads in point.embedding.points().iter().map(|p| p.at) {
            let on_point = |plan| Attempt::new(&problem.exact, point, threads, plan);
            let mut attempts: Vec<Attempt<'_>> = plans.iter().filter_map(on_point).collect();
            attempts.sort_by(|a, b| a.least.total_cmp(&b.least));
            for attempt in attempts {
                let best = split.as_ref().map_or(f64::INFINITY, |s| s.plan.prediction.epoch_seconds);
                if attempt.least >= BETTER * best {
                    break;
                }
                let found = attempt.predict(*bound);
                if found.plan.prediction.epoch_seconds < BETTER * best {
                    split = Some(found);
                }
            }
        }
    }
    Ok(SplitChoice { exact, split })
}

/// The problem with mini-batches no smaller than the exact ones, which the first super-batch has.
fn with_exact_bytes(problem: &Problem, exact: &Problem) -> Problem {
    let mut given = problem.clone();
    for route in &mut given.routes {
        if let Some(Candidate { bytes, .. }) = exact.routes.iter().find(|r| r.keys == route.keys) {
            let own = &mut route.bytes;
            own.batched = own.batched.max(bytes.batched);
            own.ready = own.ready.max(bytes.ready);
            own.worker = own.worker.max(bytes.worker);
        }
    }
    given
}

/// The bound of a problem, and its candidates.
struct Found {
    bound: f64,
    plans: Vec<Plan>,
}

/// Problems that were searched: points that differ in the length of super-batches may have the same one.
#[derive(Default)]
struct Searched(Vec<(Problem, Found)>);

impl Searched {
    fn of(&mut self, problem: &Problem) -> &Found {
        let at = self.0.iter().position(|(of, _)| of == problem).unwrap_or_else(|| {
            self.0.push((problem.clone(), Found { bound: bound(problem), plans: candidates(problem) }));
            self.0.len() - 1
        });
        &self.0[at].1
    }
}

/// Plans of one route; none where nothing fits.
fn candidates(problem: &Problem) -> Vec<Plan> {
    let Ok(found) = plan(problem) else { return Vec::new() };
    let single: Vec<&Plan> = found.all().iter().filter(|p| p.schedule.shares.len() == 1).collect();
    let mut plans: Vec<Plan> = single.iter().map(|&p| p.clone()).collect();
    for own in single.into_iter().filter(|p| p.schedule.policy == Policy::Pipeline) {
        let share = &own.schedule.shares[0];
        let sized = problem.settled(&own.caches);
        let route = sized.routes.iter().position(|r| r.keys == share.keys && r.hardware == share.hardware);
        let schedules = route.into_iter().flat_map(|route| pipelines(&sized, route));
        let fitting = schedules.filter_map(|schedule| memory::fit(&sized, schedule));
        plans.extend(fitting.map(|schedule| Plan { memory: memory(&sized, &schedule), schedule, ..own.clone() }));
    }
    plans
}

/// A plan of mini-batches with given rows, as a split.
struct Attempt<'a> {
    plan: &'a Plan,
    split: Split,
    /// A lower bound of its epoch, in seconds.
    least: f64,
}

impl<'a> Attempt<'a> {
    /// `None` where the exact problem has no such route.
    fn new(exact: &Problem, point: &SplitPoint, threads: usize, plan: &'a Plan) -> Option<Self> {
        let exact = assemble::with_durations(&plan.schedule, &exact.settled(&plan.caches))?;
        let [batching, transferring, training] = exact.shares[0].seconds();
        let split = Split {
            super_batch: point.super_batch,
            ratio: point.ratio,
            exact: PerPhase { batching, transferring, training },
            embedding: point.embedding.at(threads),
            threads,
        };
        Some(Self { plan, split, least: lower_bound(&plan.schedule) })
    }

    /// Its prediction, beside the bound of an epoch with given rows.
    fn predict(self, bound: f64) -> SplitPlan {
        let Self { plan, split, .. } = self;
        let schedule = &plan.schedule;
        let (first, later) = (simulate_split(schedule, &split, 0), simulate_split(schedule, &split, 1));
        let prediction = crate::plan::prediction(schedule, &later.simulation, bound);
        SplitPlan {
            plan: Plan { prediction, ..plan.clone() },
            first_seconds: first.simulation.seconds,
            load: later.load(),
            slack_seconds: later.slack(),
            late_seconds: later.late(),
            split,
        }
    }
}
