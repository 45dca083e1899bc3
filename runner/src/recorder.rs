//! Timelines of plans and of runs, for traces and reports.

use std::collections::{HashMap, HashSet};

use morphgl_execute::{Activity, Event};
use morphgl_plan::{Phase, Plan, RolesWork, Schedule, ScheduleShare, Span, timeline};
use morphgl_registry::{BatchId, Key, Registry};
use morphgl_report::{Bar, Lane, Mark, Timeline, Work};

use crate::factored::Factored;
use crate::train::Progress;
use crate::unified::Unified;

/// The operators that run on a simulated device: their durations are marked as simulated.
#[derive(Debug, Clone, Default)]
pub struct Simulated(HashSet<String>);

impl Simulated {
    /// The simulated ones of the registered operators.
    pub fn of(registry: &Registry) -> Self {
        let simulated = registry.status().into_iter().filter(|s| s.description.simulated);
        Self(simulated.map(|s| s.description.key.to_string()).collect())
    }

    /// Whether the operator with this key is simulated.
    pub fn operator(&self, key: &str) -> bool {
        self.0.contains(key)
    }

    /// Whether a schedule trains on a simulated device, which learns nothing.
    pub fn trains(&self, schedule: &Schedule) -> bool {
        schedule.shares.iter().any(|s| self.operator(&s.keys.training.to_string()))
    }

    /// Whether only simulated operators of the schedule hold the resource.
    pub fn resource(&self, schedule: &Schedule, resource: &str) -> bool {
        let phases = schedule.shares.iter().flat_map(|share| Phase::ALL.map(|phase| (share, phase)));
        let mut holders =
            phases.filter(|(share, phase)| hardware(share, *phase).iter().any(|n| n == resource)).peekable();
        holders.peek().is_some() && holders.all(|(share, phase)| self.operator(&operator(share, phase).to_string()))
    }
}

/// The key of a share's operator of a phase.
pub(crate) fn operator(share: &ScheduleShare, phase: Phase) -> &Key {
    &share.keys[phase]
}

/// The resources of a share's operator of a phase.
fn hardware(share: &ScheduleShare, phase: Phase) -> &[String] {
    let hardware = &share.hardware;
    [&hardware.batching, &hardware.transferring, &hardware.training][phase as usize]
}

/// Lanes by name: one for a resource that is exclusive to a phase, one for each worker and for training on shared cores.
#[derive(Debug, Default)]
struct Lanes {
    lanes: Vec<Lane>,
    indices: HashMap<String, usize>,
    simulated: Simulated,
    /// Whether a lane is a role of a device, whatever it holds.
    by_role: bool,
}

/// What a device with roles does in each phase.
const ROLES: [&str; 3] = ["sampling", "gathering", "training"];

impl Lanes {
    /// The lanes of a schedule, in the order of reading: workers, then the bus, then training.
    fn new(schedule: &Schedule, simulated: &Simulated) -> Self {
        let mut lanes = Self { simulated: simulated.clone(), ..Self::default() };
        for phase in Phase::ALL {
            for (i, share) in schedule.shares.iter().enumerate() {
                let workers = if phase == Phase::Batching { share.workers.max(1) } else { 1 };
                // A phase on several resources has no lane of its own.
                if hardware(share, phase).len() == 1 {
                    (0..workers).for_each(|worker| drop(lanes.of(schedule, i, phase, worker)));
                }
            }
        }
        lanes
    }

    /// The lanes of a device with roles: those that it has at some time.
    fn of_roles(schedule: &Schedule, simulated: &Simulated, has: [bool; 3]) -> Self {
        let mut lanes = Self { simulated: simulated.clone(), by_role: true, ..Self::default() };
        for phase in Phase::ALL.into_iter().filter(|phase| has[*phase as usize]) {
            lanes.of(schedule, 0, phase, 0);
        }
        lanes
    }

    fn of(&mut self, schedule: &Schedule, share: usize, phase: Phase, worker: usize) -> Vec<usize> {
        if self.by_role {
            let role = ROLES[phase as usize];
            let (lanes, next) = (&mut self.lanes, self.indices.len());
            let simulated = self.simulated.operator(&operator(&schedule.shares[share], phase).to_string());
            return vec![*self.indices.entry(role.to_string()).or_insert_with(|| {
                lanes.push(Lane { name: role.to_string(), resource: role.to_string(), simulated });
                next
            })];
        }
        let lane = |name: &String| {
            let shared = schedule.resources.iter().any(|r| r.name == *name && r.cores.is_some());
            let label = match phase {
                _ if !shared => name.clone(),
                Phase::Batching => format!("{name} worker {}", worker + 1),
                Phase::Transferring => format!("{name} transferring"),
                Phase::Training => format!("{name} training"),
            };
            let (lanes, next, simulated) = (&mut self.lanes, self.indices.len(), &self.simulated);
            *self.indices.entry(label.clone()).or_insert_with(|| {
                let simulated = simulated.resource(schedule, name);
                lanes.push(Lane { name: label, resource: name.clone(), simulated });
                next
            })
        };
        hardware(&schedule.shares[share], phase).iter().map(lane).collect()
    }

    /// The lane of all-reduces.
    fn of_all_reduces(&mut self) -> usize {
        let next = self.indices.len();
        *self.indices.entry(ALL_REDUCE.to_string()).or_insert_with(|| {
            self.lanes.push(Lane { name: ALL_REDUCE.to_string(), resource: ALL_REDUCE.to_string(), simulated: false });
            next
        })
    }
}

/// Name of the lane of all-reduces.
const ALL_REDUCE: &str = "all-reduce";

fn routes(schedule: &Schedule) -> Vec<String> {
    schedule.shares.iter().map(|s| s.keys.to_string()).collect()
}

/// The timeline of one epoch as the plan predicts it.
pub fn predicted_timeline(plan: &Plan, simulated: &Simulated) -> Timeline {
    let schedule = &plan.schedule;
    let simulation = timeline(schedule);
    let mut lanes = Lanes::new(schedule, simulated);
    let bars = simulation.activities.iter().map(|a| Bar {
        work: a.phase.into(),
        batch: a.id.index,
        epoch: 0,
        route: a.share,
        start: a.span.start,
        end: a.span.end,
        lanes: lanes.of(schedule, a.share, a.phase, a.worker),
    });
    let activities = bars.collect();
    let (lanes, routes) = (lanes.lanes, routes(schedule));
    Timeline { lanes, routes, activities, marks: Vec::new(), seconds: simulation.seconds }
}

/// The timeline of one epoch of devices with roles as it is predicted.
pub(crate) fn predicted_roles(factored: &Factored, simulated: &Simulated) -> Timeline {
    let mut recorder = Recorder::of_roles(factored, simulated);
    let timeline = factored.problem.timeline(&factored.roles.segments).expect("planned roles can be run");
    for activity in &timeline.activities {
        let (step, span) = (activity.step, activity.span);
        let phase = match step.work {
            RolesWork::Sampling => Phase::Batching,
            RolesWork::Gathering => Phase::Transferring,
            RolesWork::Training => Phase::Training,
            RolesWork::Switching => {
                recorder.observe(&Event::Switched(step.device, step.rank == step.device, span));
                continue;
            }
        };
        let id = BatchId { epoch: 0, index: step.batch as u32 };
        let activity = Activity { id, share: 0, phase, worker: 0, span };
        match step.device {
            0 => recorder.observe(&Event::Ended(activity)),
            device => recorder.observe(&Event::Followed(device, activity)),
        }
    }
    recorder.offset = timeline.seconds;
    recorder.into_timeline()
}

/// Maximum number of recorded activities: some 10 MB in memory, 30 MB of trace.
const MAX_ACTIVITIES: usize = 100_000;

/// Maximum number of activities of each of several ranks.
const MAX_OF_RANK: usize = 20_000;

/// Records the events of a run.
#[derive(Debug)]
pub struct Recorder {
    schedule: Schedule,
    lanes: Lanes,
    routes: Vec<String>,
    activities: Vec<Bar>,
    marks: Vec<Mark>,
    /// Start of the current epoch.
    offset: f64,
    /// Seconds of every operator's phases so far: sum and count.
    sums: HashMap<Key, (f64, usize)>,
    /// Maximum number of activities.
    most: usize,
    /// Number of activities beyond it.
    left_out: usize,
    /// Where several trainers share every step, their places, the leading one's first; and the recorders of the others.
    trainers: (Vec<String>, Vec<Recorder>),
    /// Remarks for readers of the timeline.
    pub(crate) notes: Vec<String>,
    epochs: usize,
}

impl Recorder {
    /// A recorder of a run that begins with `plan`.
    pub fn new(plan: &Plan, simulated: &Simulated) -> Self {
        Self {
            schedule: plan.schedule.clone(),
            lanes: Lanes::new(&plan.schedule, simulated),
            routes: routes(&plan.schedule),
            activities: Vec::new(),
            marks: Vec::new(),
            offset: 0.0,
            sums: HashMap::new(),
            most: MAX_ACTIVITIES,
            left_out: 0,
            trainers: Default::default(),
            notes: Vec::new(),
            epochs: 0,
        }
    }

    /// A recorder of a run of several trainers of this process: each has lanes of its own.
    pub fn of_group(unified: &Unified, simulated: &Simulated) -> Self {
        let recorder =
            |plan: &Plan| Self { most: MAX_ACTIVITIES / unified.trainers.len(), ..Self::new(plan, simulated) };
        let names = unified.trainers.iter().map(|trainer| trainer.place.to_string()).collect();
        let followers = unified.trainers[1..].iter().map(|trainer| recorder(&trainer.plan)).collect();
        Self { trainers: (names, followers), ..recorder(&unified.leading_plan()) }
    }

    /// A recorder of a run of devices with roles: each has a lane per role.
    pub(crate) fn of_roles(factored: &Factored, simulated: &Simulated) -> Self {
        let most = MAX_ACTIVITIES / factored.places.len();
        let recorder = |device: usize| {
            let lanes = Lanes::of_roles(&factored.plan.schedule, simulated, factored.roles_of(device));
            Self { lanes, most, ..Self::new(&factored.plan, simulated) }
        };
        let names = factored.places.iter().map(ToString::to_string).collect();
        let others = (1..factored.places.len()).map(recorder).collect();
        Self { trainers: (names, others), ..recorder(0) }
    }

    /// Number of activities that are not in the timeline.
    pub(crate) fn left_out(&self) -> usize {
        self.left_out + self.trainers.1.iter().map(|trainer| trainer.left_out).sum::<usize>()
    }

    /// Notes that the timeline begins where a run was resumed, `at` in words.
    pub(crate) fn resumed(&mut self, progress: &Progress, at: &str) {
        self.epochs = progress.epoch as usize;
        self.notes.push(format!("{at}: the timeline, and what operators measured, begin there"));
    }

    /// Records an event.
    pub fn observe(&mut self, event: &Event<'_>) {
        match event {
            Event::Begins(plan) => self.schedule.clone_from(&plan.schedule),
            Event::Ended(activity) => self.record(activity, self.offset),
            &Event::Followed(trainer, ref activity) => {
                if let Some(recorder) = self.trainers.1.get_mut(trainer - 1) {
                    recorder.record(activity, self.offset);
                }
            }
            &Event::Switched(device, trains, Span { start, end }) => {
                let place = self.trainers.0.get(device).map_or_else(|| device.to_string(), Clone::clone);
                let name = format!("{place} {}", if trains { "trains" } else { "samples" });
                self.marks.push(Mark { name, start: self.offset + start, end: self.offset + end });
            }
            &Event::Added(0, id, span) => self.added(id, span, self.offset),
            &Event::Added(trainer, id, span) => {
                if let Some(recorder) = self.trainers.1.get_mut(trainer - 1) {
                    recorder.added(id, span, self.offset);
                }
            }
            Event::Replanned(new) => {
                let now = self.activities.iter().map(|a| a.end).fold(self.offset, f64::max);
                self.marks.push(Mark { name: "re-planned".to_string(), start: now, end: now });
                self.notes.push(format!("epoch {}: {new}", self.epochs));
                self.schedule.clone_from(&new.plan.schedule);
            }
            Event::Epoch(row) => {
                self.epochs += 1;
                let start = self.offset + row.seconds;
                self.offset = start + row.evaluation_seconds;
                if row.evaluation_seconds > 0.0 {
                    self.marks.push(Mark { name: "evaluation".to_string(), start, end: self.offset });
                }
            }
            Event::Trained(_) | Event::Exported(..) | Event::Evaluating => {}
        }
    }

    fn record(&mut self, a: &Activity, offset: f64) {
        let share = &self.schedule.shares[a.share];
        let operator = operator(share, a.phase);
        match self.sums.get_mut(operator) {
            Some((sum, count)) => (*sum, *count) = (*sum + a.span.seconds(), *count + 1),
            None => drop(self.sums.insert(operator.clone(), (a.span.seconds(), 1))),
        }
        let route = share.keys.to_string();
        if self.is_full() {
            return;
        }
        let route = self.route(route);
        let lanes = self.lanes.of(&self.schedule, a.share, a.phase, a.worker);
        self.push(a.phase.into(), a.id, route, a.span, offset, lanes);
    }

    /// Records an all-reduce, which belongs to the first route: a group has one.
    fn added(&mut self, id: BatchId, span: Span, offset: f64) {
        if !self.is_full() {
            let lane = self.lanes.of_all_reduces();
            self.push(Work::AllReduce, id, 0, span, offset, vec![lane]);
        }
    }

    /// Whether there is no room for one more activity, which is then left out.
    fn is_full(&mut self) -> bool {
        let is_full = self.activities.len() >= self.most;
        self.left_out += usize::from(is_full);
        is_full
    }

    fn push(&mut self, work: Work, id: BatchId, route: usize, span: Span, offset: f64, lanes: Vec<usize>) {
        let BatchId { epoch, index: batch } = id;
        self.activities.push(Bar {
            work,
            batch,
            epoch,
            route,
            start: offset + span.start,
            end: offset + span.end,
            lanes,
        });
    }

    /// Mean seconds of an operator's phase, where it ran.
    pub fn mean(&self, operator: &Key) -> Option<f64> {
        let all = self.trainers.1.iter().chain([self]).filter_map(|recorder| recorder.sums.get(operator));
        let (sum, count) = all.fold((0.0, 0), |(sum, count), (own, times)| (sum + own, count + times));
        (count > 0).then(|| sum / count as f64)
    }

    /// The lanes and the activities, the first `MAX_OF_RANK` of them, for the timeline of all ranks.
    pub(crate) fn of_rank(&self) -> Timeline {
        self.first(MAX_OF_RANK)
    }

    /// The lanes, and the first activities.
    fn first(&self, most: usize) -> Timeline {
        let activities = self.activities[..self.activities.len().min(most)].to_vec();
        let (lanes, routes) = (self.lanes.lanes.clone(), self.routes.clone());
        Timeline { lanes, routes, activities, marks: Vec::new(), seconds: self.offset }
    }

    /// Makes the timeline that of all ranks or trainers, by name: each has its lanes. Every rank counts from the beginning of its
    /// own first epoch, which they begin together.
    pub(crate) fn join(&mut self, all: Vec<(String, Timeline)>) {
        (self.lanes.lanes, self.activities) = Default::default();
        for (name, timeline) in all {
            let first = self.lanes.lanes.len();
            let routes: Vec<usize> = timeline.routes.into_iter().map(|name| self.route(name)).collect();
            let named = timeline.lanes.into_iter().map(|lane| Lane { name: format!("{name}: {}", lane.name), ..lane });
            self.lanes.lanes.extend(named);
            self.activities.extend(timeline.activities.into_iter().map(|bar| Bar {
                route: routes[bar.route],
                lanes: bar.lanes.into_iter().map(|lane| first + lane).collect(),
                ..bar
            }));
        }
    }

    /// The index of a route.
    fn route(&mut self, name: String) -> usize {
        self.routes.iter().position(|r| *r == name).unwrap_or_else(|| {
            self.routes.push(name);
            self.routes.len() - 1
        })
    }

    /// The timeline of the run.
    pub fn into_timeline(mut self) -> Timeline {
        let (names, followers) = std::mem::take(&mut self.trainers);
        if !followers.is_empty() {
            let timelines = [&self].into_iter().chain(&followers).map(|recorder| recorder.first(recorder.most));
            let all = names.into_iter().zip(timelines).collect();
            self.join(all);
        }
        let Self { lanes, routes, activities, marks, offset, .. } = self;
        Timeline { lanes: lanes.lanes, routes, activities, marks, seconds: offset }
    }
}
