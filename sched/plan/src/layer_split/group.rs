//! Layer split in a group: the rows of hot nodes are computed once, on the leading trainer's cores.

use super::search::BETTER;
use super::{Split, SplitPlan, SplitSimulation, simulate_split};
use crate::{Curve, GroupTrainer, PerPhase, Plan, Resource, assemble, simulate};

/// The split of a group's leading trainer, whose plan of one route has the durations of its share of mini-batches with given rows.
#[derive(Debug, Clone, Copy)]
pub struct GroupSplit<'a> {
    /// The leading trainer without given rows, and the share of mini-batches that its `part` was measured with.
    pub exact: (&'a GroupTrainer, f64),
    /// Its plan, its share of each mini-batch, and its cores of the host.
    pub leading: (&'a Plan, f64, usize),
    /// Predicted seconds of the group's epoch, but for the computation of given rows.
    pub epoch_seconds: f64,
    /// Mini-batches of a super-batch.
    pub super_batch: usize,
    /// Hot ratio: the fraction, above 0 and at most 1, of the nodes whose rows may be given that are given them.
    pub ratio: f64,
    /// Seconds of computing the given rows of one super-batch, over the threads that do it, alone on the cores.
    pub embedding: &'a Curve,
}

/// Predicts the group's epoch, and finds the count of threads that compute given rows in the shortest one.
///
/// The rows are computed beside the leading trainer, on the cores of its plan, or where that has none on all of the host's. As many
/// seconds as its epoch is longer than without them, the group's is taken to be, but never less than the computation of all rows: all
/// trainers wait for the first at each step.
///
/// `None` where the leading trainer's route was not measured without given rows.
///
/// # Complexity
///
/// Three simulated epochs per count of threads, and one without the computation of rows.
pub fn group_split(of: GroupSplit<'_>, host_cores: usize) -> Option<SplitPlan> {
    let (trainer, part) = of.exact;
    let (leading, share, cores) = of.leading;
    let mut plan = leading.clone();
    let schedule = &mut plan.schedule;
    if schedule.resources.iter().all(|r| r.cores.is_none()) {
        schedule.resources.push(Resource::shared(morphgl_registry::Resource::CPU.name(), host_cores));
    }
    let exact = trainer.whole.of_share(&trainer.part, part, share).with_cores(cores).settled(&plan.caches);
    let exact = assemble::with_durations(schedule, &exact)?;
    let [batching, transferring, training] = exact.shares.first()?.seconds();
    let alone = simulate(schedule).seconds;
    let predict = |threads: usize| {
        let split = Split {
            super_batch: of.super_batch,
            ratio: of.ratio,
            exact: PerPhase { batching, transferring, training },
            embedding: of.embedding.at(threads),
            threads,
        };
        let (first, later) = (simulate_split(&plan.schedule, &split, 0), simulate_split(&plan.schedule, &split, 1));
        let epoch = |of_split: &SplitSimulation| {
            let seconds = of_split.simulation.seconds;
            (of.epoch_seconds + (seconds - alone).max(0.0)).max(of_split.load() * seconds)
        };
        let mut plan = plan.clone();
        plan.prediction.epoch_seconds = epoch(&later);
        SplitPlan {
            plan,
            first_seconds: epoch(&first),
            load: later.load(),
            slack_seconds: later.slack(),
            late_seconds: later.late(),
            split,
        }
    };
    of.embedding.points().iter().map(|point| predict(point.at)).reduce(|best, other| {
        let [least, seconds] = [&best, &other].map(|split| split.plan.prediction.epoch_seconds);
        if seconds < BETTER * least { other } else { best }
    })
}
