//! The event-driven simulator of devices with roles.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{RolesProblem, RolesReplay, RolesStep, RolesWork, Segment};
use crate::Span;

/// What a device did, and when. The seconds of training are those of its own share, without the all-reduce and the wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RolesActivity {
    /// The step.
    pub step: RolesStep,
    /// When.
    pub span: Span,
}

/// An epoch of devices with roles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RolesTimeline {
    /// Seconds of the epoch.
    pub seconds: f64,
    /// Every step, by the event that ends it.
    pub activities: Vec<RolesActivity>,
}

/// Simulates an epoch; `observe` is called with every activity. `None` where a share is left that no device can sample.
pub(super) fn run(problem: &RolesProblem, segments: &[Segment], observe: &mut dyn FnMut(RolesActivity)) -> Option<f64> {
    let schedule = problem.schedule(segments);
    let mut replay = RolesReplay::new(&schedule, 0);
    let stays = schedule.min_trainers();
    // Steps of devices under way with their ends; and complete steps of training, whose gradients are added up one after another.
    let mut running: Vec<(f64, RolesStep)> = Vec::new();
    let mut summing: VecDeque<f64> = VecDeque::new();
    let mut time = 0.0_f64;
    loop {
        while let Some(step) = replay.begin() {
            let trainers = schedule.trainers(step.batch.min(problem.num_batches.saturating_sub(1)));
            let share = 1.0 / trainers as f64;
            let seconds = match step.work {
                RolesWork::Sampling => problem.sampling.at(share),
                RolesWork::Gathering if step.device < stays => problem.gathering.at(share),
                RolesWork::Gathering => problem.standby_gathering.at(share),
                RolesWork::Training => problem.training.at(share),
                RolesWork::Switching => problem.switching,
            };
            let end = time + seconds;
            observe(RolesActivity { step, span: Span { start: time, end } });
            running.push((end, step));
        }
        if replay.ended() == problem.num_batches {
            return Some(time);
        }
        let next = running.iter().map(|(end, _)| *end).chain(summing.front().copied()).reduce(f64::min)?;
        time = next;
        running.retain(|(end, step)| {
            let ends = *end == next;
            if ends {
                replay.end(*step);
            }
            !ends
        });
        while summing.front() == Some(&next) {
            summing.pop_front();
            replay.summed();
        }
        // An all-reduce that takes no time ends now.
        while replay.complete() > summing.len() {
            let trainers = schedule.trainers(replay.ended() + summing.len());
            let all_reduce = if trainers > 1 { problem.all_reduce } else { 0.0 };
            let end = summing.back().map_or(time, |last| last.max(time)) + all_reduce;
            if summing.is_empty() && end == time {
                replay.summed();
            } else {
                summing.push_back(end);
            }
        }
    }
}
