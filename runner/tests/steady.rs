//! A warm epoch allocates nothing: sampler, gather, transfer, trainer and executor together, as in a run.
#![cfg(feature = "cpu")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use morphgl::{
    Executor, ExecutorSettings, Job, JobConfig, ModelKind, ModelSpec, OperatorBuilder, OperatorChoice, OptimizerSpec,
    Plan, Policy, RunContext, Stop, Strategy, TrainingSpec, routes,
};
use morphgl_execute::{Control, Event};
use morphgl_generate::SbmConfig;
use morphgl_graph_store::Dataset;
use morphgl_plan::{Hardware, Memory, Resource, RouteKeys, Schedule, ScheduleShare, Seconds};
use morphgl_registry::{Fanouts, RouteOperators, Sampling, SamplingSpec, TrainingOperator};

/// The system's allocator, counting calls and bytes of all threads.
struct Counting;

static CALLS: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

fn count(bytes: usize) {
    CALLS.fetch_add(1, Ordering::Relaxed);
    BYTES.fetch_add(bytes, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Allocations {
    calls: usize,
    bytes: usize,
}

impl Allocations {
    fn now() -> Self {
        Self { calls: CALLS.load(Ordering::Relaxed), bytes: BYTES.load(Ordering::Relaxed) }
    }

    fn is_within(self, allowed: Self) -> bool {
        self.calls <= allowed.calls && self.bytes <= allowed.bytes
    }

    fn since(self, before: Self) -> Self {
        Self { calls: self.calls - before.calls, bytes: self.bytes - before.bytes }
    }
}

const BATCHES: usize = 100;
/// Mini-batches at the beginning of an epoch, while threads and lanes start, and at its end.
const EDGE: usize = 8;
/// Calls into a thread pool from outside per block of its queue (crossbeam's injector), and a block's bytes.
const CALLS_A_BLOCK: usize = 63;
const BLOCK_BYTES: usize = 2048;
/// Calls from outside per mini-batch: accumulating, stepping, and gathering by the transfer.
const CALLS_A_BATCH: usize = 3;
/// Limit of a whole epoch's allocations, beginning and end included: its order, its threads and their channels. Twice the
/// actual amount.
const EPOCH: Allocations = Allocations { calls: 240, bytes: 96 << 10 };
/// Epochs until every buffer has the size of the largest mini-batch.
const PATIENCE: usize = 40;

fn context() -> RunContext {
    RunContext::new().expect("operators")
}

fn config() -> JobConfig {
    let model = ModelSpec { layers: 2, hidden: 32, ..ModelSpec::new(ModelKind::Sage, 128, 16) };
    let mut config = JobConfig::new(TrainingSpec { model, optimizer: OptimizerSpec::default() });
    config.sampler.sampling = Sampling::Neighbor("8,4".parse::<Fanouts>().expect("fanouts").into());
    config.sampler.batch_size = 60;
    config.threads = Some(2);
    let key = |key: &str| Some(key.parse().expect("a key"));
    config.operators = OperatorChoice {
        batching: key("Batching_CPU_Neighbor"),
        transferring: key("Transferring_CPU_Host"),
        training: key("Training_CPU_Native"),
    };
    config
}

fn schedule(policy: Policy, workers: usize) -> Schedule {
    let cpu = || vec!["CPU".to_string()];
    let share = ScheduleShare {
        keys: RouteKeys {
            batching: "Batching_CPU_Neighbor".parse().expect("a key"),
            transferring: "Transferring_CPU_Host".parse().expect("a key"),
            training: "Training_CPU_Native".parse().expect("a key"),
        },
        hardware: Hardware { batching: cpu(), transferring: cpu(), training: cpu() },
        in_place: true,
        batches: BATCHES,
        workers,
        threads_per_worker: 1,
        batching: Seconds::constant(0.002),
        transferring: Seconds::constant(0.001),
        training: Seconds::constant(0.002),
        contention: None,
    };
    Schedule {
        policy,
        resources: vec![Resource::shared("CPU", 4)],
        shares: vec![share],
        training_threads: 2,
        batched: 0,
        ready: 4,
        group: 0,
        keep: 0,
        oversubscription: 1.1,
        after_step: 0.0,
    }
}

/// The phase that gathers features.
#[derive(Debug, Clone, Copy)]
enum Gather {
    /// The first layer reads them from the dataset.
    None,
    Batching,
    Transferring,
}

/// Runs an epoch, and calls the function after every mini-batch.
type Epoch = Box<dyn FnMut(&mut dyn FnMut())>;

/// As `morphgl train` runs it: mini-batches carry no features.
fn by_job(dataset: &Arc<Dataset>, schedule: &Schedule) -> Epoch {
    let job = Job::new(&context(), Arc::clone(dataset), config()).expect("operators");
    let prediction = morphgl_plan::predict(schedule, 0.1);
    let plan = Plan {
        strategy: Strategy::Pipeline,
        schedule: schedule.clone(),
        prediction,
        memory: Memory::default(),
        caches: Vec::new(),
    };
    // Without a problem there is no replanning, which would allocate.
    let mut executor = Executor::new(job, &plan, None, ExecutorSettings::default()).expect("the plan's operators");
    Box::new(move |trained| {
        let observe = &mut |event: &Event<'_>| {
            if let Event::Trained(_) = event {
                trained();
            }
        };
        executor.epoch(0, &Stop::new(), observe).expect("an epoch");
    })
}

/// With features gathered by batching or by transferring.
fn by_hand(dataset: &Arc<Dataset>, schedule: &Schedule, gather: Gather) -> Epoch {
    let (context, config) = (context(), config());
    let route = routes(context.registry(), &config.operators, SamplingSpec::NEIGHBOR.name).expect("a route").remove(0);
    let builder = OperatorBuilder { dataset, config: &config, context: &context };
    let gathers = matches!(gather, Gather::Batching);
    let batching = builder.batching(&route, gathers).expect("a sampler");
    let transfers = matches!(gather, Gather::Transferring);
    let transferring = builder.transferring(&route, transfers).expect("a transfer");
    let training = builder.training(&route).expect("a trainer");
    let (key, place) = (route.training.clone(), route.trained_at.clone());
    let routes = vec![RouteOperators { route, batching: batching.into(), transferring }];
    let operators =
        morphgl_registry::Operators { routes, trainers: vec![TrainingOperator { key, place, operator: training }] };
    let executor = morphgl_execute::Executor::new(operators, schedule, ExecutorSettings::default());
    let mut executor = executor.expect("the schedule's operators");
    let all: Vec<u32> = (0..BATCHES as u32).collect();
    Box::new(move |trained| {
        let observe = &mut |event: &Event<'_>| {
            if let Event::Trained(_) = event {
                trained();
            }
            Control::Continue
        };
        executor.train(0, &all, &Stop::new(), observe).expect("an epoch");
    })
}

/// Repeats an epoch until one allocates no more than allowed; fails if none does.
#[track_caller]
fn check(dataset: &Arc<Dataset>, policy: Policy, workers: usize, gather: Gather) {
    let schedule = schedule(policy, workers);
    let mut epoch = match gather {
        Gather::None => by_job(dataset, &schedule),
        _ => by_hand(dataset, &schedule, gather),
    };
    let batches = BATCHES - 2 * EDGE;
    let blocks = (CALLS_A_BATCH * batches).div_ceil(CALLS_A_BLOCK);
    let allowed = Allocations { calls: blocks, bytes: blocks * BLOCK_BYTES };
    let mut found = Vec::new();
    for _ in 0..PATIENCE {
        let (before, mut number) = (Allocations::now(), 0);
        let mut inside = [before; 2];
        epoch(&mut || {
            number += 1;
            match number {
                EDGE => inside[0] = Allocations::now(),
                n if n == BATCHES - EDGE => inside[1] = Allocations::now(),
                _ => {}
            }
        });
        assert_eq!(number, BATCHES);
        let (steady, whole) = (inside[1].since(inside[0]), Allocations::now().since(before));
        if steady.is_within(allowed) && whole.is_within(EPOCH) {
            return;
        }
        found.push((steady, whole));
    }
    panic!(
        "{policy:?}, {workers} workers, {gather:?} gathers: {batches} mini-batches and the whole epoch allocate {found:?}; \
         {allowed:?} and {EPOCH:?} are allowed"
    );
}

/// A single test, so that no other allocates at the same time.
#[test]
fn a_warm_epoch_allocates_nothing() {
    let graph = SbmConfig { nodes: 20_000, degree: 10.0, dim: 128, train: 0.3, ..SbmConfig::default() };
    let dataset = Arc::new(morphgl_generate::sbm(&graph).expect("a graph"));
    for (policy, workers) in [(Policy::Sequential, 1), (Policy::Pipeline, 1), (Policy::Pipeline, 2)] {
        for gather in [Gather::None, Gather::Batching, Gather::Transferring] {
            check(&dataset, policy, workers, gather);
        }
    }
}
