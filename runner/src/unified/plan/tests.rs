use morphgl_profile::{PeakBytes, PoolSample, RouteProfile, Statistics, TrainingSample, VERSION};
use morphgl_registry::{Machine, Route};

use super::*;

const CORES: usize = 4;

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
        &GroupProfile { part, share: PART, all_reduce },
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
    let measured = GroupProfile { part: whole.clone(), share: PART, all_reduce: 0.0 };
    let refused = Unified::plan(&whole, &measured, Shares::Dynamic, 1, Limits::default()).expect_err("one core");
    assert!(refused.to_string().contains("2 trainers on 1 of the host's cores"), "{refused}");
}

#[test]
fn equal_shares_are_those_of_all_trainers() {
    let whole = profile(100, vec![route(false, 0.5), route(true, 0.01)]);
    let measured = GroupProfile { part: whole.clone(), share: PART, all_reduce: 0.1 };
    let equal = Unified::plan(&whole, &measured, Shares::Equal, CORES, Limits::default()).expect("a plan");
    assert_eq!(equal.trainers.iter().map(|t| t.share).collect::<Vec<_>>(), [0.5, 0.5], "however slow one of them is");
    assert_eq!(equal.shares, Shares::Equal);
}
