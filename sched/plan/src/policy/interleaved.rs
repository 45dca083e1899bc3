//! Groups of mini-batches batched by the device, and between them transferring and training at once.

use crate::Schedule;
use crate::policy::{Choose, Snapshot, any};
use crate::state::{State, Step};
use morphgl_registry::Phase;

/// The interleaved policy (ours). A *joint* route batches where it trains and holds device and bus at once; *streamed* routes hold
/// one of them at a time. Changing between the two idles one resource, so it is done once a group, when the busier resource
/// becomes free; until then the other begins nothing that would end later.
///
/// A group begins when its share of the epoch's work is due, or early when nothing else can begin.
pub(crate) struct Interleaved {
    /// The shares that batch where they train, if any.
    joint: Vec<usize>,
    group: u32,
    keep: f64,
    /// For each joint share: mini-batches trained, and transferred by streamed shares, for each of its own mini-batches.
    trained_each: Vec<f64>,
    moved_each: Vec<f64>,
    /// Whether transferring, rather than training, is the bottleneck between groups.
    transfers_bind: bool,
    /// The current group: its share, and the mini-batches it has left.
    due: Option<(usize, u32)>,
}

impl Interleaved {
    pub(crate) fn new(schedule: &Schedule) -> Self {
        let state = State::new(schedule);
        let joint = |share: &usize| {
            let f = &state.specs[*share];
            f.in_place && (f.exclusive[0] | f.exclusive[1]) & f.exclusive[2] != 0
        };
        let joint: Vec<usize> = (0..state.specs.len()).filter(joint).collect();
        let n = schedule.num_batches() as f64;
        let streamed: Vec<usize> = (0..state.specs.len()).filter(|s| !joint.contains(s)).collect();
        let moved: f64 = streamed.iter().map(|&s| schedule.shares[s].batches as f64).sum();
        let each = |total: f64| joint.iter().map(|&s| total / schedule.shares[s].batches.max(1) as f64).collect();
        let transferring: f64 =
            streamed.iter().map(|&s| schedule.shares[s].batches as f64 * schedule.shares[s].transferring.mean).sum();
        let training: f64 = schedule.shares.iter().map(|s| s.batches as f64 * s.training.mean).sum();
        Self {
            trained_each: each(n),
            moved_each: each(moved),
            joint,
            group: schedule.group.clamp(1, schedule.ready.max(1)) as u32,
            keep: schedule.keep as f64,
            transfers_bind: transferring > training,
            due: None,
        }
    }

    /// The joint share whose next group is due.
    fn due(&self, state: &State) -> Option<usize> {
        let trained: u32 = state.flows.iter().map(|f| f.begun[2]).sum();
        let moved: u32 =
            (0..state.flows.len()).filter(|s| !self.joint.contains(s)).map(|s| state.flows[s].begun[1]).sum();
        let late = |&(i, share): &(usize, usize)| {
            let begun = f64::from(state.flows[share].begun[0]);
            match self.transfers_bind {
                true => f64::from(moved) + 0.5 >= self.moved_each[i] * begun,
                false => f64::from(trained) + 0.5 >= self.trained_each[i] * begun - self.keep,
            }
        };
        let joint = self.joint.iter().copied().enumerate();
        joint.filter(|&(_, share)| state.left(share) > 0).find(late).map(|(_, share)| share)
    }
}

impl Choose for Interleaved {
    fn next(&mut self, now: &Snapshot<'_>) -> Option<Step> {
        let state = now.state;
        let of = |share, phase| Some(Step { share, phase }).filter(|&step| state.can_begin(step));
        let shares = 0..state.specs.len();
        for share in shares.clone().filter(|s| !self.joint.contains(s)) {
            if let Some(step) = of(share, Phase::Batching) {
                return Some(step);
            }
        }
        for &share in &self.joint {
            if state.flows[share].batching > 0 || state.flows[share].transferring {
                // A mini-batch of this share is being batched or gathered.
                break;
            }
            if state.batched(share) > 0 {
                // Gathering follows batching immediately.
                return of(share, Phase::Transferring);
            }
        }
        if self.due.is_none() {
            self.due = self.due(state).map(|share| (share, self.group.min(state.left(share))));
        }
        if let Some((share, left)) = self.due {
            if let Some(step) = of(share, Phase::Batching) {
                self.due = (left > 1 && state.left(share) > 1).then_some((share, left - 1));
                return Some(step);
            }
            let begin = Step { share, phase: Phase::Batching };
            if state.has_room(begin) {
                // Only steps that end before the group can begin.
                let needed = state.specs[share].exclusive[0] | state.specs[share].exclusive[1];
                let free = now.free_at(needed);
                let fits = |step: &Step| {
                    let held = state.specs[step.share].exclusive[step.phase as usize];
                    held & needed == 0 || now.time + now.seconds(*step) <= free * (1.0 + 1e-12)
                };
                let steps = shares.flat_map(|s| {
                    [Step { share: s, phase: Phase::Training }, Step { share: s, phase: Phase::Transferring }]
                });
                return steps.filter(|&s| state.can_begin(s)).find(fits);
            }
            return any(now, Phase::Training);
        }
        let step = any(now, Phase::Training).or_else(|| any(now, Phase::Transferring));
        if step.is_some() {
            return step;
        }
        // Nothing else can begin: a group of one begins early.
        let idle = |&&share: &&usize| {
            state.left(share) > 0 && state.is_free(state.specs[share].exclusive[0] | state.specs[share].exclusive[1])
        };
        let share = *self.joint.iter().find(idle)?;
        of(share, Phase::Batching)
    }
}
