//! Epochs with known times: sums, flow shops, and the dual buffer step by step.

use crate::common::{DEVICE, HOST, Random, TwoRoutes, check::check};
use morphgl_plan::{
    Contention, Durations, InterferencePoint, Limits, Phase, Policy, Problem, Schedule, Simulation, Strategy, bound,
    plan, simulate, timeline,
};

/// Simulates and checks all constraints.
#[track_caller]
fn run(schedule: &Schedule) -> Simulation {
    let simulation = timeline(schedule);
    check(schedule, &simulation);
    simulation
}

#[track_caller]
fn assert_close(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-9 * b.abs().max(1.0), "{a}, expected {b}");
}

/// Every start but those of the host's batching, as "seconds phase share number".
fn starts(simulation: &Simulation, host_batching: bool) -> Vec<String> {
    let mut counts = [[0; 3]; 2];
    let mut found = Vec::new();
    for a in &simulation.activities {
        let number = &mut counts[a.share][a.phase as usize];
        if host_batching || a.share == DEVICE || a.phase != Phase::Batching {
            let (phase, share) = (["batch", "move", "train"][a.phase as usize], ["host", "device"][a.share]);
            found.push(format!("{} {phase} {share} {number}", a.span.start));
        }
        *number += 1;
    }
    // Steps that begin at the same time are sorted.
    found.sort_by(|a, b| {
        let time =
            |s: &str| s.split(' ').next().and_then(|s| s.parse::<f64>().ok()).expect("a line begins with its time");
        time(a).total_cmp(&time(b)).then(a.cmp(b))
    });
    found
}

#[test]
fn a_sequential_epoch_is_the_sum_of_its_phases() {
    let two = TwoRoutes::new(7, 3, [0.5, 0.25, 0.125, 0.0625, 1.0]);
    assert_close(run(&two.single(Policy::Sequential, HOST)).seconds, 7.0 * 1.75);
    assert_close(run(&two.single(Policy::Sequential, DEVICE)).seconds, 7.0 * 1.1875);
    assert_close(run(&two.schedule(Policy::Sequential, 4, (0, 0))).seconds, 4.0 * 1.75 + 3.0 * 1.1875);
}

#[test]
fn a_pipeline_takes_its_longest_phase_and_the_others_once() {
    // One worker: a flow shop of equal mini-batches takes all phases once and the longest n - 1 times more.
    for durations in [[3.0, 1.0, 0.0, 0.0, 2.0], [1.0, 3.0, 0.0, 0.0, 2.0], [1.0, 2.0, 0.0, 0.0, 3.0], [2.0; 5]] {
        for n in [1, 2, 50] {
            let two = TwoRoutes::new(n, 1, durations);
            let [b, t, _, _, m] = durations;
            let longest = b.max(t).max(m);
            assert_close(run(&two.single(Policy::Pipeline, HOST)).seconds, b + t + m + (n - 1) as f64 * longest);
        }
    }
}

#[test]
fn a_pool_delivers_in_rounds() {
    // 10 mini-batches by 4 workers are 3 rounds of 8 s; the last round's two are moved and trained in turn.
    let two = TwoRoutes::new(10, 4, [8.0, 1.0, 0.0, 0.0, 0.5]);
    assert_close(run(&two.single(Policy::Pipeline, HOST)).seconds, 24.0 + 2.0 + 0.5);
    assert_close(
        plan(&two.problem())
            .expect("there is memory")
            .best_of(Strategy::Pipeline)
            .expect("a pipeline")
            .prediction
            .epoch_seconds,
        26.5,
    );
}

#[test]
fn one_slot_on_the_device_makes_a_transfer_wait_for_the_step_before() {
    let two = TwoRoutes { ready: 1, ..TwoRoutes::new(4, 1, [1.0, 2.0, 0.0, 0.0, 3.0]) };
    // A slot is free again when its mini-batch begins to be trained, so transfers are hidden behind steps.
    assert_close(run(&two.single(Policy::Pipeline, HOST)).seconds, 1.0 + 2.0 + 4.0 * 3.0);
    // One batched slot: the next mini-batch is batched while this one is transferred.
    let two = TwoRoutes { batched: 1, ..TwoRoutes::new(4, 2, [3.0, 4.0, 0.0, 0.0, 1.0]) };
    assert_close(run(&two.single(Policy::Pipeline, HOST)).seconds, 3.0 + 4.0 * 4.0 + 1.0);
    assert_close(
        run(&TwoRoutes { host: 6.0, ..two }.single(Policy::Pipeline, HOST)).seconds,
        6.0 + 3.0 * 6.0 + 4.0 + 1.0,
    );
}

#[test]
fn the_dual_buffer_fills_blocks_and_flushes() {
    // cbs 2 beside the one worker's, gbs 2; four of the host's, six of the device's.
    let two = TwoRoutes { batched: 3, ready: 2, ..TwoRoutes::new(10, 1, [3.0, 1.0, 1.0, 1.0, 1.0]) };
    let simulation = run(&two.schedule(Policy::DualBuffer, 4, (0, 0)));
    let expected = [
        // Filling: the host batches all the time, the device two of its own.
        "0 batch device 0",
        "0 batch host 0",
        "1 move device 0",
        "2 batch device 1",
        "3 batch host 1",
        "3 move device 1",
        // Blocking, footnote 3: the device's buffer is full and the host's is not: one is trained, another batched in its place.
        "4 train device 0",
        "5 batch device 2",
        "6 batch host 2",
        "6 move device 2",
        // Flushing: the host's two are moved while what is ready is trained.
        "7 move host 0",
        "7 train device 1",
        "8 move host 1",
        "8 train",
        "9 batch host 3",
        "9 train",
        "10 train",
        // Filling and blocking of the next overlap; the host's last is done at 12.
        "11 batch device 3",
        "12 move device 3",
        "13 batch device 4",
        "14 move device 4",
        // Flushing.
        "15 move host 2",
        "15 train device 3",
        "16 move host 3",
        "16 train",
        "17 train",
        "18 train",
        // What remains, of the device alone.
        "19 batch device 5",
        "20 move device 5",
        "21 train device 5",
    ];
    let found = starts(&simulation, true);
    // Which of the ready ones is trained first makes no difference.
    let agrees = |(found, expected): (&String, &&str)| found.starts_with(expected);
    assert!(found.len() == expected.len() && found.iter().zip(&expected).all(agrees), "{found:#?}");
    assert_eq!(simulation.seconds, 22.0);
}

#[test]
fn the_dual_buffer_flushes_every_waiting_mini_batch() {
    // cbs 1 beside the one worker's, gbs 1: the worker's mini-batch ends, too, when the device's first is ready, and is flushed with it.
    let two = TwoRoutes { batched: 2, ready: 1, ..TwoRoutes::new(4, 1, [0.5, 1.0, 2.0, 1.0, 1.0]) };
    let found = starts(&run(&two.schedule(Policy::DualBuffer, 2, (0, 0))), false);
    let expected = [
        "0 batch device 0",
        "2 move device 0",
        "3 move host 0",
        "3 train device 0",
        "4 move host 1",
        "4 train host 0",
        "5 train host 1",
        "6 batch device 1",
        "8 move device 1",
        "9 train device 1",
    ];
    assert_eq!(found, expected);
}

#[test]
fn interleaved_groups_alternate_with_transfers() {
    // A cycle: two of the device's are batched in 3 s, then one of the host's is moved in 2 s while three are trained in 3 s.
    let two = TwoRoutes { ready: 4, ..TwoRoutes::new(30, 1, [4.0, 2.0, 1.0, 0.5, 1.0]) };
    let simulation = run(&two.schedule(Policy::Interleaved, 10, (2, 1)));
    let found = starts(&simulation, false);
    let groups = found.iter().filter(|s| !s.contains("train")).map(|s| s.split_once(' ').expect("a time").1);
    let groups: Vec<&str> = groups.collect();
    for k in 2..8 {
        // Two mini-batches of the device come between two transfers of the host's.
        let at = |k: usize| groups.iter().position(|s| *s == format!("move host {k}")).expect("it is moved");
        let between = &groups[at(k) + 1..at(k + 1)];
        assert_eq!(between.iter().filter(|s| s.starts_with("batch device")).count(), 2, "{groups:#?}");
    }
    assert!(simulation.seconds >= 60.0 && simulation.seconds <= 66.0, "{}", simulation.seconds);
}

#[test]
fn equation_6_divides_the_mini_batches() {
    // C'(x) is minimal where training and the host's rest are equal: 2 = (30 - 10x) / (1 + x), so x = 28/12 and cbs = 10/x = 4.3.
    let two = TwoRoutes::new(1400, 1, [30.0, 1.0, 6.0, 4.0, 2.0]);
    let plans = plan(&two.problem()).expect("there is memory");
    let paper = plans.best_of(Strategy::Paper).expect("there are two routes");
    assert_eq!(paper.schedule.policy, Policy::DualBuffer);
    assert_eq!(paper.schedule.ready, 10);
    let cbs = paper.schedule.batched - 1;
    assert!((3..=5).contains(&cbs), "cbs {cbs}");
    assert_eq!(paper.schedule.shares[0].batches, (1400.0 * cbs as f64 / (cbs + 10) as f64).round() as usize);
    let x: f64 = 28.0 / 12.0;
    let relaxed = 1400.0 * (x * 10.0 / (1.0 + x) + 2.0);
    assert!(paper.prediction.epoch_seconds >= relaxed * 0.999, "the relaxation is no upper bound");
    assert!(paper.prediction.epoch_seconds <= relaxed * 1.05, "{} of {relaxed}", paper.prediction.epoch_seconds);
    check(&paper.schedule, &timeline(&paper.schedule));
    // Fluid: of h by the host, 30 h = 2 · 1400 + 10 (1400 - h), and first fills.
    let fluid = 30.0 * 16_800.0 / 40.0;
    assert!((fluid..fluid + 20.0).contains(&bound(&two.problem())), "{} of {fluid}", bound(&two.problem()));
}

#[test]
fn where_training_binds_the_papers_plan_is_a_pipeline() {
    let plans = plan(&TwoRoutes::new(100, 2, [1.0, 1.0, 1.0, 1.0, 3.0]).problem()).expect("there is memory");
    let paper = plans.best_of(Strategy::Paper).expect("there are two routes");
    assert_eq!((paper.schedule.policy, paper.schedule.shares.len()), (Policy::Pipeline, 1));
    // The longest phase and the others once.
    assert_close(plans.best().prediction.epoch_seconds, 1.0 + 1.0 + 300.0);
}

#[test]
fn the_papers_plan_keeps_within_the_limit_of_batched_mini_batches() {
    // Four would be wanted beside the worker's own; two are allowed in all.
    let two = TwoRoutes { batched: 2, ready: 10, ..TwoRoutes::new(1400, 1, [30.0, 1.0, 6.0, 4.0, 2.0]) };
    let plans = plan(&two.problem()).expect("there is memory");
    assert_eq!(plans.best_of(Strategy::Paper).expect("there are two routes").schedule.batched, 2);
}

#[test]
fn a_longest_transfer_does_not_rule_out_the_device() {
    // Transfers take longest, and the device alone is twice as fast as the pipeline.
    let plans = plan(&TwoRoutes::new(500, 4, [1.0, 4.0, 0.5, 0.5, 1.0]).problem()).expect("there is memory");
    assert!(plans.best().prediction.epoch_seconds <= 1000.0, "{}", plans.best());
    assert!(plans.best_of(Strategy::Pipeline).expect("a pipeline").prediction.epoch_seconds > 2000.0);
}

#[test]
fn nothing_to_do_takes_no_time_and_one_mini_batch_takes_its_fastest_route() {
    let two = TwoRoutes::new(0, 2, [1.0, 1.0, 0.5, 0.25, 2.0]);
    for p in plan(&two.problem()).expect("there is memory").all() {
        assert_eq!((p.prediction.epoch_seconds, p.prediction.bound_seconds, p.prediction.ratio()), (0.0, 0.0, 1.0));
        check(&p.schedule, &timeline(&p.schedule));
    }
    let one = plan(&TwoRoutes { n: 1, ..two }.problem()).expect("there is memory");
    assert_close(one.best().prediction.epoch_seconds, 2.75);
    assert_close(one.best().prediction.bound_seconds, 2.75);
}

#[test]
fn utilisation_and_bottleneck_are_those_of_the_epoch() {
    let two = TwoRoutes::new(100, 2, [1.0, 2.0, 9.0, 9.0, 0.5]);
    let plans = plan(&two.problem()).expect("there is memory");
    let p = &plans.best_of(Strategy::Pipeline).expect("a pipeline").prediction;
    assert_close(p.epoch_seconds, 1.0 + 200.0 + 0.5);
    assert_eq!(p.bottleneck.to_string(), "PCIe (transferring)");
    let used: Vec<(&str, f64)> = p.utilisation.iter().map(|u| (u.resource.as_str(), u.share)).collect();
    let [("CPU", cpu), ("PCIe", pcie), ("SIM", sim)] = used[..] else { panic!("{used:?}") };
    assert_close(cpu, 100.0 / (2.0 * 201.5));
    assert_close(pcie, 200.0 / 201.5);
    assert_close(sim, 50.0 / 201.5);
    assert_close(p.first_fill_seconds, 3.0);
}

#[test]
fn files_with_earlier_names_are_read() {
    let limits = serde_json::to_value(Limits::default()).expect("limits are plain data");
    assert_eq!(limits["oversubscription"], 1.1);
    let earlier: Limits = serde_json::from_str(r#"{"crowding": 1.5}"#).expect("an earlier file");
    assert_eq!(earlier.oversubscription, 1.5);
    let point = InterferencePoint {
        workers: 1,
        threads: 1,
        training_threads: 1,
        contention: Contention { batching: 1.0, training: 2.0 },
    };
    let durations = Durations::constant(1, 1.0, 0.0, 1.0).and_then(|d| d.with_interference(vec![point]));
    let durations = durations.expect("factors are valid");
    let mut json = serde_json::to_value(&durations).expect("durations are plain data");
    assert_eq!(json["interference"][0]["contention"]["training"], 2.0);
    let points = json.as_object_mut().expect("a map").remove("interference").expect("it is there");
    json["together"] = points;
    assert_eq!(serde_json::from_value::<Durations>(json).expect("an earlier file"), durations);
    let schedule = TwoRoutes::new(7, 3, [0.5, 0.25, 0.125, 0.0625, 1.0]).single(Policy::Sequential, HOST);
    let mut json = serde_json::to_value(&schedule).expect("schedules are plain data");
    let factor = json.as_object_mut().expect("a map").remove("oversubscription").expect("it is there");
    json["crowding"] = factor;
    assert_eq!(serde_json::from_value::<Schedule>(json).expect("an earlier file"), schedule);
}

/// Trainers of a group wait after each step for the others: a device that queues work batches meanwhile.
#[test]
fn after_its_step_a_device_that_queues_work_goes_on() {
    let machine = TwoRoutes::new(5, 1, [1.0, 1.0, 2.0, 1.0, 1.0]);
    // Batching, gathering, a step and the wait of each; or the wait while the next one is batched, but for the last one.
    for (queued, seconds) in [(false, 5.0 * 6.0), (true, 3.0 + 4.0 * 4.0 + 3.0)] {
        let mut schedule = machine.single(Policy::Pipeline, DEVICE);
        schedule.after_step = 2.0;
        schedule.resources.iter_mut().for_each(|r| r.queued = queued && r.cores.is_none());
        assert_close(simulate(&schedule).seconds, seconds);
    }
}

#[test]
fn plans_with_waits_after_steps_are_not_below_their_bound() {
    let mut random = Random(5);
    for index in 0..60 {
        let machine = random.two_routes(60);
        let after_step = machine.training * 2.0 * random.unit();
        let problem = machine.problem();
        let mut resources = problem.resources().to_vec();
        resources.iter_mut().for_each(|r| r.queued = index % 2 == 0 && r.cores.is_none());
        let problem = Problem::new(problem.num_batches(), resources, problem.routes().to_vec()).expect("valid");
        let waits = problem.clone().with_limits(Limits { after_step, ..Limits::default() });
        let [without, with] = [&problem, &waits].map(|problem| plan(problem).expect("there is memory"));
        for plan in with.all() {
            assert!(plan.prediction.epoch_seconds >= bound(&waits) * (1.0 - 1e-9), "machine {index}: {plan}");
            assert_close(simulate(&plan.schedule).seconds, plan.prediction.epoch_seconds);
        }
        assert!(bound(&waits) >= bound(&problem) * (1.0 - 1e-9), "machine {index}");
        let [without, with] = [without, with].map(|plans| plans.best().prediction.epoch_seconds);
        assert!(without <= with * 1.05, "machine {index}: {without} s without waits, {with} s with");
    }
}
