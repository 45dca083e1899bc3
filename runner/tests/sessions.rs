//! Sessions: the library that the command line and Python are made of.

use std::sync::{Arc, Mutex};
use std::thread;

use morphgl::cli::{Call, call};
use morphgl::session::{InferenceConfig, RunResult, Session, SessionConfig, Trained};
use morphgl::{Beginning, Event, ModelKind, Observer, Process, RunContext, Silent, Stop};
use morphgl_generate::{SbmConfig, sbm};
use morphgl_graph_store::Dataset;
use morphgl_registry::Key;
use serde_json::Value;

fn graph() -> Arc<Dataset> {
    Arc::new(sbm(&SbmConfig { nodes: 600, classes: 3, ..SbmConfig::default() }).expect("a valid configuration"))
}

/// A training of which two runs have the same bits.
fn config(model: ModelKind, seed: u64, epochs: u32) -> SessionConfig {
    let mut config = SessionConfig::default();
    let planning = &mut config.planning;
    (planning.model.model, planning.model.hidden) = (model, Some(8));
    planning.batch.fanouts = Some("4,4".parse().expect("fanouts"));
    (planning.batch.threads, planning.batch.seed) = (Some(1), Some(seed));
    planning.batch.training = Some("Training_CPU_Native".parse::<Key>().expect("a key"));
    planning.profile_seconds = Some(std::time::Duration::from_millis(100));
    config.training.plan = "sequential".parse().expect("a plan");
    config.training.epochs = Some(epochs);
    config
}

fn train(process: &Arc<Process>, observer: Arc<dyn Observer>, config: SessionConfig) -> RunResult {
    let context = RunContext::of(process, Stop::new(), observer).expect("no key twice");
    Session::new(context, config).on(graph()).train().expect("it trains")
}

/// What must be the same in two runs: the figures of each epoch, and of the test.
fn figures(document: &Value) -> Vec<Value> {
    let epochs = document["epochs"].as_array().expect("a list").iter();
    let of_epochs = epochs.flat_map(|e| ["loss", "train_accuracy", "valid_loss"].map(|name| e[name].clone()));
    of_epochs.chain([document["test_loss"].clone()]).collect()
}

/// Counts the events that it receives.
#[derive(Debug, Default)]
struct Counts(Mutex<(Vec<Beginning>, usize, usize)>);

impl Observer for Counts {
    fn begins(&self, beginning: Beginning) {
        self.0.lock().expect("no panic").0.push(beginning);
    }

    fn observe(&self, event: &Event<'_>) {
        self.0.lock().expect("no panic").1 += usize::from(matches!(event, Event::Epoch(_)));
    }

    fn ends(&self) {
        self.0.lock().expect("no panic").2 += 1;
    }
}

#[test]
fn two_sessions_beside_each_other_have_the_bits_of_each_alone_and_observers_of_their_own() {
    let process = Arc::default();
    let configs = [config(ModelKind::Gcn, 1, 12), config(ModelKind::Sage, 2, 8)];
    let one = |config: &SessionConfig| {
        let counts = Arc::new(Counts::default());
        let observer: Arc<Counts> = Arc::clone(&counts);
        let result = train(&process, observer, config.clone());
        let (beginnings, epochs, ends) = std::mem::take(&mut *counts.0.lock().expect("no panic"));
        assert_eq!((Some(epochs as u32), ends), (config.training.epochs, 1));
        assert!(matches!(&beginnings[..], [begun] if Some(begun.epochs) == config.training.epochs), "{beginnings:?}");
        figures(&result.json)
    };
    let alone = configs.each_ref().map(one);
    let beside = thread::scope(|scope| {
        let running = configs.each_ref().map(|config| scope.spawn(move || one(config)));
        running.map(|run| run.join().expect("no panic"))
    });
    assert_eq!(beside, alone);
    assert_ne!(alone[0], alone[1]);
}

#[test]
fn a_session_has_the_bits_of_the_command_and_resumes_as_it_does() {
    let process = Arc::default();
    let whole = train(&process, Arc::new(Silent), config(ModelKind::Gcn, 3, 6));
    let words = "train --model gcn --hidden 8 --fanouts 4,4 --threads 1 --seed 3 --training Training_CPU_Native \
                 --profile-seconds 0.1 --plan sequential --epochs 6";
    let words: Vec<String> = words.split_whitespace().map(str::to_string).collect();
    let stop = Stop::new();
    let command = call(Call {
        process: &process,
        arguments: &words,
        dataset: Some(graph()),
        quiet: true,
        stop: &stop,
        observer: None,
    });
    assert_eq!(figures(&whole.json), figures(&command.expect("it trains")));

    // A run of four epochs goes on for two more; the model of its directory is evaluated and predicted with.
    let folder = tempfile::tempdir().expect("a directory");
    let (data, run) = (folder.path().join("graph"), folder.path().join("run"));
    let generate = ["generate", "sbm", "--nodes", "600", "--classes", "3", "-o", data.to_str().expect("text")];
    let generate = generate.map(str::to_string);
    call(Call { process: &process, arguments: &generate, dataset: None, quiet: true, stop: &stop, observer: None })
        .expect("disk space");
    let on_disk = |epochs| {
        let mut config = config(ModelKind::Gcn, 3, epochs);
        config.planning.data.dataset = Some(data.clone());
        config.training.run = Some(run.clone());
        config
    };
    let context = RunContext::of(&process, Stop::new(), Arc::new(Silent)).expect("no key twice");
    Session::new(context.clone(), on_disk(4)).train().expect("it trains");
    let mut longer = SessionConfig::default();
    longer.training.epochs = Some(6);
    let resumed = Session::new(context.clone(), longer).resume(&run).expect("it goes on");
    assert_eq!(figures(&resumed.json), figures(&whole.json));
    let mut trained = Trained::open(&context, InferenceConfig::of(&run), None, true).expect("a model");
    let scores = trained.evaluate(None, &[]).expect("it has splits");
    let test = scores.splits.iter().find(|split| split.split == "test").expect("test nodes");
    assert_eq!(Some(test.score.accuracy()), whole.report.test.map(|score| score.sums.accuracy()));
    let nodes: Vec<u32> = (0..600).collect();
    let predictions = trained.predict(&nodes).expect("memory");
    let labels = graph().labels.clone().expect("labels");
    let right = graph().splits.test.iter().filter(|&&v| predictions.classes[v as usize] == labels[v as usize]).count();
    assert_eq!(right as u64, test.score.correct);
    // And another run takes after it.
    let mut like = SessionConfig::default();
    like.training.epochs = Some(6);
    let like = Session::new(context, like).like(&run.join("config.toml")).expect("a configuration");
    assert_eq!(figures(&like.train().expect("it trains").json), figures(&whole.json));
}
