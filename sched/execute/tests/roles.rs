//! Devices with roles: epochs by any roles, in virtual time as predicted, in real time with faults and stops.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use morphgl_batching_sim_neighbor::{DEVICE_KEY, SimNeighbor};
use morphgl_conformance::batching::graphs;
use morphgl_execute::{Control, EpochReport, Event, Result, RolesDevice, RolesExecutor, Stop, TrainingState};
use morphgl_graph_store::Dataset;
use morphgl_group::{
    BUCKET_BYTES, GroupMember, HostExchange, StaleMember, StalenessCounts, VirtualSteps, Weights, join, join_stale,
};
use morphgl_plan::{Linear, Phase, RolesProblem, RolesWork, Segment, roles};
use morphgl_registry::{
    BatchId, Batching, BatchingContext, Fanouts, MiniBatch, Operators, Place, Route, SamplerSettings, SeedSet,
    Training, TrainingContext, TrainingOperator, Transferring, TransferringContext, VirtualClock,
};
use morphgl_sim::{Config, Device, MachineDescription};
use morphgl_training_sim_ledger::{KEY as LEDGER_KEY, Ledger, SimLedger};
use morphgl_transferring_sim_copy::{COPY_KEY, GATHER_KEY, SimCopy, SimGather};
use proptest::prelude::*;

/// Seeds of a mini-batch.
const BATCH: usize = 4;

/// Devices, and a dataset whose mini-batches are alike.
struct Rig {
    n: usize,
    dataset: Arc<Dataset>,
    devices: Vec<Device>,
}

fn place(index: usize) -> Place {
    format!("sim:{index}").parse().expect("a place")
}

/// A machine of so many devices, at these speeds: of sampling in M edges/s, of links in GB/s, of training in TFLOP/s.
fn machine(devices: usize, [sampling, link, tflops]: [f64; 3]) -> MachineDescription {
    let text = format!(
        "name = 'm'
        peer_gb_per_s = 20
        [host]
        cores = 4
        memory_gb = 16
        bandwidth_gb_per_s = 40
        sampling_m_edges_per_s = 1
        gflop_per_s = 100
        [[link]]
        name = 'pcie'
        gb_per_s = {link}
        latency_us = 1
        [[device]]
        name = 'd'
        count = {devices}
        link = 'pcie'
        memory_gb = 8
        bandwidth_gb_per_s = 400
        tflop_per_s = {tflops}
        launch_us = 2
        sampling_m_edges_per_s = {sampling}"
    );
    MachineDescription::parse("m", &text).expect("valid")
}

fn share_of(_: BatchId, trainers: usize, rank: usize) -> Range<usize> {
    BATCH * rank / trainers..BATCH * (rank + 1) / trainers
}

impl Rig {
    fn new(n: usize, devices: Vec<Device>) -> Self {
        Self { n, dataset: Arc::new(graphs::cycle(n * BATCH)), devices }
    }

    fn described(n: usize, devices: usize, speeds: [f64; 3]) -> Self {
        let machine = machine(devices, speeds);
        Self::new(n, (0..devices).map(|i| Device::described(place(i), machine.clone())).collect())
    }

    /// Devices of configured durations.
    fn configured(n: usize, devices: usize, text: &str) -> Self {
        let config: Config = format!("memory=64,{text}").parse().expect("a configuration");
        Self::new(n, (0..devices).map(|i| Device::new(place(i), config.clone())).collect())
    }

    fn batching(&self, device: usize) -> Arc<dyn Batching> {
        let all: Vec<u32> = (0..self.dataset.num_nodes() as u32).collect();
        let fanouts: Fanouts = "2".parse().expect("a fanout");
        let context = BatchingContext {
            gather: false,
            place: place(device),
            ..BatchingContext::new(
                Arc::clone(&self.dataset),
                SeedSet::new("all nodes", &all, all.len()).expect("seeds"),
                SamplerSettings { batch_size: BATCH, shuffle: false, ..fanouts.into() },
            )
        };
        Arc::new(SimNeighbor::new(&context, &self.devices[device]).expect("built"))
    }

    fn transferring(&self, to: usize) -> Vec<(Route, Box<dyn Transferring>)> {
        let transfer = |from: usize| -> (Route, Box<dyn Transferring>) {
            let context = TransferringContext::new(Arc::clone(&self.dataset), place(from), place(to));
            let [source, own] = [&self.devices[from], &self.devices[to]];
            let (key, operator): (_, Box<dyn Transferring>) = match from == to {
                true => (GATHER_KEY, Box::new(SimGather::new(&context, own).expect("built"))),
                false => (COPY_KEY, Box::new(SimCopy::new(&context, source, own).expect("built"))),
            };
            (Route::new([DEVICE_KEY, key, LEDGER_KEY], place(from), place(to)), operator)
        };
        (0..self.devices.len()).map(transfer).collect()
    }

    fn training(&self, device: usize) -> Box<dyn Training> {
        let (features, classes) = (self.dataset.feature_dim(), self.dataset.num_classes);
        let model = serde_json::json!({ "kind": "sage", "in_dim": features, "num_classes": classes, "layers": 1 });
        let spec = serde_json::json!({ "model": model });
        let context = TrainingContext { place: place(device), ..TrainingContext::new(Arc::clone(&self.dataset), spec) };
        Box::new(SimLedger::new(&context, &self.devices[device]).expect("built"))
    }

    /// The operators of all devices, of which the first ones exchange gradients, which may be stale where the bound is not 0.
    fn operators(&self, exchanges: Vec<HostExchange>, all_reduce: f64, counts: &StalenessCounts) -> Vec<RolesDevice> {
        let mut exchanges = exchanges.into_iter();
        let (all_reduce, origin) = (Duration::from_secs_f64(all_reduce), Instant::now());
        let device = |i: usize| {
            let (clock, ended) = (VirtualClock::default(), Arc::<AtomicU64>::default());
            let virtual_steps = VirtualSteps { clock: clock.clone(), all_reduce, origin };
            let member = |exchange| GroupMember {
                exchange: Box::new(exchange),
                division: Arc::new(Weights::equal(1)),
                num_seeds: self.n * BATCH,
                batch_size: BATCH,
                stop: None,
                observe: None,
                bucket_bytes: BUCKET_BYTES,
                virtual_steps: self.devices[0].is_virtual().then_some(virtual_steps),
            };
            let trainer = |exchange: HostExchange| {
                let operator = TrainingOperator { key: LEDGER_KEY, place: place(i), operator: self.training(i) };
                if counts.bound() > 0 {
                    let (exchange, counts, observe) = (Box::new(exchange), counts.clone(), None);
                    let ended = self.devices[0].is_virtual().then(|| Arc::clone(&ended));
                    return join_stale(operator, StaleMember { exchange, counts, observe, ended });
                }
                let alone = Operators { routes: Vec::new(), trainers: vec![operator] };
                join(alone, member(exchange)).expect("one trainer").trainers.swap_remove(0)
            };
            let training = exchanges.next().map(trainer);
            let (batching, transferring) = (Some((DEVICE_KEY, self.batching(i))), self.transferring(i));
            let resource = format!("SIM:{i}");
            RolesDevice { place: place(i), resource, batching, transferring, training, clock, ended }
        };
        (0..self.devices.len()).map(device).collect()
    }

    /// Seconds as the operators state them for shares: the problem of these devices.
    fn problem(&self, [queue, ready]: [usize; 2], all_reduce: f64, switching: f64) -> RolesProblem {
        let mut worker = self.batching(1).worker(1).expect("a worker");
        let mut copy = self.transferring(0).swap_remove(1).1;
        let mut training = self.training(0);
        let mut of = |seeds: usize| {
            // Neither the first nor the last: those of the ends of the cycle are numbered otherwise.
            let id = BatchId { epoch: 0, index: 1 };
            let (batch, sampling) = worker.prepare_share(id, 0..seeds, None).and_then(|h| h.wait()).expect("prepared");
            let (batch, gathering) = copy.transfer(batch).and_then(|h| h.wait()).expect("moved");
            let (_, training) = training.train(&batch).and_then(|h| h.wait()).expect("trained");
            [sampling, gathering, training].map(|took: Duration| took.as_secs_f64())
        };
        let (whole, half) = (of(BATCH), of(BATCH / 2));
        let [sampling, gathering, training] = [0, 1, 2].map(|i| Linear::through(whole[i], 0.5, half[i]));
        let (num_batches, devices) = (self.n, self.devices.len());
        let standby_gathering = gathering;
        RolesProblem {
            num_batches,
            devices,
            sampling,
            gathering,
            standby_gathering,
            training,
            all_reduce,
            queue,
            ready,
            switching,
            staleness: 0,
        }
    }

    fn executor(&self, problem: &RolesProblem, segments: &[Segment]) -> RolesExecutor {
        self.executor_that_counts(problem, segments).0
    }

    /// The executor, and what counts the staleness of its gradients.
    fn executor_that_counts(&self, problem: &RolesProblem, segments: &[Segment]) -> (RolesExecutor, StalenessCounts) {
        let counts = StalenessCounts::new(problem.staleness);
        let limit = Duration::from_secs(20);
        let schedule = problem.schedule(segments);
        let exchanges = HostExchange::group(schedule.max_trainers(), limit);
        let handle = exchanges[0].abort_handle();
        let devices = self.operators(exchanges, problem.all_reduce, &counts);
        let abort = Box::new(move |why: &str| handle.abort(why));
        let executor = RolesExecutor::new(devices, &schedule, Arc::new(share_of), abort, Some(limit)).expect("valid");
        if self.devices[0].is_virtual() {
            return (executor.in_virtual_time(Duration::from_secs_f64(problem.all_reduce)), counts);
        }
        (executor, counts)
    }

    /// Checks that every share of the mini-batches in the range was trained once, where it belongs, with its content unchanged.
    fn check(&self, executor: &mut RolesExecutor, trained: Range<usize>) {
        let schedule = executor.schedule().clone();
        let still = Device::new(place(0), Config::instant(usize::MAX));
        let one = Rig { n: self.n, dataset: Arc::clone(&self.dataset), devices: vec![still] };
        let mut worker = one.batching(0).worker(1).expect("a worker");
        let mut gather = one.transferring(0).swap_remove(0).1;
        for (device, training) in executor.trainers_mut().expect("there").into_iter().enumerate() {
            let parameters = training.parameters().expect("a ledger");
            let ledger = Ledger::from_tensors(&parameters).expect("a ledger");
            for index in trained.clone() {
                let id = BatchId { epoch: 0, index: index as u32 };
                let Some(entry) = ledger.entries.get(&id) else {
                    assert!(device >= schedule.trainers(index), "{id} at device {device}");
                    continue;
                };
                if device >= schedule.trainers(index) {
                    assert_eq!(entry.times, 0, "{id} is not trained by device {device}");
                    continue;
                }
                let seeds = share_of(id, schedule.trainers(index), device);
                let made = worker.prepare_share(id, seeds, None).and_then(|h| h.wait()).expect("prepared");
                let (batch, _) = gather.transfer(made.0).and_then(|h| h.wait()).expect("gathered");
                let MiniBatch::Device(batch) = batch else { panic!("a device's lies on the device") };
                assert_eq!((entry.times, entry.changes), (1, 0), "{id} at device {device}");
                let content = morphgl_sim::digest(&batch.to_host().expect("its content"));
                assert_eq!(entry.digest, content, "{id} at device {device}: its content");
            }
        }
    }
}

/// Segments of random lengths and numbers of trainers, among which a device samples.
fn segments(devices: usize, random: &[(usize, usize)]) -> Vec<Segment> {
    let mut from = 0;
    let segment = |&(length, trainers): &(usize, usize)| {
        // Shares of equal size.
        let trainers = [1, 2, 4][trainers % 3].min(devices - 1);
        let trainers = if trainers == 3 { 2 } else { trainers };
        let segment = Segment { from, trainers };
        from += length;
        segment
    };
    random.iter().map(segment).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// The law of roles: whatever they are and however they change, every share is trained once, in the plan's order, and each
    /// step of each device is at the instant that the simulator predicts.
    #[test]
    fn epochs_by_any_roles_are_as_predicted(
        devices in 2..6usize,
        speeds in proptest::array::uniform3(-2.0..2.0f64),
        buffers in (1..9usize, 1..4usize),
        random in proptest::collection::vec((1..12usize, 0..3usize), 1..5),
        overheads in (0.0..3.0f64, 0.0..10.0f64),
        staleness in 0..4usize,
    ) {
        let speeds = [0.01, 0.01, 1e-5].iter().zip(speeds).map(|(base, exponent)| base * 10f64.powf(exponent));
        let speeds: Vec<f64> = speeds.collect();
        let n = 40;
        let rig = Rig::described(n, devices, [speeds[0], speeds[1], speeds[2]]);
        let problem = rig.problem([buffers.0, buffers.1], 0.0, 0.0);
        let step = problem.training.at(1.0);
        let (all_reduce, switching) = (overheads.0 * 0.1 * step, overheads.1 * step);
        let problem = RolesProblem { all_reduce, switching, staleness, ..problem };
        let segments = segments(devices, &random);
        let predicted = problem.timeline(&segments).expect("a device samples");
        let (mut executor, counts) = rig.executor_that_counts(&problem, &segments);
        let mut seen: BTreeMap<(usize, u32, Phase), Vec<(f64, f64)>> = BTreeMap::new();
        let (mut order, mut switches) = (Vec::new(), 0);
        let report = executor.train_on(0, EpochReport::default(), &Stop::new(), &mut |event| {
            match *event {
                Event::Ended(a) => seen.entry((0, a.id.index, a.phase)).or_default().push((a.span.start, a.span.end)),
                Event::Followed(device, a) => {
                    seen.entry((device, a.id.index, a.phase)).or_default().push((a.span.start, a.span.end));
                }
                Event::Trained(done) => order.push(done.id.index as usize),
                Event::Switched(..) => switches += 1,
                _ => {}
            }
            Control::Continue
        }).expect("no faults");
        prop_assert_eq!(order, (0..n).collect::<Vec<_>>());
        rig.check(&mut executor, 0..n);
        // The first and the last mini-batch of a cycle are numbered otherwise, and end a little earlier or later.
        let tolerance = 1e-3 * predicted.seconds;
        prop_assert!((report.seconds - predicted.seconds).abs() <= tolerance, "{} s, {} s", report.seconds, predicted.seconds);
        prop_assert_eq!(report.batches, n);
        let mut expected: BTreeMap<(usize, u32, Phase), usize> = BTreeMap::new();
        let mut expected_switches = 0;
        for activity in &predicted.activities {
            let phase = match activity.step.work {
                RolesWork::Sampling => Phase::Batching,
                RolesWork::Gathering => Phase::Transferring,
                RolesWork::Training => Phase::Training,
                RolesWork::Switching => {
                    expected_switches += usize::from(activity.span.end <= predicted.seconds);
                    continue;
                }
            };
            *expected.entry((activity.step.device, activity.step.batch as u32, phase)).or_default() += 1;
        }
        let trained = |all: &BTreeMap<(usize, u32, Phase), usize>| -> usize {
            all.iter().filter(|((.., phase), _)| *phase != Phase::Batching).map(|(_, count)| count).sum()
        };
        let counted: BTreeMap<_, _> = seen.iter().map(|(key, spans)| (*key, spans.len())).collect();
        prop_assert_eq!(trained(&counted), trained(&expected));
        prop_assert!(switches <= expected_switches + devices);
        // Two runs are the same to the bit, and so stale.
        let (mut again, counted) = rig.executor_that_counts(&problem, &segments);
        let again = again.train_on(0, EpochReport::default(), &Stop::new(), &mut |_| Control::Continue);
        prop_assert_eq!(again.expect("no faults"), report);
        prop_assert_eq!(counted.shares(), counts.shares());
        let shares: usize = (0..n).map(|batch| problem.schedule(&segments).trainers(batch)).sum();
        prop_assert_eq!(counts.shares().iter().sum::<u64>(), if staleness > 0 { shares as u64 } else { 0 });
    }
}

/// Without changes of roles, every step is predicted to the nanosecond.
#[test]
fn every_step_is_at_the_predicted_instant() {
    let all = [(1, [0.01, 0.01, 1e-5]), (2, [0.05, 0.1, 1e-6]), (4, [0.01, 0.001, 1e-5])];
    for ((trainers, speeds), staleness) in all.into_iter().flat_map(|each| [0, 1, 3].map(|staleness| (each, staleness)))
    {
        let n = 30;
        let rig = Rig::described(n, trainers + 2, speeds);
        let problem = RolesProblem { staleness, ..rig.problem([4, 2], 1e-5, 0.0) };
        let segments = [Segment { from: 0, trainers }];
        let predicted = problem.timeline(&segments).expect("a device samples");
        let mut done: Vec<(usize, u32, Phase, f64, f64)> = Vec::new();
        let mut executor = rig.executor(&problem, &segments);
        let mut observe = |event: &Event<'_>| {
            let mut add = |device, a: morphgl_execute::Activity| {
                done.push((device, a.id.index, a.phase, a.span.start, a.span.end));
            };
            match *event {
                Event::Ended(activity) => add(0, activity),
                Event::Followed(device, activity) => add(device, activity),
                _ => {}
            }
            Control::Continue
        };
        let report = executor.train_on(0, EpochReport::default(), &Stop::new(), &mut observe).expect("no faults");
        let tolerance = 1e-2 * predicted.seconds / n as f64 + 9.0 * n as f64 * 1e-9;
        assert!(
            (report.seconds - predicted.seconds).abs() <= tolerance,
            "{trainers}: {} {}",
            report.seconds,
            predicted.seconds
        );
        let phase = |work: RolesWork| [Phase::Batching, Phase::Transferring, Phase::Training][work as usize];
        let mut expected: Vec<(usize, u32, Phase, f64, f64)> = predicted
            .activities
            .iter()
            .map(|a| (a.step.device, a.step.batch as u32, phase(a.step.work), a.span.start, a.span.end))
            .collect();
        let by = |a: &(usize, u32, Phase, f64, f64), b: &(usize, u32, Phase, f64, f64)| {
            (a.0, a.1, a.2).cmp(&(b.0, b.1, b.2)).then(a.3.total_cmp(&b.3))
        };
        done.sort_by(by);
        expected.sort_by(by);
        assert_eq!(done.len(), expected.len());
        for (done, expected) in done.iter().zip(&expected) {
            assert_eq!((done.0, done.1, done.2), (expected.0, expected.1, expected.2));
            let near = |a: f64, b: f64| (a - b).abs() <= tolerance;
            assert!(near(done.3, expected.3) && near(done.4, expected.4), "{done:?}, predicted {expected:?}");
        }
    }
}

/// Stopped after any step, a run goes on to the report of one that was not.
#[test]
fn an_epoch_is_continued_after_a_stop_and_from_an_export() {
    for staleness in [0, 2] {
        is_continued(staleness);
    }
}

fn is_continued(staleness: usize) {
    let n = 24;
    let rig =
        Rig::configured(n, 4, "batching-device=300us,transferring-peer=100us,transferring-device=100us,training=200us");
    let described = Rig::described(n, 4, [0.01, 0.01, 1e-5]).problem([3, 2], 0.0, 0.0);
    let problem = RolesProblem { num_batches: n, staleness, ..described };
    let segments = [
        Segment { from: 0, trainers: 1 },
        Segment { from: 7, trainers: 2 },
        Segment { from: 15, trainers: 1 },
        Segment { from: 21, trainers: 4 },
    ];
    // Which device samples a share of a segment depends on times, and so do the bytes that are copied.
    let counts = |report: &EpochReport| (report.batches, report.seeds, report.score);
    let whole =
        rig.executor(&problem, &segments).train_on(0, EpochReport::default(), &Stop::new(), &mut |_| Control::Continue);
    let whole = whole.expect("no faults");
    assert_eq!((whole.batches, whole.seeds), (n, (n * BATCH) as u64));
    for after in [0, 5, 6, 7, 14, 22] {
        let mut executor = rig.executor(&problem, &segments);
        let stop = Stop::new();
        let report = executor.train_on(0, EpochReport::default(), &stop, &mut |event| {
            if matches!(event, Event::Trained(done) if done.id.index == after) {
                stop.request();
            }
            Control::Continue
        });
        let report = report.expect("no faults");
        // Steps that have begun are completed.
        let most = (after as usize + 1 + staleness).min(n);
        assert!((after as usize + 1..=most).contains(&report.batches), "{after}: {}", report.batches);
        assert_eq!(report.remaining, (report.batches as u32..n as u32).collect::<Vec<_>>());
        assert_eq!(report.stopped, report.batches < n);
        let rest = executor.train_on(0, report, &Stop::new(), &mut |_| Control::Continue).expect("no faults");
        assert_eq!(counts(&rest), counts(&whole), "{after}");
        rig.check(&mut executor, 0..n);
        // A checkpoint at the same step, continued by other operators.
        let mut exported: Option<(TrainingState, EpochReport)> = None;
        let mut first = rig.executor(&problem, &segments);
        let done = first.train_on(0, EpochReport::default(), &Stop::new(), &mut |event| match event {
            Event::Trained(done) if done.id.index == after => Control::Export,
            Event::Exported(state, report) => {
                exported = Some(((*state).clone(), (*report).clone()));
                Control::Continue
            }
            _ => Control::Continue,
        });
        assert_eq!(counts(&done.expect("no faults")), counts(&whole));
        let (_, so_far) = exported.expect("exported");
        let trained = so_far.batches;
        assert!((after as usize + 1..=most).contains(&trained), "{after}: {trained}");
        let mut second = rig.executor(&problem, &segments);
        let rest = second.train_on(0, so_far, &Stop::new(), &mut |_| Control::Continue).expect("no faults");
        assert_eq!(counts(&rest), counts(&whole), "{after}");
        rig.check(&mut second, trained..n);
    }
}

/// Whatever fails, the run ends with the operator and the mini-batch, and no thread is left.
#[test]
fn failures_are_named() {
    let n = 12;
    let fresh = RolesProblem { num_batches: n, ..Rig::described(n, 3, [0.01, 0.01, 1e-5]).problem([3, 2], 0.0, 0.0) };
    let stale = RolesProblem { staleness: 2, ..fresh };
    for ((fault, key), problem) in [
        ("fault=batching-device:error@0:5", "Batching_PCIe+SIM_Neighbor"),
        ("fault=transferring-peer:panic@0:5", "Transferring_PCIe+Peer+SIM_SimCopy"),
        ("fault=training:error@0:5", "Training_SIM_Ledger"),
        ("fault=training:panic@0:5", "Training_SIM_Ledger"),
    ]
    .into_iter()
    .flat_map(|fault| [(fault, fresh), (fault, stale)])
    {
        let rig = Rig::configured(n, 3, &format!("batching-device=0s,transferring-peer=0s,training=0s,{fault}"));
        let mut executor = rig.executor(&problem, &[Segment { from: 0, trainers: 2 }]);
        let outcome: Result<EpochReport> =
            executor.train_on(0, EpochReport::default(), &Stop::new(), &mut |_| Control::Continue);
        let error = outcome.expect_err("a fault").to_string();
        assert!(error.contains(key) && error.contains("mini-batch 5 of epoch 0"), "{fault}: {error}");
        let again = executor.train_on(0, EpochReport::default(), &Stop::new(), &mut |_| Control::Continue);
        assert!(!fault.contains("panic") || again.is_err(), "{fault}: a lost operator");
    }
}

/// The planned roles, changes of them included, run as planned.
#[test]
fn planned_roles_run_as_planned() {
    let n = 60;
    let rig = Rig::described(n, 3, [0.01, 1.0, 1.2e-5]);
    let problem = rig.problem([8, 2], 0.0, 0.0);
    let training = problem.sampling;
    // As much work in both roles: a device takes turns.
    let plan = roles(&RolesProblem { training, ..problem }).expect("valid");
    assert!(plan.segments.len() > 1, "{plan:?}");
    let mut executor = rig.executor(&problem, &plan.segments);
    let report =
        executor.train_on(0, EpochReport::default(), &Stop::new(), &mut |_| Control::Continue).expect("no faults");
    let predicted = problem.simulate(&plan.segments).expect("a device samples");
    assert!((report.seconds / predicted - 1.0).abs() < 0.02, "{} s, predicted {predicted} s", report.seconds);
    rig.check(&mut executor, 0..n);
}
