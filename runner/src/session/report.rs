//! Contents of reports.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use indicatif::HumanCount;
use morphgl_graph_store::Dataset;
use morphgl_model_core::{ScoreKind, Task};
use morphgl_plan::{Phase, Plan, Plans, Problem, Time};
use morphgl_platform::SimdLevel;
use morphgl_profile::{CandidateProfile, Outcome};
use morphgl_registry::{CACHE_HITS, CACHE_REQUESTS, CounterSpec};
use morphgl_report::{
    Baseline, Cache, ConfusionMatrix, Counted, Epoch, LineChart, Memory, MemoryUse, OperatorSeconds, Report, Series,
    Timeline, TrainingCandidate, Utilisation, WhatIf, Work,
};

use morphgl_sim::MachineDescription;

use super::modes::Mode;
use super::trainers::{self, TrainerPart};
use super::what_if::{self, Changed};
use crate::recorder::predicted_roles;
use crate::{
    EpochRow, Executor, Factored, LinkUse, Profile, Recorder, Selection, Simulated, TrainReport, Unified,
    predicted_timeline, recorder, words,
};

fn baselines(plans: &Plans, chosen: &Plan) -> Vec<Baseline> {
    let baseline = |plan: &Plan| {
        let p = &plan.prediction;
        Baseline {
            policy: plan.strategy.to_string(),
            plan: plans.describe(plan),
            seconds: p.epoch_seconds,
            ratio: Some(p.ratio()),
            bottleneck: p.bottleneck.to_string(),
            utilisation: p.utilisation.iter().map(|u| (u.resource.clone(), u.share)).collect(),
            chosen: plan == chosen,
        }
    };
    plans.all().iter().map(baseline).collect()
}

fn what_if(rows: &[Changed]) -> Vec<WhatIf> {
    let row = |c: &Changed| WhatIf {
        change: c.change.replace('*', " × ").replace(',', ", "),
        seconds: c.plan.prediction.epoch_seconds,
        speed_up: c.speed_up,
        bottleneck: c.plan.prediction.bottleneck.to_string(),
        plan: c.plan.schedule.to_string(),
    };
    rows.iter().map(row).collect()
}

fn machine(profile: &Profile) -> Vec<(String, String)> {
    let m = &profile.machine;
    let mut rows = vec![
        ("MorphGL".to_string(), env!("CARGO_PKG_VERSION").to_string()),
        ("SIMD level".to_string(), SimdLevel::current().name().to_string()),
        ("CPU".to_string(), m.cpu.clone()),
        ("cores".to_string(), m.cores.to_string()),
        ("memory".to_string(), words::bytes(m.memory_bytes)),
    ];
    rows.extend(m.accelerators.iter().map(|a| (a.place.to_string(), a.name.clone())));
    rows
}

/// The training operators that were compared before planning.
fn candidates(profile: &Profile) -> Vec<TrainingCandidate> {
    let row = |s: &Selection, c: &CandidateProfile| TrainingCandidate {
        operator: c.training.to_string(),
        place: s.place.to_string(),
        chosen: c.outcome == Outcome::Chosen,
        outcome: c.in_words(),
        steps: c.steps(),
        seconds: c.typical(),
        range: c.range(),
    };
    profile.selections.iter().flat_map(|s| s.candidates.iter().map(move |c| row(s, c))).collect()
}

/// Planned and measured seconds of each operator of the plan.
fn operators(plan: &Plan, recorder: Option<&Recorder>, simulated: &Simulated) -> Vec<OperatorSeconds> {
    let mut rows: Vec<OperatorSeconds> = Vec::new();
    for share in &plan.schedule.shares {
        for (phase, seconds) in Phase::ALL.into_iter().zip([share.batching, share.transferring, share.training]) {
            let key = recorder::operator(share, phase);
            let operator = key.to_string();
            if rows.iter().all(|r| r.operator != operator) {
                rows.push(OperatorSeconds {
                    phase,
                    simulated: simulated.operator(&operator),
                    operator,
                    profiled: Some(seconds.mean),
                    deviation: Some(seconds.std),
                    measured: recorder.and_then(|r| r.mean(key)),
                });
            }
        }
    }
    rows
}

fn common(profile: Option<&Profile>, plans: &Plans, plan: &Plan, rows: &[Changed], simulated: &Simulated) -> Report {
    let p = &plan.prediction;
    let utilisation = p.utilisation.iter().map(|u| Utilisation {
        resource: u.resource.clone(),
        simulated: simulated.resource(&plan.schedule, &u.resource),
        predicted: Some(u.share),
        measured: None,
    });
    let arguments: Vec<String> = std::env::args_os().skip(1).map(|a| shell_word(&a.to_string_lossy())).collect();
    Report {
        created: utc(SystemTime::now()),
        command: format!("morphgl {}", arguments.join(" ")),
        plan: plans.describe(plan),
        predicted_seconds: Some(p.epoch_seconds),
        bound_seconds: Some(p.bound_seconds),
        bottleneck: Some(p.bottleneck.resource.clone()),
        bottleneck_phase: Some(p.bottleneck.phase),
        utilisation: utilisation.collect(),
        operators: operators(plan, None, simulated),
        candidates: profile.map(candidates).unwrap_or_default(),
        baselines: baselines(plans, plan),
        what_if: what_if(rows),
        machine: profile.map(machine).unwrap_or_default(),
        predicted: Some(predicted_timeline(plan, simulated)),
        ..Report::default()
    }
}

/// An argument as a word of the shell, in quotes where it has to be.
fn shell_word(argument: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_=+,.:/@%".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        return argument.to_string();
    }
    format!("'{}'", argument.replace('\'', r"'\''"))
}

/// A time in words, to the minute: `2026-11-27 04:15 UTC`.
fn utc(time: SystemTime) -> String {
    let minutes = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 60);
    let (days, minute) = (minutes / 1440, minutes % 1440);
    // Years that begin in March: the leap day is the last one, and months have the same lengths in each (Richards, 2013).
    let day = days + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year + 400 * era + carry;
    format!("{year:04}-{month:02}-{of_month:02} {:02}:{:02} UTC", minute / 60, minute % 60)
}

/// Names and sizes of a dataset.
fn dataset(dataset: &Dataset) -> Vec<(String, String)> {
    let count = |n: u64| HumanCount(n).to_string();
    let splits =
        [&dataset.splits.train, &dataset.splits.valid, &dataset.splits.test].map(|split| count(split.len() as u64));
    let features = match &dataset.features {
        Some(features) => format!("{} x {}", features.dim(), features.dtype()),
        None => words::features(dataset),
    };
    let rows = dataset.task_rows.iter().map(|rows| ("rows of the task", count(rows.len() as u64)));
    [
        ("name", dataset.name.clone()),
        ("nodes", count(dataset.num_nodes() as u64)),
        ("edges", count(dataset.topology.num_edges())),
        ("features", features),
        ("classes", count(dataset.num_classes as u64)),
        ("train, valid, test", splits.join(", ")),
    ]
    .into_iter()
    .chain(rows)
    .map(|(name, value)| (name.to_string(), value))
    .collect()
}

/// The report of a plan alone, on this machine or on one that is described.
pub(crate) fn of_plan(
    profile: Option<&Profile>,
    plans: &Plans,
    rows: &[Changed],
    simulated: &Simulated,
    machine: Option<&MachineDescription>,
    (unified, factored): (Option<&Unified>, Option<&Factored>),
) -> Report {
    let best = plans.chosen();
    let mut page = Report {
        simulated: machine.is_some(),
        title: format!("Plan of {} mini-batches", best.num_batches()),
        summary: match profile {
            _ if let Some(machine) = machine => format!(
                "Predicted for the simulated machine {}: {}. Durations are computed from its description (docs/machines.md); nothing was measured or trained.",
                machine.name, machine.summary
            ),
            Some(_) => "Predicted from durations measured on this machine; nothing was trained.".to_string(),
            None => "Predicted from durations given by hand; nothing was measured or trained.".to_string(),
        },
        ..common(profile, plans, best, rows, simulated)
    };
    page.notes.extend(words::passed_over(plans));
    if machine.is_some() {
        page.notes.extend(STRATEGIES.map(|(name, what)| format!("{name}: {what}")));
    }
    if let Some(unified) = unified.filter(|unified| unified.trainers.len() > 1) {
        page.baselines.push(Baseline {
            policy: "unified".to_string(),
            plan: words::plural(unified.trainers.len() as u64, "trainer") + ", each with a share of every mini-batch",
            seconds: unified.epoch_seconds,
            ..Baseline::default()
        });
        page.utilisation.extend(unified.links.iter().map(|link| of_link(link, machine.is_some(), None)));
        page.notes.push(in_words(unified, best));
    }
    page.notes.extend(unified.iter().flat_map(|u| u.to_string().lines().skip(1).map(String::from).collect::<Vec<_>>()));
    if let Some(factored) = factored {
        let (train, stay) = factored.trainers();
        let (samplers, turns) = (factored.places.len() - train.len(), train.len() - stay.len());
        let turns = if turns > 0 { format!(", {turns} in turn") } else { String::new() };
        page.baselines.push(Baseline {
            policy: "factored".to_string(),
            plan: format!(
                "{} and {}{turns}",
                words::plural(stay.len() as u64, "trainer"),
                words::plural(samplers as u64, "sampler")
            ),
            seconds: factored.epoch_seconds(),
            ratio: Some(factored.plan.prediction.ratio()),
            bottleneck: factored.plan.prediction.bottleneck.to_string(),
            ..Baseline::default()
        });
        page.notes.extend(factored.to_string().lines().map(String::from));
        let other = unified.map_or(f64::INFINITY, |unified| unified.epoch_seconds).min(best.prediction.epoch_seconds);
        if factored.epoch_seconds() < other {
            let predicted = predicted_roles(factored, simulated);
            page.notes.push(
                "The timeline and the queue are those of the factored plan, which morphgl train takes.".to_string(),
            );
            page.queue = queue(&[("predicted", &predicted)]);
            page.predicted = Some(predicted);
        }
    }
    page
}

/// What the plans of a page are, for readers who have not planned before.
const STRATEGIES: [(&str, &str); 7] = [
    ("sequential", "one mini-batch after the other is sampled, moved to where it is trained, and trained"),
    ("pipeline", "cores sample the next mini-batches while the ones before are moved and trained"),
    ("device", "the device samples, gathers and trains by itself; the cores have nothing to do"),
    ("paper", "mini-batches are divided between cores and device, by the formula and the buffers of the MorphGL paper"),
    (
        "interleaved",
        "mini-batches are divided between cores and device, in the order that the simulator finds shortest",
    ),
    ("unified", "all devices, and the cores where that pays, train on a share of every mini-batch"),
    ("factored", "some devices sample, the others gather features and train, each on a share of every mini-batch"),
];

/// A link that trainers share, among the resources.
fn of_link(link: &LinkUse, simulated: bool, measured: Option<f64>) -> Utilisation {
    Utilisation { resource: link.label(), simulated, predicted: Some(link.share), measured }
}

/// The length of the global queue over an epoch of devices with roles, the first one of each timeline; `None` where nothing is
/// recorded.
fn queue(timelines: &[(&str, &Timeline)]) -> Option<LineChart> {
    let longest = timelines.iter().map(|(_, timeline)| timeline.seconds).fold(0.0, f64::max);
    let (unit, per_second) = [("seconds", 1.0), ("milliseconds", 1e3)]
        .into_iter()
        .find(|(_, n)| n * longest >= 20.0)
        .unwrap_or(("microseconds", 1e6));
    let series = |(name, timeline): &(&str, &Timeline)| {
        let first = timeline.activities.iter().map(|bar| bar.epoch).min()?;
        let bars = timeline.activities.iter().filter(|bar| bar.epoch == first);
        // When the first share of each mini-batch began to be sampled, and the last one to be gathered.
        let mut spans: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
        for bar in bars {
            let (begun, taken) = spans.entry(bar.batch).or_insert((f64::INFINITY, f64::NEG_INFINITY));
            match bar.work {
                Work::Batching => *begun = begun.min(bar.start),
                Work::Transferring => *taken = taken.max(bar.start),
                Work::Training | Work::AllReduce => {}
            }
        }
        spans.retain(|_, (begun, taken)| begun.is_finite() && taken.is_finite());
        let mut changes: Vec<(f64, f64)> =
            spans.values().flat_map(|&(begun, taken)| [(begun, 1.0), (taken, -1.0)]).collect();
        // Of changes at once, those that make it shorter come first: a place is taken when it is free.
        changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let start = changes.first()?.0;
        let (mut points, mut length) = (Vec::new(), 0.0);
        for (time, change) in changes {
            points.push(((time - start) * per_second, length));
            length += change;
            points.push(((time - start) * per_second, length));
        }
        Some(Series { name: name.to_string(), style: name.to_string(), points })
    };
    let series: Vec<Series> = timelines.iter().filter_map(series).collect();
    (!series.is_empty()).then(|| LineChart {
        title: "mini-batches in the queue".to_string(),
        x_name: format!("{unit} of the first epoch"),
        from_zero: true,
        series,
        ..LineChart::default()
    })
}

/// How a group compares with the best plan of one trainer, which the page is about.
fn in_words(unified: &Unified, best: &Plan) -> String {
    let (together, alone) = (unified.epoch_seconds, best.prediction.epoch_seconds);
    let chosen = if unified.is_chosen_over(best) { "morphgl train takes them" } else { "morphgl train takes one" };
    format!(
        "All else on this page is about one trainer. {} together, which share every mini-batch and add up gradients in {} per step, are \
         predicted to take {} per epoch, {:.2} times as fast as one: {chosen}.",
        words::plural(unified.trainers.len() as u64, "trainer"),
        Time(unified.all_reduce_seconds),
        Time(together),
        alone / together
    )
}

/// Inputs of a run's report.
pub(crate) struct Run<'a> {
    pub(crate) title: String,
    /// What the mean loss is of; empty where the training operator alone knows.
    pub(crate) loss: String,
    /// What the best model is chosen by.
    pub(crate) score: ScoreKind,
    pub(crate) task: Task,
    /// Names of the classes, where the dataset has them.
    pub(crate) class_names: Option<&'a [String]>,
    pub(crate) dataset: &'a Dataset,
    pub(crate) profile: &'a Profile,
    pub(crate) problem: &'a Problem,
    pub(crate) plans: &'a Plans,
    pub(crate) plan: &'a Plan,
    pub(crate) report: &'a TrainReport,
    pub(crate) configuration: Vec<(String, String)>,
    /// Memory of the program besides the plan's buffers.
    pub(crate) held_bytes: u64,
    /// Host memory in bytes that the whole program may use, `None` without a limit.
    pub(crate) memory: Option<u64>,
    pub(crate) simulated: &'a Simulated,
    /// Peak memory of the process, in bytes.
    pub(crate) peak: u64,
    /// Where several trainers of this process shared every step.
    pub(crate) trainers: &'a [TrainerPart],
    /// The mode of training.
    pub(crate) mode: &'a dyn Mode,
    pub(crate) executor: &'a Executor,
}

/// The report of a run.
pub(crate) fn of_run(run: Run<'_>, recorder: Recorder) -> Report {
    let rows = what_if::changed(run.problem, run.plan, &what_if::each_twice(run.problem)).unwrap_or_default();
    let mut page = common(Some(run.profile), run.plans, run.plan, &rows, run.simulated);
    page.title = run.title;
    page.loss = run.loss;
    page.score = (!run.score.is_of_sums()).then(|| run.score.to_string());
    page.dataset = dataset(run.dataset);
    page.summary = format!(
        "{} nodes, {} edges, {}, {} classes.",
        HumanCount(run.dataset.num_nodes() as u64),
        HumanCount(run.dataset.topology.num_edges()),
        words::features(run.dataset),
        run.dataset.num_classes
    );
    page.operators = operators(run.plan, Some(&recorder), run.simulated);
    page.configuration = run.configuration;
    page.notes.clone_from(&recorder.notes);
    if recorder.left_out() > 0 {
        let left_out = HumanCount(recorder.left_out() as u64);
        page.notes.push(format!("{left_out} phases of late mini-batches are not in the timeline"));
    }
    // A simulated trainer has neither loss nor accuracy.
    let accurate = run.task != Task::Regress;
    let learned = !run.simulated.trains(&run.plan.schedule);
    let epoch = |e: &EpochRow| Epoch {
        epoch: e.epoch,
        seconds: Some(e.seconds),
        predicted_seconds: Some(e.predicted_seconds),
        loss: Some(e.loss).filter(|l| learned && l.is_finite()),
        valid_loss: e.valid_loss,
        train_accuracy: Some(e.train_accuracy).filter(|a| learned && accurate && a.is_finite()),
        valid_accuracy: e.valid_accuracy.filter(|_| accurate),
        valid_score: e.valid_score,
        event: match (e.replanned, e.report.stopped) {
            (0, false) => String::new(),
            (0, true) => "interrupted".to_string(),
            _ => "re-planned".to_string(),
        },
    };
    page.epochs = run.report.epochs.iter().map(epoch).collect();
    page.trainers = trainers::rows(run.trainers, run.simulated);
    page.imbalance_seconds = run.trainers.first().map(|part| part.imbalance_seconds_per_epoch);
    page.test_accuracy = run.report.test.map(|t| t.sums.accuracy()).filter(|_| accurate);
    page.test_score = run.report.test.and_then(|t| t.value);
    page.best_epoch = run.report.best.as_ref().map(|best| best.epoch);
    page.best_valid_accuracy = run.report.best.as_ref().map(|b| b.valid.sums.accuracy()).filter(|_| accurate);
    page.best_valid_score = run.report.best.as_ref().and_then(|b| b.valid.value);
    let confusion = run.report.best.as_ref().and_then(|best| Some((best.confusion.as_ref()?, best.test.is_some())));
    page.confusion = confusion.filter(|_| learned).map(|(confusion, of_test)| ConfusionMatrix {
        nodes: if of_test { "test" } else { "validation" }.to_string(),
        classes: match run.class_names {
            Some(names) if names.len() == confusion.rows().len() => names.to_vec(),
            _ => (0..confusion.rows().len()).map(|class| class.to_string()).collect(),
        },
        rows: confusion.rows().map(<[u64]>::to_vec).collect(),
    });
    page.measured_seconds = run.report.median_epoch_seconds();
    let seconds: f64 = run.report.epochs.iter().map(|e| e.seconds).sum();
    for used in &mut page.utilisation {
        let busy_seconds = |e: &EpochRow| {
            let resource = e.report.resources.iter().find(|r| r.resource == used.resource);
            resource.map(|r| r.share * e.seconds)
        };
        let busy: f64 = run.report.epochs.iter().filter_map(busy_seconds).sum();
        used.measured = (seconds > 0.0).then_some(busy / seconds);
    }
    let used = |what: &str, bytes: u64| MemoryUse { what: what.to_string(), bytes };
    let mut uses = vec![
        used("dataset, model, program", run.held_bytes),
        used("caches", run.plan.memory.caches),
        used("buffers and workers, at most", run.plan.memory.host),
        run.mode.held().map_or(used("", 0), |(what, bytes)| used(what, bytes)),
    ];
    // A dataset in memory needs no cache.
    uses.retain(|used| used.bytes > 0);
    page.memory =
        vec![Memory { place: "Host".to_string(), simulated: false, budget: run.memory, peak: Some(run.peak), uses }];
    page.staleness = run.mode.staleness(run.executor);
    page.notes.extend(run.mode.notes(run.executor));
    for (operator, counters) in &run.report.counters() {
        let simulated = run.simulated.operator(operator);
        let counted = counters.iter().map(|(counter, &amount)| Counted {
            operator: operator.clone(),
            counter: counter.clone(),
            amount,
            simulated,
        });
        page.counters.extend(counted);
        let amount = |spec: &CounterSpec| counters.get(spec.name).filter(|n| **n > 0).map(|n| *n as f64);
        if let Some(requests) = amount(&CACHE_REQUESTS) {
            let measured_hits = Some(amount(&CACHE_HITS).unwrap_or(0.0) / requests);
            page.caches.push(Cache { name: operator.clone(), measured_hits, ..Cache::default() });
        }
    }
    let is_whole = recorder.left_out() == 0;
    let measured = recorder.into_timeline();
    let simulated = run.simulated.trains(&run.plan.schedule);
    page.utilisation.extend(run.mode.links().iter().map(|link| {
        let executed = if is_whole { link.executed(&measured) } else { None };
        of_link(link, simulated, executed)
    }));
    let predicted = run.mode.predicted(run.simulated);
    if run.mode.has_roles() {
        page.queue = queue(&[("predicted", &predicted), ("measured", &measured)]);
    }
    (page.predicted, page.measured) = (Some(predicted), Some(measured));
    page
}

#[cfg(test)]
mod tests;
