//! Routes that batch on one device and train on another: their plans, and the memory of both devices.

use crate::common::check::check;
use crate::common::keys;
use morphgl_plan::{
    Bytes, Cache, CacheMemory, Candidate, Durations, Hardware, Limits, Memory, Plan, Problem, Resource, Strategy,
    memory, plan, timeline,
};
use morphgl_registry::{CacheCurve, CachePoint, Key};

const MIB: u64 = 1 << 20;

fn hardware(names: [&[&str]; 3]) -> Hardware {
    let [batching, transferring, training] = names.map(|names| names.iter().map(ToString::to_string).collect());
    Hardware { batching, transferring, training }
}

/// A mini-batch takes 8 ms to sample, 4 to copy and gather, 5 to train; 3 MiB where it is sampled, 2 where it is trained.
fn route(names: [&str; 2], hardware: Hardware, in_place: bool) -> Candidate {
    Candidate {
        keys: keys(names[0], names[1], "SIM_Step"),
        hardware,
        in_place,
        on_host: false,
        durations: Durations::constant(1, 0.008, 0.004, 0.005).expect("durations are valid"),
        bytes: Bytes { batched: 3 * MIB, ready: 2 * MIB, worker: MIB },
    }
}

fn between() -> Candidate {
    let hardware = hardware([&["PCIe:1", "SIM:1"], &["PCIe:0", "Peer:0", "Peer:1", "SIM:0"], &["SIM:0"]]);
    route(["PCIe+SIM_Neighbor", "PCIe+Peer+SIM_Copy"], hardware, false)
}

fn in_place() -> Candidate {
    let hardware = hardware([&["PCIe:0", "SIM:0"], &["PCIe:0", "SIM:0"], &["SIM:0"]]);
    route(["PCIe+SIM_Neighbor", "PCIe+SIM_Gather"], hardware, true)
}

fn problem(routes: Vec<Candidate>, device_bytes: Option<u64>) -> Problem {
    let names = ["PCIe:0", "PCIe:1", "Peer:0", "Peer:1", "SIM:0", "SIM:1"];
    let resources = names.map(Resource::exclusive).to_vec();
    let problem = Problem::new(300, resources, routes).expect("the problem is valid");
    problem.with_limits(Limits { device_bytes, ..Limits::default() })
}

#[test]
fn a_device_samples_while_another_trains() {
    let alone = plan(&problem(vec![in_place()], None)).expect("no limit");
    let both = problem(vec![in_place(), between()], None);
    let plans = plan(&both).expect("no limit");
    let chosen = plans.best();
    // One device alone takes 17 ms per mini-batch; where another samples, it copies, gathers and trains for 9.
    let seconds = |plan: &Plan| plan.prediction.epoch_seconds;
    assert!((seconds(alone.best()) / 300.0 - 0.017).abs() < 1e-4, "{}", alone.best());
    let single = plans.all().iter().find(|p| p.strategy == Strategy::Pipeline).expect("a pipeline of both devices");
    assert!((seconds(single) / 300.0 - 0.009).abs() < 2e-4, "{single}");
    assert!(seconds(chosen) <= seconds(single));
    for plan in plans.all() {
        check(&plan.schedule, &timeline(&plan.schedule));
        assert_eq!(plan.memory, memory(&both, &plan.schedule));
        assert_eq!(plan.num_batches(), 300);
    }
}

#[test]
fn a_mini_batch_takes_memory_where_it_was_sampled_until_it_is_moved() {
    for limit in [None, Some(12 * MIB), Some(9 * MIB)] {
        let problem = problem(vec![between()], limit);
        let plans = plan(&problem).expect("it fits");
        for plan in plans.all() {
            let [batched, ready] = [plan.schedule.batched, plan.schedule.ready].map(|n| n as u64);
            assert!(batched <= Limits::default().ready as u64, "a device's memory is small: {plan}");
            let in_training = u64::from(plan.strategy != Strategy::Sequential);
            // One more is being moved.
            let (sampler, device) = (MIB + (batched + 1) * 3 * MIB, (ready + in_training) * 2 * MIB);
            assert_eq!(plan.memory, Memory { sampler, device, ..Memory::default() }, "{plan}");
            assert!(limit.is_none_or(|limit| sampler.max(device) <= limit), "{limit:?}: {plan}");
        }
    }
    let refused = plan(&problem(vec![between()], Some(3 * MIB))).expect_err("one is sampled while another is moved");
    assert_eq!(refused.minimum, Memory { sampler: 7 * MIB, device: 2 * MIB, ..Memory::default() });
    assert!(refused.to_string().contains("7.0 MiB of the device's 3.0 MiB"), "{refused}");
}

/// The caches of the sampler and of the gather lie on two devices: each has a budget of its own.
#[test]
fn caches_of_two_devices_do_not_share_a_budget() {
    let durations = Durations::constant(1, 0.002, 0.004, 0.005).expect("durations are valid");
    let route = Candidate { durations, ..between() };
    let cache = |operator: &Key, held: u64, seconds: f64| {
        let point = |mib: u64, saved_seconds| CachePoint { bytes: mib * MIB, saved_seconds };
        let points = vec![point(0, 0.0), point(40, seconds / 2.0)];
        let (bytes, free_bytes, build_seconds) = (held * MIB, None, 0.0);
        let curve = CacheCurve { bytes, free_bytes, build_seconds, batch_seconds: seconds, points };
        Cache { operator: operator.clone(), memory: CacheMemory::Device, curve, hit_rate: None }
    };
    let caches = vec![cache(&route.keys.batching, 10, 0.002), cache(&route.keys.transferring, 0, 0.004)];
    let problem = problem(vec![route], Some(46 * MIB)).with_caches(caches).expect("valid curves");
    let plans = plan(&problem).expect("it fits");
    let Plan { memory, caches, .. } = plans.best();
    // Sampling is not what an epoch waits for, and its cache stays as it is.
    assert_eq!((memory.sampler_caches, memory.device_caches), (10 * MIB, 40 * MIB), "{}", plans.best());
    assert!(memory.all_sampler().max(memory.all_device()) <= 46 * MIB, "{memory:?}");
    assert_eq!(caches.iter().map(|c| c.left_bytes).collect::<Vec<_>>(), [Some(36 * MIB), Some(6 * MIB)]);
}

#[test]
fn files_of_plans_without_such_a_route_are_as_before() {
    let plans = plan(&problem(vec![in_place()], None)).expect("no limit");
    let json = serde_json::to_value(plans.best()).expect("plain data");
    assert_eq!(json["memory"].as_object().expect("an object").len(), 4, "{}", json["memory"]);
    let plans = plan(&problem(vec![between()], None)).expect("no limit");
    let json = serde_json::to_value(plans.best()).expect("plain data");
    assert_eq!(serde_json::from_value::<Plan>(json).expect("a plan"), *plans.best());
}
