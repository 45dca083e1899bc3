use morphgl_profile::{PeakBytes, PoolSample, RouteProfile, Statistics, TrainingSample, VERSION};
use morphgl_registry::{Machine, Route};

use super::*;

const CORES: usize = 4;
const SEEDS: usize = 1000;

/// A route of the host, or of a device that mini-batches of the host are copied to, with these seconds per step.
fn route(on_device: bool, training: f64) -> RouteProfile {
    let key = |text: &str| text.parse::<Key>().expect("a key");
    let place = |on_device: bool| match on_device {
        true => "cuda:0".parse::<Place>().expect("a place"),
        false => Place::Host,
    };
    let [transferring, trainer] = match on_device {
        true => ["Transferring_PCIe_Dma", "Training_CUDA_Native"],
        false => ["Transferring_CPU_Host", "Training_CPU_Native"],
    };
    let seconds = |seconds: f64| Statistics::of(vec![seconds]);
    let batching = |workers: usize| PoolSample { workers, threads: 1, seconds: seconds(1e-4 / workers as f64) };
    let of_threads = |threads: usize| TrainingSample {
        threads,
        seconds: seconds(if on_device { training } else { training / threads as f64 }),
    };
    RouteProfile {
        route: Route::new(["Batching_CPU_Neighbor", transferring, trainer].map(key), Place::Host, place(on_device)),
        edges_per_batch: 1.0,
        bytes_per_batch: 1.0,
        largest: PeakBytes::default(),
        batching: vec![batching(1), batching(CORES)],
        transferring: seconds(1e-5),
        training: vec![of_threads(1), of_threads(CORES)],
        interference: Vec::new(),
        overlapped: None,
        cache: None,
        device_cache: None,
        hit_rate: None,
    }
}

fn profile(num_batches: usize, routes: Vec<RouteProfile>) -> Profile {
    Profile {
        version: VERSION,
        machine: Machine::probe(),
        settings: Settings::new(CORES),
        num_batches,
        selections: Vec::new(),
        routes,
        skipped: Vec::new(),
        seconds: 0.0,
        held_bytes: 0,
        links: Vec::new(),
    }
}

/// The group's plan and the best one of a single trainer: steps of `host` seconds on one core and of `device` seconds, `fixed` of
/// which the device needs for any share.
fn planned(host: f64, device: f64, fixed: f64, all_reduce: f64) -> (Unified, Plan) {
    let whole = profile(100, vec![route(false, host), route(true, device)]);
    let part = profile(100, vec![route(false, PART * host), route(true, fixed + PART * (device - fixed))]);
    let unified = Unified::plan(
        &whole,
        &GroupProfile { num_seeds: SEEDS, part, share: PART, all_reduce },
        Shares::Dynamic,
        CORES,
        Limits::default(),
    )
    .expect("a plan");
    let plans = morphgl_plan::plan(&whole.problem(CORES, Limits::default())).expect("a plan");
    (unified, plans.best().clone())
}

#[test]
fn equal_trainers_share_the_work() {
    // Three cores on the host are as fast as the device, whose mini-batches one core makes.
    let (unified, alone) = planned(0.03, 0.01, 0.0, 0.0);
    assert!(unified.is_chosen_over(&alone), "{unified} {alone}");
    // 100 steps of 10 ms by either.
    assert!((0.5..0.52).contains(&unified.epoch_seconds), "{unified}");
    let cores: usize = unified.trainers.iter().map(|t| t.cores).sum();
    assert_eq!(cores, CORES);
    assert!(unified.trainers.iter().all(|t| (0.35..0.65).contains(&t.share)), "{unified}");
}

#[test]
fn the_earlier_name_of_an_all_reduce_is_read() {
    let (unified, _) = planned(0.03, 0.01, 0.0, 0.02);
    let mut json = serde_json::to_value(&unified).expect("plain data");
    let seconds = json.as_object_mut().expect("a map").remove("all_reduce_seconds").expect("it is there");
    json["addition_seconds"] = seconds;
    let earlier: Unified = serde_json::from_value(json).expect("an earlier file");
    assert_eq!(earlier.all_reduce_seconds, unified.all_reduce_seconds);
}

#[test]
fn an_all_reduce_that_takes_longer_than_it_saves_leaves_one_trainer_alone() {
    let (unified, alone) = planned(0.03, 0.01, 0.0, 0.02);
    assert!(!unified.is_chosen_over(&alone), "{unified} {alone}");
    assert_eq!(unified.trainers.len(), 2, "asked for, it has both trainers all the same");
}

#[test]
fn a_trainer_that_no_share_makes_faster_gets_less() {
    let (even, alone) = planned(0.03, 0.01, 0.0, 0.0);
    let (uneven, _) = planned(0.03, 0.01, 0.005, 0.0);
    let device = |unified: &Unified| {
        let is_device =
            |t: &&UnifiedTrainer| t.plan.schedule.shares[0].keys.training.to_string() == "Training_CUDA_Native";
        unified.trainers.iter().find(is_device).map_or(0.0, |t| t.share)
    };
    assert!(device(&uneven) < device(&even), "{uneven} {even}");
    assert!(uneven.epoch_seconds > even.epoch_seconds && uneven.is_chosen_over(&alone), "{uneven} {even}");
}

#[test]
fn a_group_needs_a_core_a_trainer() {
    let whole = profile(100, vec![route(false, 0.1), route(true, 0.1)]);
    let measured = GroupProfile { num_seeds: SEEDS, part: whole.clone(), share: PART, all_reduce: 0.0 };
    let refused = Unified::plan(&whole, &measured, Shares::Dynamic, 1, Limits::default()).expect_err("one core");
    assert!(refused.to_string().contains("2 trainers on 1 of the host's cores"), "{refused}");
}

#[test]
fn equal_shares_are_those_of_all_trainers() {
    let whole = profile(100, vec![route(false, 0.5), route(true, 0.01)]);
    let measured = GroupProfile { num_seeds: SEEDS, part: whole.clone(), share: PART, all_reduce: 0.1 };
    let equal = Unified::plan(&whole, &measured, Shares::Equal, CORES, Limits::default()).expect("a plan");
    assert_eq!(equal.trainers.iter().map(|t| t.share).collect::<Vec<_>>(), [0.5, 0.5], "however slow one of them is");
    assert_eq!(equal.shares, Shares::Equal);
}

/// A trainer whose share is no seed is left out with all that it would cost, and the plan says so; of more seeds it gets some.
#[test]
fn a_trainer_without_a_seed_is_left_out() {
    // Any share takes the host 20 ms, twice as long as the device takes for all.
    let host = |part: f64| RouteProfile { batching: fixed(0.02), ..route(false, 0.01 * part) };
    let of = |part: f64| profile(100, vec![host(part), route(true, 0.01 * part)]);
    let plan = |num_seeds, kind| {
        let measured = GroupProfile { num_seeds, part: of(PART), share: PART, all_reduce: 1e-3 };
        Unified::plan(&of(1.0), &measured, kind, CORES, Limits::default()).expect("a plan")
    };
    for kind in [Shares::Dynamic, Shares::Static] {
        let alone = plan(SEEDS, kind);
        assert_eq!((alone.trainers.len(), &alone.left_out), (1, &vec![Place::Host]), "{alone}");
        // 100 steps of 10 ms without an all-reduce.
        assert!((1.0..1.05).contains(&alone.epoch_seconds) && alone.all_reduce_seconds == 0.0, "{alone}");
        assert!(alone.to_string().contains("\nhost gets no seed of a mini-batch and is left out"), "{alone}");
        let plans = morphgl_plan::plan(&of(1.0).problem(CORES, Limits::default())).expect("a plan");
        assert!(!alone.is_chosen_over(plans.best()), "one trainer is no group");
        let both = plan(1_000_000, kind);
        assert_eq!((both.trainers.len(), both.left_out.len()), (2, 0), "{both}");
        assert!(both.epoch_seconds > alone.epoch_seconds, "{both}");
    }
    let equal = plan(SEEDS, Shares::Equal);
    assert_eq!((equal.trainers.len(), equal.left_out.len()), (2, 0), "{equal}");
}

/// Batching in so many seconds, whatever the share and the workers.
fn fixed(seconds: f64) -> Vec<PoolSample> {
    [1, CORES].map(|workers| PoolSample { workers, threads: 1, seconds: Statistics::of(vec![seconds]) }).into()
}

/// Two trainers with equal shares, of which the device makes its own mini-batches in 10 ms, or one of the host's cores does in so many
/// seconds.
fn with_mix(host_batching: f64) -> Unified {
    let part_of = |part: f64| {
        let seconds = |whole: f64| Statistics::of(vec![part * whole]);
        let copied = RouteProfile {
            batching: [1, CORES]
                .map(|workers| PoolSample { workers, threads: 1, seconds: seconds(host_batching / workers as f64) })
                .into(),
            ..route(true, part * 0.01)
        };
        let key = |text: &str| text.parse::<Key>().expect("a key");
        let device = copied.route.trained_at.clone();
        let keys = ["Batching_CUDA_Neighbor", "Transferring_CUDA_Gather", "Training_CUDA_Native"].map(key);
        let own = RouteProfile {
            route: Route::new(keys, device.clone(), device),
            batching: vec![PoolSample { workers: 1, threads: 1, seconds: seconds(0.01) }],
            ..copied.clone()
        };
        profile(100, vec![route(false, part * 0.01), own, copied])
    };
    let measured = GroupProfile { num_seeds: SEEDS, part: part_of(PART), share: PART, all_reduce: 0.0 };
    Unified::plan(&part_of(1.0), &measured, Shares::Equal, CORES, Limits::default()).expect("a plan")
}

/// A mix of routes that makes the epoch shorter by less than 5% is not taken, and the plan says what it would take.
#[test]
fn a_mix_of_routes_that_gains_little_is_passed_over_and_named() {
    let routes = |unified: &Unified| unified.trainers.iter().map(|t| t.plan.schedule.shares.len()).max();
    let kept = with_mix(1.0);
    let shorter = kept.passed_over_seconds.unwrap_or_else(|| panic!("{kept}"));
    assert!(shorter < kept.epoch_seconds && MIXED * shorter >= kept.epoch_seconds, "{shorter} s, {kept}");
    assert_eq!(routes(&kept), Some(1), "{kept}");
    let (text, said) =
        (kept.to_string(), words::kept_simpler("several routes for each trainer", shorter, kept.epoch_seconds));
    assert!(said.contains("not taken: several routes") && text.ends_with(&format!("\n{said}")), "{text}");
    let mixed = with_mix(0.1);
    assert_eq!((mixed.passed_over_seconds, routes(&mixed)), (None, Some(2)), "{mixed}");
    assert!(mixed.epoch_seconds < 0.9 * kept.epoch_seconds && !mixed.to_string().contains("not taken"), "{mixed}");
}
