//! Sizes of caches, chosen with the plan.

use crate::common::{CpuOnly, DEVICE, TwoRoutes, check::check};
use morphgl_plan::{
    Bytes, Cache, CacheCurve, CacheMemory, CachePoint, Candidate, Limits, Plan, Plans, Problem, bound, memory, plan,
    timeline,
};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

/// A cache of 40 MiB whose `points` are of MiB and seconds saved per mini-batch.
fn cache(operator: &str, points: &[(u64, f64)], build_seconds: f64) -> Cache {
    let point = |&(mib, saved_seconds): &(u64, f64)| CachePoint { bytes: mib * MIB, saved_seconds };
    let points = points.iter().map(point).collect();
    Cache {
        operator: operator.parse().expect("a key"),
        memory: CacheMemory::Host,
        curve: CacheCurve { bytes: 40 * MIB, free_bytes: None, build_seconds, batch_seconds: 0.040, points },
        hit_rate: None,
    }
}

/// Four workers on four cores that train in a tenth of the time of batching. A worker takes 20 MiB, a mini-batch 1 MiB.
fn machine(n: usize, host_bytes: Option<u64>, points: &[(u64, f64)], epochs: Option<u32>) -> Problem {
    // Seconds of a pool fall with its workers: batching waits for the disk.
    let batching = (1..=4).map(|w| (w, 1, 0.040 / w as f64)).collect();
    let machine = CpuOnly { n, cores: 4, batching, transferring: 0.0, training: vec![(1, 0.004), (4, 0.002)] };
    let whole = machine.problem();
    let bytes = Bytes { batched: MIB, ready: MIB, worker: 20 * MIB };
    let routes: Vec<Candidate> = whole.routes().iter().map(|r| Candidate { bytes, ..r.clone() }).collect();
    let limits = Limits { host_bytes, epochs, ..Limits::default() };
    let problem = Problem::new(n, whole.resources().to_vec(), routes).expect("the problem is valid");
    let caches = vec![cache("Batching_CPU_Neighbor", points, 10.0)];
    problem.with_caches(caches).expect("the curve is valid").with_limits(limits)
}

/// The best plan, and the best one with the cache as profiled.
#[track_caller]
fn best(problem: &Problem) -> (Plan, Plan) {
    let [chosen, profiled] = [problem, &problem.settled(&[])].map(|p| plan(p).expect("it fits").best().clone());
    (chosen, profiled)
}

fn size(plan: &Plan) -> u64 {
    plan.caches[0].bytes
}

#[test]
fn a_larger_cache_beats_more_workers_where_it_saves_most() {
    // 120 MiB: beside 40 of cache there is room for three workers with their buffers, beside 80 for one.
    let problem = machine(400, Some(120 * MIB), &[(20, 0.0), (40, 0.002), (80, 0.036), (400, 0.0361)], None);
    let (chosen, profiled) = best(&problem);
    assert!(size(&chosen) > 60 * MIB, "{chosen}: {}", chosen.caches[0]);
    assert!(chosen.schedule.shares[0].workers < profiled.schedule.shares[0].workers, "{chosen}, and {profiled}");
    assert!(chosen.prediction.epoch_seconds < 0.8 * profiled.prediction.epoch_seconds, "{chosen}, and {profiled}");
    let text = chosen.caches[0].to_string();
    for part in
        ["Batching_CPU_Neighbor holds", "(profiled with 40.0 MiB), which saves", "more a mini-batch", "are left"]
    {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn more_workers_beat_a_larger_cache_where_it_saves_little() {
    let problem = machine(400, Some(120 * MIB), &[(15, 0.0), (40, 0.001), (80, 0.0015), (400, 0.002)], None);
    let (chosen, profiled) = best(&problem);
    assert!(size(&chosen) < 40 * MIB, "{chosen}: {}", chosen.caches[0]);
    assert!(chosen.schedule.shares[0].workers > profiled.schedule.shares[0].workers, "{chosen}, and {profiled}");
    assert!(chosen.prediction.epoch_seconds < 0.98 * profiled.prediction.epoch_seconds, "{chosen}, and {profiled}");
    assert!(chosen.caches[0].to_string().contains("which costs"), "{}", chosen.caches[0]);
}

#[test]
fn what_saves_less_than_building_takes_is_not_built() {
    let points = [(20, 0.0), (40, 0.005), (80, 0.025), (100, 0.026)];
    // Building takes 10 s; the larger cache saves about 2 s of each epoch.
    let chosen = |epochs| best(&machine(400, Some(300 * MIB), &points, epochs));
    let (many, profiled) = chosen(None);
    let gain = profiled.prediction.epoch_seconds - many.prediction.epoch_seconds;
    assert!(size(&many) > 40 * MIB && gain > 0.5, "{many}, and {profiled}");
    let enough = (10.0 / gain).floor() as u32 + 1;
    assert_eq!(size(&chosen(Some(enough)).0), size(&many));
    let (few, profiled) = chosen(Some(enough - 1));
    assert_eq!(few, profiled, "{enough} epochs pay for building");
    assert!(few.caches[0].to_string().contains("40.0 MiB, as profiled; 260.0 MiB are left"), "{}", few.caches[0]);
}

#[test]
fn a_gain_of_less_than_a_fiftieth_changes_nothing() {
    let (chosen, profiled) = best(&machine(400, Some(400 * MIB), &[(20, 0.0), (40, 0.001), (400, 0.0016)], None));
    assert_eq!(chosen, profiled);
}

#[test]
fn a_cache_that_leaves_no_room_is_made_smaller() {
    let points = [(10, 0.0), (40, 0.01)];
    let problem = machine(20, Some(35 * MIB), &points, Some(1));
    plan(&problem.settled(&[])).expect_err("the profiled cache alone takes more");
    let plans = plan(&problem).expect("a smaller one fits");
    assert!(plans.best().memory.all_host() <= 35 * MIB, "{:?}", plans.best().memory);
    // The error is of the smallest cache.
    let refused = plan(&problem.with_limits(Limits { host_bytes: Some(20 * MIB), ..Limits::default() }));
    let refused = refused.expect_err("a cache of 10 MiB, a worker and a mini-batch take more");
    assert_eq!((refused.minimum.caches, refused.minimum.host), (10 * MIB, 21 * MIB));
    assert!(refused.to_string().contains("31.0 MiB, 10.0 MiB of it for caches, of the host's 20.0 MiB"), "{refused}");
}

#[test]
fn without_a_limit_caches_stay_as_profiled() {
    let (chosen, profiled) = best(&machine(50, None, &[(20, 0.0), (40, 0.001), (80, 0.03)], None));
    assert_eq!(chosen, profiled);
    assert_eq!((size(&chosen), chosen.caches[0].left_bytes), (40 * MIB, None));
}

#[test]
fn invalid_curves_are_refused() {
    let two = TwoRoutes::new(10, 2, [0.01; 5]).problem();
    let refused = |caches: Vec<Cache>, words: &str| {
        let error = two.clone().with_caches(caches).expect_err("it is invalid").to_string();
        assert!(error.contains("Batching_CPU_X") && error.contains(words), "{error}");
    };
    let of = |points: &[(u64, f64)]| cache("Batching_CPU_X", points, 0.0);
    refused(vec![of(&[(2, 0.0), (1, 1.0)])], "ascending");
    refused(vec![of(&[(1, 1.0), (2, 0.5)])], "no less");
    refused(vec![of(&[(1, f64::NAN)])], "finite");
    refused(vec![cache("Batching_CPU_X", &[], -1.0)], "not negative");
    refused(vec![of(&[]), of(&[])], "two caches");
}

#[test]
fn only_the_caches_of_a_plans_routes_count() {
    let two = TwoRoutes::new(200, 4, [0.04, 0.004, 0.005, 0.003, 0.002]);
    let cache = cache("Batching_CPU_Neighbor", &[(20, 0.0), (40, 0.001), (80, 0.02)], 0.0);
    let limits = Limits { host_bytes: Some(100 * MIB), ..two.limits() };
    let problem = two.problem().with_caches(vec![cache]).expect("it is valid").with_limits(limits);
    for p in plan(&problem).expect("it fits").all() {
        let by_host = p.schedule.shares.iter().any(|s| s.keys.batching.to_string() == "Batching_CPU_Neighbor");
        assert_eq!((p.caches.len(), p.memory.caches > 0), (usize::from(by_host), by_host), "{p}");
    }
}

/// A device that gathers for its own sampler and trains, with room for so many bytes: a mini-batch takes 10 MiB there, and a cache of
/// all rows, of 100 MiB, saves `saved` of the 10 ms of a gather.
fn device(device_bytes: Option<u64>, saved: f64) -> Problem {
    let two = TwoRoutes::new(300, 2, [10.0, 10.0, 0.002, 0.010, 0.004]);
    let bytes = Bytes { batched: 0, ready: 10 * MIB, worker: 5 * MIB };
    let whole = two.problem();
    let routes = whole.routes()[DEVICE..].iter().map(|r| Candidate { bytes, ..r.clone() }).collect();
    let points = [(0, 0.0), (50, 0.8 * saved), (100, saved)];
    let points = points.map(|(mib, saved_seconds)| CachePoint { bytes: mib * MIB, saved_seconds }).to_vec();
    let free_bytes = Some(150 * MIB);
    let cache = Cache {
        operator: "Transferring_PCIe+SIM_Gather".parse().expect("a key"),
        memory: CacheMemory::Device,
        curve: CacheCurve { bytes: 0, free_bytes, build_seconds: 0.0, batch_seconds: 0.010, points },
        hit_rate: None,
    };
    let problem = Problem::new(300, whole.resources().to_vec(), routes).expect("the problem is valid");
    problem.with_caches(vec![cache]).expect("the curve is valid").with_limits(Limits { device_bytes, ..two.limits() })
}

/// As [`device`], with a cache of the sampler's adjacency lists beside that of rows: all lists take 60 MiB, of which the first 20 save
/// most.
fn device_with_lists(device_bytes: u64) -> Problem {
    let (problem, device_bytes) = (device(Some(device_bytes), 0.009), Some(device_bytes));
    let points = [(0, 0.0), (20, 0.0012), (60, 0.0016)];
    let points = points.map(|(mib, saved_seconds)| CachePoint { bytes: mib * MIB, saved_seconds }).to_vec();
    let curve =
        CacheCurve { bytes: 30 * MIB, free_bytes: Some(120 * MIB), build_seconds: 0.0, batch_seconds: 0.002, points };
    let key = problem.routes()[0].keys.batching.clone();
    let lists = Cache { operator: key, memory: CacheMemory::Device, curve, hit_rate: None };
    let caches = problem.caches().iter().cloned().chain([lists]).collect();
    let limits = Limits { device_bytes, ..TwoRoutes::new(300, 2, [10.0, 10.0, 0.002, 0.010, 0.004]).limits() };
    problem.with_caches(caches).expect("the curves are valid").with_limits(limits)
}

/// DUCATI's one budget: with little memory the first lists, which save most per byte, then rows, then all of both.
#[test]
fn the_memory_of_a_device_is_divided_between_lists_rows_and_buffers() {
    let mut sizes = Vec::new();
    for limit in [40, 60, 100, 150, 1000] {
        let chosen = plan(&device_with_lists(limit * MIB)).expect("it fits").best().clone();
        assert!(chosen.memory.all_device() <= limit * MIB, "{limit} MiB: {:?}", chosen.memory);
        let of = |phase: &str| {
            let found = chosen.caches.iter().find(|c| c.operator.to_string().starts_with(phase));
            found.expect("both caches are used").bytes
        };
        let (lists, rows) = (of("Batching"), of("Transferring"));
        assert_eq!(chosen.memory.device_caches, lists + rows, "bytes to the byte");
        sizes.push((lists / MIB, rows / MIB));
    }
    // 15 MiB are a worker's and a mini-batch's. Rows up to 50 MiB save more per byte than lists, and lists up to 20 more than other rows.
    assert_eq!(sizes[0].0, 0, "{sizes:?}");
    assert!(sizes[2].0 >= 15 && sizes[2].1 >= 50, "{sizes:?}");
    assert_eq!(sizes[4], (60, 100), "{sizes:?}");
}

#[test]
fn the_memory_of_a_device_is_divided_between_its_cache_and_buffers() {
    let epoch = |plan: &Plan| plan.prediction.epoch_seconds;
    let mut before = f64::INFINITY;
    // A worker and the only mini-batch of a sequential schedule take 15 MiB.
    for limit in [30, 60, 90, 150, 1000] {
        let limits = limit * MIB;
        let (chosen, none) = best(&device(Some(limits), 0.009));
        let Plan { memory: held, caches, .. } = &chosen;
        assert!(held.all_device() <= limits && held.device >= 15 * MIB, "{limit} MiB: {held:?}");
        assert_eq!((held.caches, held.device_caches, caches[0].memory), (0, caches[0].bytes, CacheMemory::Device));
        assert_eq!(caches[0].left_bytes, Some(limits - caches[0].bytes));
        assert!(epoch(&chosen) < 0.98 * epoch(&none) && epoch(&chosen) <= before, "{limit} MiB: {chosen}, and {none}");
        before = epoch(&chosen);
        let text = caches[0].to_string();
        assert!(text.contains("Transferring_PCIe+SIM_Gather holds") && text.contains("MiB of device memory"), "{text}");
    }
    // With room for all, the gather takes a tenth: batching, gathering and training hold the device one after the other.
    let (chosen, _) = best(&device(Some(1000 * MIB), 0.009));
    assert_eq!(chosen.caches[0].bytes, 100 * MIB);
    assert!((epoch(&chosen) / 300.0 - 0.007).abs() < 2e-4, "{chosen}");
    // Buffers are worth more than rows that save nothing.
    let (chosen, none) = best(&device(Some(90 * MIB), 0.0));
    assert_eq!((chosen.caches[0].bytes, &chosen), (0, &none));
    // Without a limit there is nothing to divide; with too little there is no plan.
    assert_eq!(best(&device(None, 0.009)).0.caches[0].bytes, 0);
    let refused = plan(&device(Some(10 * MIB), 0.009)).expect_err("a worker and a mini-batch take 15 MiB");
    assert!(refused.to_string().contains("15.0 MiB of the device's 10.0 MiB"), "{refused}");
}

#[test]
fn a_plan_of_an_earlier_layout_is_read() {
    let (chosen, _) = best(&device(Some(90 * MIB), 0.009));
    let mut json = serde_json::to_value(&chosen).expect("plain data");
    let cache = json["caches"][0].as_object_mut().expect("an object");
    let operator = cache.remove("operator").expect("written");
    cache.remove("memory");
    cache.insert("batching".into(), operator);
    json["memory"].as_object_mut().expect("an object").remove("device_caches");
    let read: Plan = serde_json::from_value(json).expect("an earlier layout");
    assert_eq!((read.caches[0].memory, &read.caches[0].operator), (CacheMemory::Host, &chosen.caches[0].operator));
}

/// Points of ascending sizes from 5 MiB on that save ever more, up to twice what a mini-batch takes.
fn points() -> impl Strategy<Value = Vec<(u64, f64)>> {
    prop::collection::vec((1u64..60, prop_oneof![1 => Just(0.0), 3 => 0.0..0.02f64]), 2..8).prop_map(|steps| {
        let (mut mib, mut saved) = (4, 0.0);
        let step = |(more, seconds)| {
            (mib, saved) = (mib + more, saved + seconds);
            (mib, saved)
        };
        steps.into_iter().map(step).collect()
    })
}

#[track_caller]
fn check_all(problem: &Problem, plans: &Plans) {
    let limit = problem.limits.host_bytes.expect("it is limited");
    let least = bound(problem);
    for p in plans.all() {
        let sum: u64 = p.caches.iter().map(|c| c.bytes).sum();
        assert_eq!(sum, p.memory.caches);
        assert!(p.memory.all_host() <= limit, "{:?} of {limit}: {p}", p.memory);
        assert!(p.prediction.epoch_seconds >= least * (1.0 - 1e-9), "{p} is below the bound {least}");
        assert_eq!(p.memory, memory(&problem.settled(&p.caches), &p.schedule));
        check(&p.schedule, &timeline(&p.schedule));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_budget_holds_and_no_plan_is_worse_than_as_profiled(
        points in points(), limit in 20u64..400, epochs in prop_oneof![Just(None), (1u32..100).prop_map(Some)], n in 1usize..60,
    ) {
        let problem = machine(n, Some(limit * MIB), &points, epochs);
        let profiled = plan(&problem.settled(&[]));
        let Ok(plans) = plan(&problem) else {
            prop_assert!(profiled.is_err(), "what is profiled fits");
            return Ok(());
        };
        check_all(&problem, &plans);
        prop_assert_eq!(&plans, &plan(&problem).expect("it did before"));
        let chosen = plans.best();
        if let Ok(profiled) = &profiled {
            let [before, after] = [profiled.best(), chosen].map(|p| p.prediction.epoch_seconds);
            prop_assert!(after <= before, "{} and {}", after, before);
            if chosen.caches[0].bytes == 40 * MIB {
                prop_assert_eq!(plans.all().len(), profiled.all().len());
                prop_assert_eq!(chosen, profiled.best());
            } else {
                prop_assert!(after <= 0.98 * before, "{} and {}", after, before);
                let epochs = epochs.map_or(f64::INFINITY, f64::from);
                prop_assert!(epochs * (before - after) > 10.0, "{} epochs, {} and {}", epochs, before, after);
            }
        }
        // The problem settled on the plan's sizes has that plan, and no other size.
        let settled = plan(&problem.settled(&chosen.caches)).expect("it fits");
        prop_assert_eq!(&settled.best().schedule, &chosen.schedule);
    }

    #[test]
    fn a_curve_that_saves_nothing_changes_nothing(seconds in 0.0..1.0f64, more in 0u64..1000, n in 1usize..60) {
        // Room for all workers and buffers.
        let problem = machine(n, Some((400 + more) * MIB), &[(5, seconds), (40, seconds), (300, seconds)], None);
        let without = problem.clone().with_caches(Vec::new()).expect("none is invalid");
        let (with, without) = (plan(&problem).expect("it fits"), plan(&without).expect("it fits"));
        prop_assert_eq!(with.all().len(), without.all().len());
        for (with, without) in with.all().iter().zip(without.all()) {
            prop_assert_eq!((&with.schedule, &with.prediction), (&without.schedule, &without.prediction));
            prop_assert_eq!(with.caches[0].bytes, 40 * MIB);
        }
    }

    #[test]
    fn caches_survive_json(points in points(), limit in 90u64..400) {
        let problem = machine(9, Some(limit * MIB), &points, Some(3));
        let text = serde_json::to_string(&problem).expect("a problem is plain data");
        let again: Problem = serde_json::from_str(&text).expect("what was written can be read");
        prop_assert_eq!(again.caches().len(), 1);
        prop_assert_eq!(&again.caches()[0].operator, &problem.caches()[0].operator);
        let chosen = plan(&problem).expect("it fits").best().clone();
        let text = serde_json::to_string(&chosen).expect("a plan is plain data");
        let read: Plan = serde_json::from_str(&text).expect("what was written can be read");
        prop_assert_eq!((read.caches[0].bytes, read.memory), (chosen.caches[0].bytes, chosen.memory));
    }
}
