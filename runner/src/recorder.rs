//! Timelines of plans and of runs, for traces and reports.

use std::collections::{HashMap, HashSet};

use morphgl_plan::{Activity, Phase, Plan, Replanned, Schedule, timeline};
use morphgl_registry::Registry;
use morphgl_report::{Bar, Lane, Mark, Timeline};

/// The operators that run on a simulated device: what they took is called simulated wherever it is shown.
#[derive(Debug, Clone, Default)]
pub struct Simulated(HashSet<String>);

impl Simulated {
    /// Those of the operators that are registered.
    pub fn of(registry: &Registry) -> Self {
        let simulated = registry.status().into_iter().filter(|s| s.description.simulated);
        Self(simulated.map(|s| s.description.key.to_string()).collect())
    }

    /// Whether the operator with this key is simulated.
    pub fn operator(&self, key: &str) -> bool {
        self.0.contains(key)
    }

    /// Whether a schedule trains on a simulated device: then nothing is learned.
    pub fn trains(&self, schedule: &Schedule) -> bool {
        schedule.shares.iter().any(|s| self.operator(&s.keys.training))
    }

    /// Whether only simulated operators of the schedule hold the resource.
    pub fn resource(&self, schedule: &Schedule, resource: &str) -> bool {
        let mut held = schedule.shares.iter().flat_map(|s| {
            let (k, h) = (&s.keys, &s.hardware);
            [(&k.batching, &h.batching), (&k.transferring, &h.transferring), (&k.training, &h.training)]
        });
        held.clone().any(|(_, names)| names.iter().any(|n| n == resource))
            && held.all(|(key, names)| names.iter().all(|n| n != resource) || self.operator(key))
    }
}

/// Lanes by name: a resource that one phase holds at a time is one; workers and threads on cores have one each.
#[derive(Debug, Default)]
struct Lanes {
    lanes: Vec<Lane>,
    named: HashMap<String, usize>,
    simulated: Simulated,
}

impl Lanes {
    fn of(&mut self, schedule: &Schedule, share: usize, phase: Phase, worker: usize) -> Vec<usize> {
        let h = &schedule.shares[share].hardware;
        let (names, what) = match phase {
            Phase::Batching => (&h.batching, format!("worker {}", worker + 1)),
            Phase::Transferring => (&h.transferring, "transferring".to_string()),
            Phase::Training => (&h.training, "training".to_string()),
        };
        let lane = |name: &String| {
            let shared = schedule.resources.iter().any(|r| r.name == *name && r.cores.is_some());
            let label = if shared { format!("{name} {what}") } else { name.clone() };
            let (lanes, next, simulated) = (&mut self.lanes, self.named.len(), &self.simulated);
            *self.named.entry(label.clone()).or_insert_with(|| {
                let simulated = simulated.resource(schedule, name);
                lanes.push(Lane { name: label, resource: name.clone(), simulated });
                next
            })
        };
        names.iter().map(lane).collect()
    }

    /// Makes the lanes of a schedule in the order they are read: workers, then the bus, then who trains.
    fn all(&mut self, schedule: &Schedule) {
        for phase in Phase::ALL {
            for (i, share) in schedule.shares.iter().enumerate() {
                let workers = if phase == Phase::Batching { share.workers.max(1) } else { 1 };
                // A phase on several resources at once brings no lane of its own.
                let several = |names: &[String]| names.len() > 1;
                let h = &share.hardware;
                let names = [&h.batching, &h.transferring, &h.training][phase as usize];
                if !several(names) {
                    (0..workers).for_each(|worker| drop(self.of(schedule, i, phase, worker)));
                }
            }
        }
    }
}

fn routes(schedule: &Schedule) -> Vec<String> {
    schedule.shares.iter().map(|s| s.keys.to_string()).collect()
}

/// The timeline of one epoch as the plan predicts it.
pub fn predicted_timeline(plan: &Plan, simulated: &Simulated) -> Timeline {
    let schedule = &plan.schedule;
    let simulation = timeline(schedule);
    let mut lanes = Lanes { simulated: simulated.clone(), ..Lanes::default() };
    lanes.all(schedule);
    let activities = simulation.activities.iter().map(|a| Bar {
        phase: a.phase,
        batch: a.id.index,
        epoch: 0,
        route: a.share,
        start: a.span.start,
        end: a.span.end,
        lanes: lanes.of(schedule, a.share, a.phase, a.worker),
    });
    let activities = activities.collect();
    Timeline {
        lanes: lanes.lanes,
        routes: routes(schedule),
        activities,
        marks: Vec::new(),
        seconds: simulation.seconds,
    }
}

/// A new plan and why it is one, in a line.
pub(crate) fn in_words(new: &Replanned) -> String {
    let why: Vec<String> = new.changed.iter().map(ToString::to_string).collect();
    format!("planned again: {}; {}", why.join(", "), new.plan.schedule)
}

/// Activities a recorder keeps: some 100 MB.
const MOST: usize = 1_000_000;

/// Records what a run did.
#[derive(Debug)]
pub struct Recorder {
    schedule: Schedule,
    lanes: Lanes,
    routes: Vec<String>,
    activities: Vec<Bar>,
    marks: Vec<Mark>,
    /// Where the epoch under way begins.
    offset: f64,
    /// Seconds of every operator's phases so far: sum and count.
    sums: HashMap<String, (f64, usize)>,
    left_out: usize,
    notes: Vec<String>,
    epochs: usize,
}

impl Recorder {
    /// A recorder of a run that begins with `plan`.
    pub fn new(plan: &Plan, simulated: &Simulated) -> Self {
        let mut lanes = Lanes { simulated: simulated.clone(), ..Lanes::default() };
        lanes.all(&plan.schedule);
        Self {
            schedule: plan.schedule.clone(),
            lanes,
            routes: routes(&plan.schedule),
            activities: Vec::new(),
            marks: Vec::new(),
            offset: 0.0,
            sums: HashMap::new(),
            left_out: 0,
            notes: Vec::new(),
            epochs: 0,
        }
    }

    /// A phase of a mini-batch ended.
    pub fn activity(&mut self, a: &Activity) {
        let keys = &self.schedule.shares[a.share].keys;
        let operator = [&keys.batching, &keys.transferring, &keys.training][a.phase as usize];
        match self.sums.get_mut(operator) {
            Some((sum, count)) => (*sum, *count) = (*sum + a.span.seconds(), *count + 1),
            None => drop(self.sums.insert(operator.clone(), (a.span.seconds(), 1))),
        }
        if self.activities.len() == MOST {
            self.left_out += 1;
            return;
        }
        let name = keys.to_string();
        let route = self.routes.iter().position(|r| *r == name).unwrap_or_else(|| {
            self.routes.push(name);
            self.routes.len() - 1
        });
        self.activities.push(Bar {
            phase: a.phase,
            batch: a.id.index,
            epoch: a.id.epoch,
            route,
            start: self.offset + a.span.start,
            end: self.offset + a.span.end,
            lanes: self.lanes.of(&self.schedule, a.share, a.phase, a.worker),
        });
    }

    /// What is left of the epoch is run by a new plan.
    pub fn replanned(&mut self, new: &Replanned) {
        let at = self.activities.iter().map(|a| a.end).fold(self.offset, f64::max);
        self.marks.push(Mark { name: "re-planned".to_string(), start: at, end: at });
        self.notes.push(format!("epoch {}: {}", self.epochs, in_words(new)));
        self.schedule = new.plan.schedule.clone();
    }

    /// A new epoch is run by this plan.
    pub fn planned(&mut self, plan: &Plan) {
        self.schedule = plan.schedule.clone();
    }

    /// An epoch ended, and its evaluation.
    pub fn epoch(&mut self, seconds: f64, evaluation_seconds: f64) {
        self.epochs += 1;
        let end = self.offset + seconds;
        self.offset = end + evaluation_seconds;
        if evaluation_seconds > 0.0 {
            self.marks.push(Mark { name: "evaluation".to_string(), start: end, end: self.offset });
        }
    }

    /// Mean seconds of an operator's phase, where it ran.
    pub fn mean(&self, operator: &str) -> Option<f64> {
        self.sums.get(operator).map(|(sum, count)| sum / *count as f64)
    }

    /// What a reader of the timeline should know.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Activities that were not kept, as there were too many.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// The timeline of the run.
    pub fn into_timeline(self) -> Timeline {
        let Self { lanes, routes, activities, marks, offset, .. } = self;
        Timeline { lanes: lanes.lanes, routes, activities, marks, seconds: offset }
    }
}
