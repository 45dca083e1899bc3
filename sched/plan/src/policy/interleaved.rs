//! Groups of mini-batches batched by the device, and between them transferring and training at once.

use morphgl_registry::Phase;

use super::Snapshot;
use crate::state::{State, Step};
use crate::{Schedule, ScheduleShare};

/// The interleaved policy (ours). A *joint* route batches where it trains and holds device and bus at once; *streamed* routes hold
/// one of them at a time. Changing between the two idles one resource, so it is done once per group, when the busier resource
/// becomes free; until then the other begins nothing that would end later.
///
/// A group begins when its share of the epoch's work is due, or early when nothing else can begin.
pub(super) struct Interleaved {
    /// The joint shares.
    joint: Vec<usize>,
    streamed: Vec<usize>,
    group: u32,
    keep: f64,
    /// Mini-batches of the streamed shares.
    num_streamed: f64,
    num_batches: f64,
    /// Whether transferring, rather than training, is the bottleneck between groups.
    transfers_bind: bool,
    /// The current group: its share, and the mini-batches it has left.
    due: Option<(usize, u32)>,
}

impl Interleaved {
    pub(super) fn new(schedule: &Schedule) -> Self {
        let specs = State::new(schedule).specs;
        let is_joint = |&share: &usize| {
            let spec = &specs[share];
            spec.in_place && (spec.exclusive[0] | spec.exclusive[1]) & spec.exclusive[2] != 0
        };
        let (joint, streamed): (Vec<usize>, Vec<usize>) = (0..specs.len()).partition(is_joint);
        let batches = |share: usize| schedule.shares[share].batches;
        let transferring = |&s: &usize| batches(s) as f64 * schedule.shares[s].transferring.mean;
        let training = |s: &ScheduleShare| s.batches as f64 * s.training.mean;
        Self {
            num_streamed: streamed.iter().map(|&s| batches(s)).sum::<usize>() as f64,
            num_batches: schedule.num_batches() as f64,
            transfers_bind: streamed.iter().map(transferring).sum::<f64>()
                > schedule.shares.iter().map(training).sum::<f64>(),
            joint,
            streamed,
            group: schedule.group.clamp(1, schedule.ready.max(1)) as u32,
            keep: schedule.keep as f64,
            due: None,
        }
    }

    /// The joint share whose next group is due.
    fn due(&self, state: &State) -> Option<usize> {
        let trained = f64::from(state.begun(Phase::Training));
        let moved = f64::from(self.streamed.iter().map(|&s| state.progress[s].begun[1]).sum::<u32>());
        let is_due = |&share: &usize| {
            let begun = f64::from(state.progress[share].begun[0]);
            let batches = f64::from(state.specs[share].batches.max(1));
            match self.transfers_bind {
                true => moved + 0.5 >= self.num_streamed / batches * begun,
                false => trained + 0.5 >= self.num_batches / batches * begun - self.keep,
            }
        };
        self.joint.iter().copied().filter(|&share| state.left(share) > 0).find(is_due)
    }

    pub(super) fn next(&mut self, now: &Snapshot<'_>) -> Option<Step> {
        let state = now.state;
        if let Some(step) = self.streamed.iter().find_map(|&share| state.step(share, Phase::Batching)) {
            return Some(step);
        }
        for &share in &self.joint {
            if state.progress[share].batching > 0 || state.progress[share].transferring {
                // A mini-batch of this share is being batched or gathered.
                break;
            }
            if state.batched(share) > 0 {
                // Gathering follows batching immediately.
                return state.step(share, Phase::Transferring);
            }
        }
        if self.due.is_none() {
            self.due = self.due(state).map(|share| (share, self.group.min(state.left(share))));
        }
        let group_resources = |share: usize| state.specs[share].exclusive[0] | state.specs[share].exclusive[1];
        let Some((share, left)) = self.due else {
            // Where nothing else can begin, a group of one begins early.
            let is_idle = |&&share: &&usize| state.left(share) > 0 && state.is_free(group_resources(share));
            let early = || state.step(*self.joint.iter().find(is_idle)?, Phase::Batching);
            return state.first(Phase::Training).or_else(|| state.first(Phase::Transferring)).or_else(early);
        };
        let begin = Step { share, phase: Phase::Batching };
        if state.can_begin(begin) {
            self.due = (left > 1 && state.left(share) > 1).then_some((share, left - 1));
            return Some(begin);
        }
        if !state.has_slot(begin) {
            return state.first(Phase::Training);
        }
        // Only steps that end before the group can begin.
        let needed = group_resources(share);
        let held = now.ends.iter().enumerate().filter(|(i, _)| needed >> i & 1 == 1);
        let free = held.map(|(_, end)| *end).fold(now.time, f64::max);
        let fits = |step: &Step| {
            let phase = step.phase as usize;
            state.specs[step.share].exclusive[phase] & needed == 0
                || now.time + now.seconds[step.share][phase].mean <= free * (1.0 + 1e-12)
        };
        let steps = (0..state.specs.len())
            .flat_map(|share| [Phase::Training, Phase::Transferring].map(|phase| Step { share, phase }));
        steps.filter(|&step| state.can_begin(step)).find(fits)
    }
}
