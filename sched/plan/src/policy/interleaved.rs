//! Groups of mini-batches batched by the device, and between them transferring and training at once.

use crate::Schedule;
use crate::policy::{Choose, Now, any};
use crate::state::{Phase, State, Step};

/// Ours. A route that batches where it trains holds the device and the bus together; the other routes hold one at a time.
/// To change between the two costs idle time on one of them, so it is done once a group, and only when the busier of the two
/// becomes free: until then the other begins nothing that would make it wait.
///
/// Groups begin when their share of the epoch's work is due; when there is nothing else to do, one begins early.
pub(crate) struct Interleaved {
    /// The shares that batch where they train, if any.
    joint: Vec<usize>,
    group: u32,
    keep: f64,
    /// Of each joint share, mini-batches trained and moved for each of its own, over the epoch.
    trained_each: Vec<f64>,
    moved_each: Vec<f64>,
    /// Whether transferring, rather than training, is what the device's groups should not keep waiting.
    transfers_bind: bool,
    /// The group that is due: its share, and how many mini-batches are left of it.
    due: Option<(usize, u32)>,
}

impl Interleaved {
    pub(crate) fn new(schedule: &Schedule) -> Self {
        let state = State::new(schedule);
        let joint = |share: &usize| {
            let f = &state.fixed[*share];
            f.in_place && (f.exclusive[0] | f.exclusive[1]) & f.exclusive[2] != 0
        };
        let joint: Vec<usize> = (0..state.fixed.len()).filter(joint).collect();
        let n = schedule.num_batches() as f64;
        let streamed: Vec<usize> = (0..state.fixed.len()).filter(|s| !joint.contains(s)).collect();
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

    /// The joint share whose next group is due by the work done since its last.
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
    fn next(&mut self, now: &Now<'_>) -> Option<Step> {
        let state = now.state;
        let of = |share, phase| Some(Step { share, phase }).filter(|&step| state.can_begin(step));
        let shares = 0..state.fixed.len();
        for share in shares.clone().filter(|s| !self.joint.contains(s)) {
            if let Some(step) = of(share, Phase::Batching) {
                return Some(step);
            }
        }
        for &share in &self.joint {
            if state.flows[share].batching > 0 || state.flows[share].transferring {
                // It is at work: what it holds is held, and its gather is not due yet.
                break;
            }
            if state.batched(share) > 0 {
                // Nothing comes between a mini-batch's batching and its gathering.
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
                // Only what is over before the group can begin anyhow.
                let needed = state.fixed[share].exclusive[0] | state.fixed[share].exclusive[1];
                let free = now.free_at(needed);
                let fits = |step: &Step| {
                    let held = state.fixed[step.share].exclusive[step.phase as usize];
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
        // Nothing else to do: a group of one begins early.
        let idle = |&&share: &&usize| {
            state.left(share) > 0 && state.is_free(state.fixed[share].exclusive[0] | state.fixed[share].exclusive[1])
        };
        let share = *self.joint.iter().find(idle)?;
        of(share, Phase::Batching)
    }
}
