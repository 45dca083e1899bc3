//! Profiles of operators whose durations are known, and of operators that fail.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use morphgl_profile::{ErrorKind, Operators, Profile, Progress, Settings, VERSION, profile};
use morphgl_registry::{
    BatchId, Batching, BatchingWorker, Block, Error, Gradients, Handle, HostBatch, Machine, MiniBatch, NamedTensor,
    Place, Result, Route, Score, Training, Transferring,
};

/// Milliseconds of the phases; batching by a worker of t threads and training with t threads take a t-th.
#[derive(Debug, Clone, Copy)]
struct Times {
    batching: u64,
    transferring: u64,
    training: u64,
}

const QUICK: Times = Times { batching: 2, transferring: 1, training: 4 };

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    Error,
    Panic,
}

fn act(millis: u64, threads: usize, fault: Option<Fault>) -> Result<()> {
    thread::sleep(Duration::from_micros(1000 * millis / threads as u64));
    match fault {
        None => Ok(()),
        Some(Fault::Error) => Err(Error::failed("fake", "out of luck")),
        Some(Fault::Panic) => panic!("lost my head"),
    }
}

#[derive(Debug)]
struct FakeBatching {
    num_batches: usize,
    times: Times,
    /// Fails at the n-th mini-batch it prepares.
    fault: Option<(usize, Fault)>,
    prepared: Arc<AtomicUsize>,
    indices: Arc<Mutex<Vec<u32>>>,
}

struct Worker {
    times: Times,
    threads: usize,
    fault: Option<(usize, Fault)>,
    prepared: Arc<AtomicUsize>,
    indices: Arc<Mutex<Vec<u32>>>,
}

impl Batching for FakeBatching {
    fn num_batches(&self) -> usize {
        self.num_batches
    }

    fn worker(&self, threads: usize) -> Result<Box<dyn BatchingWorker>> {
        let (prepared, indices) = (Arc::clone(&self.prepared), Arc::clone(&self.indices));
        Ok(Box::new(Worker { times: self.times, threads, fault: self.fault, prepared, indices }))
    }
}

impl BatchingWorker for Worker {
    fn prepare(&mut self, id: BatchId, _: Option<MiniBatch>) -> Result<Handle<MiniBatch>> {
        let n = self.prepared.fetch_add(1, Ordering::SeqCst);
        self.indices.lock().expect("not poisoned").push(id.index);
        act(self.times.batching, self.threads, self.fault.filter(|f| f.0 == n).map(|f| f.1))?;
        let block = Block { num_dst: 1, num_src: 3, indptr: vec![0, 2], indices: vec![1, 2], weights: None };
        let batch =
            HostBatch { id, num_seeds: 1, input_nodes: vec![0, 1, 2], blocks: vec![block], ..HostBatch::default() };
        Ok(Handle::ready(MiniBatch::Host(batch), Duration::ZERO))
    }
}

#[derive(Debug)]
struct FakeTransferring(Times, Option<Fault>);

impl Transferring for FakeTransferring {
    fn transfer(&mut self, batch: MiniBatch) -> Result<Handle<MiniBatch>> {
        act(self.0.transferring, 1, self.1)?;
        Ok(Handle::ready(batch, Duration::ZERO))
    }
}

/// One parameter that every step raises by one; the optimizer counts the steps.
#[derive(Debug)]
struct FakeTraining {
    times: Times,
    fault: Option<(u64, Fault)>,
    threads: usize,
    parameter: f32,
    steps: u64,
    accumulated: u64,
    ever: u64,
}

fn tensor(name: &str, value: f32) -> Vec<NamedTensor> {
    vec![NamedTensor { name: name.to_string(), shape: vec![1], values: vec![value] }]
}

impl Training for FakeTraining {
    fn set_threads(&mut self, threads: usize) -> Result<()> {
        self.threads = threads;
        Ok(())
    }
    fn accumulate(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        assert_eq!(batch.host()?.blocks.len(), 1);
        self.accumulated += 1;
        self.ever += 1;
        act(self.times.training, self.threads, self.fault.filter(|f| f.0 == self.ever).map(|f| f.1))?;
        Ok(Handle::ready(Score::default(), Duration::ZERO))
    }
    fn step(&mut self) -> Result<Handle<()>> {
        self.parameter += 1.0;
        self.steps += 1;
        self.accumulated = 0;
        Ok(Handle::ready((), Duration::ZERO))
    }
    fn gradients(&mut self) -> Result<Gradients> {
        Ok(Gradients { tensors: Vec::new(), count: self.accumulated })
    }
    fn set_gradients(&mut self, gradients: &Gradients) -> Result<()> {
        self.accumulated = gradients.count;
        Ok(())
    }
    fn parameters(&self) -> Result<Vec<NamedTensor>> {
        Ok(tensor("weight", self.parameter))
    }
    fn set_parameters(&mut self, parameters: &[NamedTensor]) -> Result<()> {
        self.parameter = parameters[0].values[0];
        Ok(())
    }
    fn optimizer_state(&self) -> Result<Vec<NamedTensor>> {
        Ok(tensor("steps", self.steps as f32))
    }
    fn set_optimizer_state(&mut self, state: &[NamedTensor]) -> Result<()> {
        self.steps = state[0].values[0] as u64;
        Ok(())
    }
    fn score(&mut self, _: &MiniBatch) -> Result<Handle<Score>> {
        Ok(Handle::ready(Score::default(), Duration::ZERO))
    }
    fn infer(&mut self, _: &[u32]) -> Result<Vec<f32>> {
        Ok(Vec::new())
    }
}

struct Fakes {
    route: Route,
    batching: FakeBatching,
    transferring: FakeTransferring,
    training: FakeTraining,
}

impl Fakes {
    fn new(num_batches: usize, times: Times) -> Self {
        let key = |s: &str| s.parse().expect("a valid key");
        let route = Route {
            batching: key("Batching_CPU_Fake"),
            transferring: key("Transferring_CPU_Fake"),
            training: key("Training_CPU_Fake"),
            batched_at: Place::Host,
            trained_at: Place::Host,
        };
        let batching =
            FakeBatching { num_batches, times, fault: None, prepared: Arc::default(), indices: Arc::default() };
        let training =
            FakeTraining { times, fault: None, threads: 1, parameter: 0.5, steps: 7, accumulated: 0, ever: 0 };
        Self { route, batching, transferring: FakeTransferring(times, None), training }
    }

    fn profile(
        &mut self,
        settings: &Settings,
        progress: &mut dyn FnMut(&Progress),
    ) -> morphgl_profile::Result<Profile> {
        let mut operators = Operators {
            route: &self.route,
            batching: &self.batching,
            transferring: &mut self.transferring,
            training: &mut self.training,
        };
        profile(&mut operators, &Machine::probe(), settings, progress)
    }

    #[track_caller]
    fn check_unchanged(&self) {
        let t = &self.training;
        assert_eq!((t.parameter, t.steps, t.accumulated), (0.5, 7, 0), "the model is as it was");
    }
}

#[test]
fn durations_are_about_what_they_are() {
    let mut fakes = Fakes::new(10, Times { batching: 8, transferring: 2, training: 16 });
    let settings = Settings { batches: 3, ..Settings::new(4) };
    let mut told = Vec::new();
    let p = fakes.profile(&settings, &mut |progress| told.push(progress.clone())).expect("nothing fails");
    fakes.check_unchanged();
    let pools: Vec<_> = p.batching.iter().map(|s| (s.workers, s.threads)).collect();
    assert_eq!(pools, [(1, 1), (2, 1), (4, 1), (1, 4)]);
    assert_eq!(p.training.iter().map(|s| s.threads).collect::<Vec<_>>(), [1, 2, 3, 4]);
    // A sleep is never shorter than asked for; that is all that can be said of it on a busy machine.
    let least = [0.008, 0.004, 0.002, 0.002];
    for (sample, least) in p.batching.iter().zip(least) {
        assert!(sample.seconds.samples.iter().all(|&s| s >= least), "{sample:?}");
        assert!(sample.seconds.samples.len() >= 3 * sample.workers, "{sample:?}");
    }
    assert!(p.training.iter().all(|s| s.seconds.median >= 0.016 / s.threads as f64 && s.seconds.samples.len() == 3));
    assert!(p.transferring.median >= 0.002);
    assert!(p.training[0].seconds.median > p.transferring.median, "16 ms are more than 2");
    assert!(p.skipped.is_empty());
    assert_eq!((p.version, p.num_batches, p.edges_per_batch), (VERSION, 10, 2.0));
    assert!(p.bytes_per_batch > 0.0);
    // The partial mini-batch at the end of an epoch is not measured.
    assert!(fakes.batching.indices.lock().expect("not poisoned").iter().all(|&i| i < 9));
    // The planner reads the same numbers.
    let durations = p.durations();
    assert_eq!(durations.batching(2, 1), p.batching[1].seconds.seconds());
    assert_eq!(durations.training().at(3), p.training[2].seconds.seconds());
    // The progress goes from nothing to all.
    assert_eq!(told.first().map(|p| (p.what.as_str(), p.done)), Some(("batching by 1 worker", 0)));
    assert_eq!(told.last().map(|p| p.done), told.last().map(|p| p.total));
    assert!(told.windows(2).all(|w| w[0].done < w[1].done && w[0].total == w[1].total));
}

#[test]
fn without_a_budget_only_what_is_needed_is_measured() {
    let mut fakes = Fakes::new(10, QUICK);
    let settings = Settings { budget: Duration::ZERO, batches: 1000, ..Settings::new(8) };
    let p = fakes.profile(&settings, &mut |_| {}).expect("nothing fails");
    fakes.check_unchanged();
    assert_eq!(p.batching.iter().map(|s| (s.workers, s.threads)).collect::<Vec<_>>(), [(1, 1), (8, 1)]);
    assert_eq!(p.training.iter().map(|s| s.threads).collect::<Vec<_>>(), [1, 8]);
    assert_eq!(
        p.skipped,
        [
            "batching by 1 worker of 8 threads",
            "batching by 2 workers",
            "batching by 4 workers",
            "training with 2 threads",
            "training with 4 threads",
            "training with 7 threads"
        ]
    );
    assert!(p.training.iter().all(|s| s.seconds.samples.len() == 1));
}

#[test]
fn a_single_mini_batch_is_enough() {
    let mut fakes = Fakes::new(1, QUICK);
    let settings =
        Settings { batches: 2, pools: Vec::new(), training_threads: Vec::new(), warm_up: 0, ..Settings::new(1) };
    let p = fakes.profile(&settings, &mut |_| {}).expect("nothing fails");
    assert_eq!((p.batching.len(), p.training.len()), (1, 1));
    assert_eq!((p.batching[0].workers, p.batching[0].threads, p.training[0].threads), (1, 1, 1));
}

#[test]
fn nothing_to_measure_is_an_error() {
    let error = Fakes::new(0, QUICK).profile(&Settings::new(2), &mut |_| {}).expect_err("no mini-batch");
    assert!(matches!(error.kind, ErrorKind::Nothing(_)));
    assert_eq!(error.to_string(), "Batching_CPU_Fake: there is no mini-batch to measure; give it seeds");
}

#[test]
fn a_failing_operator_is_named_and_the_model_is_as_before() {
    let settings = Settings { batches: 3, ..Settings::new(2) };
    for fault in [Fault::Error, Fault::Panic] {
        let says = |error: morphgl_profile::Error, key: &str| {
            let expected = match fault {
                Fault::Error => format!("{key} failed while it was profiled: fake: out of luck"),
                Fault::Panic => format!("{key} panicked while it was profiled: lost my head"),
            };
            assert_eq!(error.to_string(), expected);
        };
        // In the first pool, in a pool of two, while transferring is prepared.
        for at in [0, 2, 8, 17] {
            let mut fakes = Fakes::new(10, QUICK);
            fakes.batching.fault = Some((at, fault));
            says(fakes.profile(&settings, &mut |_| {}).expect_err("told to fail"), "Batching_CPU_Fake");
            fakes.check_unchanged();
        }
        let mut fakes = Fakes::new(10, QUICK);
        fakes.transferring.1 = Some(fault);
        says(fakes.profile(&settings, &mut |_| {}).expect_err("told to fail"), "Transferring_CPU_Fake");
        for at in [1, 2, 5] {
            let mut fakes = Fakes::new(10, QUICK);
            fakes.training.fault = Some((at, fault));
            says(fakes.profile(&settings, &mut |_| {}).expect_err("told to fail"), "Training_CPU_Fake");
            fakes.check_unchanged();
        }
    }
}

/// A file of this test's own, removed at its end.
struct File(PathBuf);

impl File {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("morphgl-profile-{}-{name}", std::process::id())))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}

#[test]
fn a_profile_is_saved_and_loaded() {
    let settings = Settings { batches: 2, ..Settings::new(2) };
    let p = Fakes::new(10, QUICK).profile(&settings, &mut |_| {}).expect("nothing fails");
    let file = File::new("saved.json");
    p.save(&file.0).expect("the directory is writable");
    let again = Profile::load(&file.0).expect("what was saved can be loaded");
    assert_eq!((&again.machine, &again.route, again.skipped.len()), (&p.machine, &p.route, p.skipped.len()));
    for (a, b) in p.batching.iter().zip(&again.batching) {
        assert_eq!((a.workers, a.threads), (b.workers, b.threads));
        assert!((a.seconds.mean - b.seconds.mean).abs() < 1e-12);
    }
    assert_eq!(again.route_keys().to_string(), "Batching_CPU_Fake → Transferring_CPU_Fake → Training_CPU_Fake");
    assert_eq!(again.durations().training().points().len(), p.training.len());
}

#[test]
fn files_that_are_no_profile_say_so() {
    let refuse = |name: &str, text: &str| {
        let file = File::new(name);
        std::fs::write(&file.0, text).expect("the directory is writable");
        let error = Profile::load(&file.0).expect_err("no profile").to_string();
        assert!(error.starts_with(&file.0.display().to_string()), "{error}");
        error
    };
    assert!(refuse("text", "hello").contains("not a profile: expected value at line 1 column 1"));
    assert!(refuse("no-version", "{}").ends_with("not a profile: it has no version; profile again"));
    let newer = refuse("newer", r#"{"version": 99}"#);
    assert!(newer.ends_with("it is of version 99, this program reads 1; profile again"), "{newer}");
    assert!(refuse("short", r#"{"version": 1}"#).contains("missing field"));
    let settings = Settings { batches: 1, ..Settings::new(1) };
    let mut p = Fakes::new(3, QUICK).profile(&settings, &mut |_| {}).expect("nothing fails");
    p.batching.clear();
    let text = serde_json::to_string(&p).expect("plain data");
    assert!(refuse("empty", &text).contains("one worker of one thread is missing"));
    let missing = File::new("missing");
    assert!(Profile::load(&missing.0).expect_err("no file").to_string().contains("check the path of the profile"));
    let nowhere = missing.0.join("nowhere.json");
    assert!(matches!(p.save(&nowhere).expect_err("no directory").kind, ErrorKind::Io(_)));
}
