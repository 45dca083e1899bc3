//! The event-driven simulator of a group.

use morphgl_registry::Phase;

use super::{GroupProblem, TrainerPlan};
use crate::order::{Begun, Replay};
use crate::simulate::{CoreLoad, can_slow, simulate};
use crate::{Resource, Schedule, ScheduleShare};

/// A simulated epoch of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupSimulation {
    /// Seconds of the epoch.
    pub seconds: f64,
    /// Seconds in which each trainer waited for others at the end of steps, all-reduces excluded.
    pub waited: Vec<f64>,
    /// Seconds in which each link was in use, times the part of its bandwidth that was used.
    pub link_seconds: Vec<f64>,
}

/// A phase under way.
struct Running {
    begun: Begun,
    /// Threads on the cores.
    threads: f64,
    end: f64,
    /// Progress per second; below 1 while other phases slow it down.
    rate: f64,
}

/// A trainer while it is simulated.
struct Trainer<'a> {
    schedule: &'a Schedule,
    replay: Replay,
    /// Resources that go on with other work while the trainer waits for others: those that queue.
    queued: u32,
    threads: Vec<[f64; 3]>,
    /// Seconds of each share's phases.
    seconds: Vec<[f64; 3]>,
    /// Fractions of each link, by share and phase; empty where no phase uses a link.
    fractions: Vec<[Vec<f64>; 3]>,
    running: Vec<Running>,
    /// The training that has ended here and not at all trainers, and when.
    trained: Option<(Begun, f64)>,
}

impl<'a> Trainer<'a> {
    fn new(problem: &GroupProblem, plan: &'a TrainerPlan) -> Self {
        let schedule = &plan.plan.schedule;
        let queued = schedule.resources.iter().enumerate().filter(|(_, r)| r.queued).map(|(i, _)| 1 << i).sum();
        // A device that queues work is planned as if one phase held it at a time.
        let exclusive = |r: &Resource| Resource { queued: false, ..r.clone() };
        let strict = Schedule { resources: schedule.resources.iter().map(exclusive).collect(), ..schedule.clone() };
        let threads = |share: &ScheduleShare| schedule.threads_on_cores(share).map(|t| t as f64);
        let fractions =
            |share: &ScheduleShare| Phase::ALL.map(|phase| problem.fractions(plan.trainer, &share.hardware[phase]));
        Self {
            schedule,
            replay: Replay::new(&strict, &simulate(schedule).order),
            queued,
            threads: schedule.shares.iter().map(threads).collect(),
            seconds: schedule.shares.iter().map(|share| share.seconds().map(|s| s.mean)).collect(),
            fractions: schedule.shares.iter().map(fractions).collect(),
            running: Vec::new(),
            trained: None,
        }
    }

    /// Whether its phases can slow each other down on its cores.
    fn can_slow(&self) -> bool {
        can_slow(self.schedule, &self.threads, 0.0)
    }

    /// Begins what can begin.
    fn begin(&mut self, time: f64) {
        while let Some(begun) = self.replay.begin() {
            let (share, phase) = (begun.step.share, begun.step.phase as usize);
            let end = time + self.seconds[share][phase];
            self.running.push(Running { begun, threads: self.threads[share][phase], end, rate: 1.0 });
        }
    }

    /// Ends what ends until `until`.
    fn end(&mut self, time: f64, until: f64) {
        let (replay, trained, queued) = (&mut self.replay, &mut self.trained, self.queued);
        self.running.retain(|&Running { begun, end, .. }| {
            if end > until {
                return true;
            }
            match begun.step.phase {
                Phase::Training => {
                    replay.release(begun, queued);
                    *trained = Some((begun, time));
                }
                _ => replay.end(begun),
            }
            false
        });
    }

    fn fractions(&self, running: &Running) -> &[f64] {
        &self.fractions[running.begun.step.share][running.begun.step.phase as usize]
    }
}

/// Sets the rate of every running phase by the load of its trainer's cores and of its links, and moves its end accordingly.
fn slow(trainers: &mut [Trainer<'_>], wanted: &[f64], now: f64) {
    for trainer in trainers {
        let load = CoreLoad::of(trainer.schedule, trainer.running.iter().map(|r| (Some(r.begun.step), r.threads)));
        let slowest = |running: &Running| {
            let links =
                trainer.fractions[running.begun.step.share][running.begun.step.phase as usize].iter().zip(wanted);
            let by_links =
                links.filter(|(fraction, _)| **fraction > 0.0).map(|(_, wanted)| *wanted).fold(1.0, f64::max);
            load.slowdown(trainer.schedule, Some(running.begun.step), running.threads) * by_links
        };
        for running in &mut trainer.running {
            let rate = 1.0 / slowest(running);
            if rate != running.rate {
                running.end = now + (running.end - now) * running.rate / rate;
                running.rate = rate;
            }
        }
    }
}

/// Simulates an epoch.
pub(super) fn run(problem: &GroupProblem, plans: &[TrainerPlan]) -> GroupSimulation {
    let mut trainers: Vec<Trainer<'_>> = plans.iter().map(|plan| Trainer::new(problem, plan)).collect();
    let steps: Vec<usize> = plans.iter().map(|plan| plan.plan.schedule.num_batches()).collect();
    assert!(steps.windows(2).all(|pair| pair[0] == pair[1]), "trainers take the same steps: {steps:?}");
    let all_reduce = if plans.len() > 1 { problem.all_reduce } else { 0.0 };
    let mut waited = vec![0.0; plans.len()];
    let mut link_seconds = vec![0.0; problem.links.len()];
    // The end of the all-reduce under way.
    let mut reduced: Option<f64> = None;
    let can_slow = !problem.links.is_empty() || trainers.iter().any(Trainer::can_slow);
    let mut time = 0.0_f64;
    loop {
        trainers.iter_mut().for_each(|trainer| trainer.begin(time));
        let mut wanted = vec![0.0; problem.links.len()];
        if can_slow {
            for (trainer, running) in trainers.iter().flat_map(|t| t.running.iter().map(move |r| (t, r))) {
                wanted.iter_mut().zip(trainer.fractions(running)).for_each(|(sum, fraction)| *sum += fraction);
            }
            slow(&mut trainers, &wanted, time);
        }
        let ends = trainers.iter().flat_map(|t| &t.running).map(|r| r.end).chain(reduced);
        let Some(next) = ends.min_by(f64::total_cmp) else { break };
        link_seconds.iter_mut().zip(&wanted).for_each(|(sum, wanted)| *sum += wanted.min(1.0) * (next - time));
        // Ends that are equal up to rounding are processed together.
        let until = next + next.abs() * 1e-12;
        time = next;
        trainers.iter_mut().for_each(|trainer| trainer.end(time, until));
        if reduced.is_some_and(|end| end <= until) {
            reduced = None;
            for (trainer, waited) in trainers.iter_mut().zip(&mut waited) {
                let (begun, end) = trainer.trained.take().expect("all have trained their shares");
                *waited += time - all_reduce - end;
                let queued = trainer.queued;
                trainer.replay.end_released(begun, queued);
            }
        } else if reduced.is_none() && trainers.iter().all(|trainer| trainer.trained.is_some()) {
            reduced = Some(time + all_reduce);
        }
    }
    for (trainer, steps) in trainers.iter().zip(steps) {
        assert_eq!(trainer.replay.trained() as usize, steps, "steps of {}", trainer.schedule);
    }
    GroupSimulation { seconds: time, waited, link_seconds }
}
