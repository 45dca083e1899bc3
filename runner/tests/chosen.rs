//! A job keeps the faster training operator, and makes mini-batches in its form; an executor leaves a plan whose epochs take too long.
#![cfg(feature = "cpu")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use morphgl::{
    Event, Executor, ExecutorSettings, Job, JobConfig, ModelKind, ModelSpec, OperatorChoice, OptimizerSpec, Policy,
    Problem, RunContext, Stop, TrainOptions, Trainer, TrainingSpec, default_dataset,
};
use morphgl_conformance::fake::Fake;
use morphgl_generate::{SbmConfig, sbm};
use morphgl_graph_store::Dataset;
use morphgl_plan::{Bytes, Candidate, Durations, Hardware as Phases, Resource, RouteKeys};
use morphgl_profile::{Outcome, Selection, Settings, Watch};
use morphgl_registry::{
    At, BatchId, Build, Description, Error, Handle, Hardware, Key, Phase, Pick, SamplerSettings, submit,
};

/// Milliseconds of a step; real operators need some milliseconds.
static MILLIS: AtomicU64 = AtomicU64::new(0);

const KEY: Key = Key::new(Phase::Training, Hardware::CPU, "Asleep");
const NATIVE: &str = "Training_CPU_Native";

submit! {
    Description::new(KEY, "sleeps", At::Host, At::Host, Build::Training(|_| Ok(Box::new(asleep())))).as_reference()
}

/// Learns nothing; a step takes [`MILLIS`].
fn asleep() -> Fake {
    let mut fake = Fake::new(&KEY.to_string(), &Arc::default());
    fake.takes(|call| {
        assert!(call.batch.features.is_some(), "it does not read the store");
        MILLIS.load(Ordering::SeqCst) as f64
    });
    fake
}

/// Has a model of its own, and is here given none.
const ASIDE: Key = Key::new(Phase::Training, Hardware::CPU, "Aside");

submit! {
    Description::new(ASIDE, "trains a model of its own", At::Host, At::Host, Build::Training(|_| {
        Err(Error::setting(ASIDE, "it was given no model; give it one"))
    }))
    .with_own_model()
}

fn job(dataset: &Arc<Dataset>, width: usize, training: Option<&str>) -> Job {
    let kind = ModelKind::Sage;
    let model =
        ModelSpec { hidden: width, layers: 2, ..ModelSpec::new(kind, dataset.feature_dim(), dataset.num_classes) };
    let mut config = JobConfig::new(TrainingSpec { model, optimizer: OptimizerSpec::default() });
    config.threads = Some(1);
    config.operators =
        OperatorChoice { training: training.map(|t| t.parse().expect("a key")), ..OperatorChoice::default() };
    Job::new(&RunContext::new().expect("no key twice"), Arc::clone(dataset), config).expect("operators")
}

/// The only selection of a job.
fn select(job: &mut Job) -> Selection {
    job.select(&Settings::new(1), &Watch::NONE, &mut |_| ()).expect("nothing fails");
    let [selection] = job.selections() else { panic!("one place: {:?}", job.selections()) };
    selection.clone()
}

fn outcome(selection: &Selection, key: &str) -> (Outcome, usize) {
    let candidate = selection.candidates.iter().find(|c| c.training.to_string() == key).expect("a candidate");
    (candidate.outcome, candidate.steps())
}

/// Whether the mini-batches of a job's only route carry features, and its training operator.
fn form(job: &mut Job) -> (bool, String) {
    let operators = job.operators_mut();
    let ([route], [trainer]) = (&operators.routes[..], &operators.trainers[..]) else { panic!("{operators:?}") };
    let mut worker = route.batching.worker(1).expect("a worker");
    let (batch, _) = worker.prepare(BatchId { epoch: 0, index: 0 }, None).and_then(Handle::wait).expect("a mini-batch");
    (batch.host().expect("on the host").features.is_some(), trainer.key.to_string())
}

/// A single test, because of the global `MILLIS`.
#[test]
fn the_faster_operator_is_kept_in_its_own_form() {
    // Half a second per step against some milliseconds, on the busiest machine.
    let small = Arc::new(sbm(&SbmConfig { nodes: 600, classes: 3, ..SbmConfig::default() }).expect("a graph"));
    MILLIS.store(500, Ordering::SeqCst);
    let mut slow = job(&small, 8, None);
    let selection = select(&mut slow);
    assert_eq!(outcome(&selection, "Training_CPU_Asleep"), (Outcome::Abandoned, 1), "{selection}");
    assert_ne!(selection.chosen, KEY);
    let (features, key) = form(&mut slow);
    assert_eq!((features, &key), (key != NATIVE, &selection.chosen.to_string()));

    // No time against steps of a wide model on one thread.
    let large = Arc::new(default_dataset());
    MILLIS.store(0, Ordering::SeqCst);
    let mut quick = job(&large, 256, None);
    let selection = select(&mut quick);
    assert_eq!(selection.chosen, KEY, "{selection}");
    assert_ne!(outcome(&selection, NATIVE).0, Outcome::Chosen);
    assert_eq!(form(&mut quick), (true, KEY.to_string()));
    // Its state is what it was before the comparison.
    let operators = quick.operators_mut();
    let state = operators.trainers[0].operator.optimizer_state().expect("it has one");
    assert_eq!(state[0].values, [0.0]);

    // An operator chosen by name is not compared; mini-batches have its form.
    for (key, features) in [(NATIVE, false), ("Training_CPU_Asleep", true)] {
        let mut named = job(&small, 8, Some(key));
        named.select(&Settings::new(1), &Watch::NONE, &mut |_| ()).expect("nothing fails");
        assert!(named.selections().is_empty());
        assert_eq!(form(&mut named), (features, key.to_string()));
    }
}

/// A training operator with a model of its own is no candidate for another one: it is not even asked, and does not hide what the
/// others say.
#[test]
fn an_operator_with_a_model_of_its_own_is_asked_for_that_alone() {
    let small = Arc::new(sbm(&SbmConfig { nodes: 600, classes: 3, ..SbmConfig::default() }).expect("a graph"));
    let refusal = |kind: ModelKind, weighted: bool| {
        let model = ModelSpec { layers: 3, ..ModelSpec::new(kind, small.feature_dim(), small.num_classes) };
        let mut config = JobConfig::new(TrainingSpec { model, optimizer: OptimizerSpec::default() });
        config.sampler = SamplerSettings::default();
        if let Some(hops) = config.sampler.sampling.hops_mut().filter(|_| weighted) {
            hops.pick = Pick::Weighted;
        }
        Job::new(&RunContext::new().expect("no key twice"), Arc::clone(&small), config)
            .err()
            .map(|error| format!("{error:#}"))
    };
    let weighted = refusal(ModelKind::Sage, true).expect("the graph has no weights");
    assert!(weighted.contains("no edge weights; pick uniformly"), "{weighted}");
    let custom = refusal(ModelKind::Custom, false).expect("there is no model");
    assert_eq!(custom, "Training_CPU_Aside: it was given no model; give it one");
    assert_eq!(refusal(ModelKind::Sage, false), None);
}

/// The planning problem of a job's only route, all on one core, which promises phases of a nanosecond.
fn promising(job: &mut Job) -> Problem {
    let cpu = || vec!["CPU".to_string()];
    let candidate = Candidate {
        keys: RouteKeys::from(&job.operators_mut().routes[0].route),
        hardware: Phases { batching: cpu(), transferring: cpu(), training: cpu() },
        in_place: true,
        on_host: true,
        durations: Durations::constant(1, 1e-9, 1e-9, 1e-9).expect("valid"),
        bytes: Bytes::default(),
    };
    let batches = job.operators_mut().routes[0].batching.num_batches();
    Problem::new(batches, vec![Resource::shared("CPU", 1)], vec![candidate]).expect("valid")
}

#[test]
fn a_plan_whose_epochs_take_longer_than_another_promises_is_left() {
    // A single mini-batch: within an epoch there is nothing to judge.
    let small = Arc::new(sbm(&SbmConfig { nodes: 600, classes: 3, ..SbmConfig::default() }).expect("a graph"));
    let mut first = job(&small, 8, Some(NATIVE));
    let problem = promising(&mut first);
    let plans = morphgl_plan::plan(&problem).expect("it fits");
    let policies: Vec<Policy> = plans.all().iter().map(|plan| plan.schedule.policy).collect();
    assert!(policies.contains(&Policy::Sequential) && policies.contains(&Policy::Pipeline), "{plans}");

    let new = |job| Executor::new(job, plans.best(), Some(problem.clone()), ExecutorSettings::default());
    let options = TrainOptions::epochs(5);
    let mut trainer = Trainer { executor: new(first).expect("the plan's operators"), options };
    let (mut ran, mut reasons) = (Vec::new(), Vec::new());
    let report = trainer.train(&Stop::new(), &mut |event| match event {
        Event::Begins(plan) => ran.push(plan.schedule.policy),
        Event::Replanned(new) => reasons.push((ran.len(), new.to_string())),
        _ => {}
    });
    let rows = report.expect("nothing fails").epochs;
    let [one, other] = [ran[0], ran[2]];
    assert_ne!(one, other);
    assert_eq!(ran[..4], [one, one, other, other]);
    assert_eq!(reasons[0].0, 2, "{reasons:?}");
    assert!(reasons[0].1.contains("times as long as planned; "), "{reasons:?}");
    // The prediction of an epoch is scaled by the pace of its routes, once two epochs are known.
    assert!(rows[1].predicted_seconds < 1e-6 && rows[4].predicted_seconds > 1e-6, "{rows:?}");

    // What epochs have taken is a part of the position.
    let position = trainer.executor.position();
    let training =
        morphgl::TrainingState::of(trainer.executor.training_mut().expect("it is there")).expect("it is read");
    let mut again = new(job(&small, 8, Some(NATIVE))).expect("the plan's operators");
    again.restore(position.clone(), &training).expect("its own position");
    assert_eq!(again.position(), position);
    assert_eq!(again.predicted_seconds(5).to_bits(), trainer.executor.predicted_seconds(5).to_bits());
}

/// What a short epoch takes besides its phases is measured, and the model is as before.
#[test]
fn a_short_epoch_is_rehearsed() {
    let small = Arc::new(sbm(&SbmConfig { nodes: 600, classes: 3, ..SbmConfig::default() }).expect("a graph"));
    let mut short = job(&small, 8, Some(NATIVE));
    let mut plan = morphgl_plan::plan(&promising(&mut short)).expect("it fits").best().clone();
    let state = |job: &mut Job| {
        let operators = job.operators_mut();
        let trainer = operators.trainers[0].operator.parameters().expect("parameters");
        (trainer, operators.routes.len())
    };
    let before = state(&mut short);
    // Phases of a nanosecond are promised: an epoch takes all the rest besides.
    let besides = short.rehearse(&plan, &Stop::new()).expect("nothing fails");
    assert!(besides > 1e-6 && besides.is_finite(), "{besides} s");
    assert!(state(&mut short) == before, "the model was changed");
    // Epochs that are not short are not run.
    plan.prediction.epoch_seconds = 60.0;
    assert_eq!(short.rehearse(&plan, &Stop::new()).expect("nothing is run"), 0.0);
}
