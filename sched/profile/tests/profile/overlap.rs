//! Phases that overlap on a device.

use crate::common::{Fakes, Times, unlimited};
use crate::in_one_of_thirty;
use morphgl_conformance::fake::Fault;
use morphgl_plan::{Limits, Resource, Strategy};
use morphgl_profile::{Profile, Settings};
use morphgl_registry::Phase;

/// One route on a device that queues, whose phases only wait and so do not slow each other.
fn device(times: Times) -> Fakes {
    let mut fakes = Fakes::none();
    fakes.add_trainer("Training_NPU_Queueing", times);
    fakes.add_route(60, times, ["Batching_NPU+PCIe_Queueing", "Transferring_NPU_Queueing"], 0);
    fakes.routes[0].queueing = Phase::ALL.to_vec();
    fakes
}

/// Predicted seconds of an epoch, one phase at a time and by the device's pipeline.
fn predicted(profile: &Profile) -> [f64; 2] {
    let problem = profile.problem(1, Limits::default());
    assert!(problem.resources().contains(&Resource::queued("NPU:0")), "{:?}", problem.resources());
    let plans = morphgl_plan::plan(&problem).expect("it fits");
    [Strategy::Sequential, Strategy::Device].map(|s| plans.best_of(s).expect("it is there").prediction.epoch_seconds)
}

#[test]
fn phases_are_measured_at_once_and_planned_so() {
    let times = Times { batching: 3, transferring: 2, training: 4 };
    in_one_of_thirty(|| {
        let mut fakes = device(times);
        let p = fakes.profile(&unlimited(1)).expect("nothing fails");
        fakes.check_unchanged();
        assert!(p.skipped.is_empty(), "{:?}", p.skipped);
        let overlapped = p.routes[0].overlapped.as_ref().expect("there was time").mean;
        let [sequential, device] = predicted(&p);
        // 9 ms one after the other, 4 at once.
        let near = (0.0039..0.0055).contains(&overlapped) && sequential > 60.0 * 0.009 && device < 60.0 * 0.0065;
        if near { Ok(()) } else { Err(format!("{overlapped} s at once; an epoch {sequential} and {device} s")) }
    });
}

#[test]
fn a_profile_plans_as_it_was_measured_whatever_operators_are_linked() {
    // No operator of these keys is linked: what queues its work is said by the profile alone, also when it was saved.
    let profile =
        device(Times { batching: 1, transferring: 1, training: 2 }).profile(&unlimited(1)).expect("nothing fails");
    let text = serde_json::to_string(&profile).expect("JSON");
    let again = Profile::parse(std::path::Path::new("profile.json"), &text).expect("a profile");
    let resources = |p: &Profile| p.problem(1, Limits::default()).resources().to_vec();
    assert_eq!(resources(&again), resources(&profile));
    assert!(resources(&again).contains(&Resource::queued("NPU:0")));
    let mut other = again;
    other.routes[0].route.queueing.retain(|phase| *phase != Phase::Training);
    assert!(resources(&other).contains(&Resource::exclusive("NPU:0")), "one operator holds it alone");
}

#[test]
fn a_device_without_memory_for_all_phases_is_planned_without_overlap() {
    let mut fakes = device(Times { batching: 1, transferring: 1, training: 2 });
    let log = std::sync::Arc::clone(&fakes.log);
    let full = Fault::Error("the device has no memory left");
    fakes.routes[0].batching.fails(move |_| (log.record().on_device.now > 2).then_some(full));
    let p = fakes.profile(&unlimited(1)).expect("each phase alone succeeds");
    fakes.check_unchanged();
    assert_eq!(p.routes[0].overlapped, None);
    assert_eq!(p.skipped.len(), 1);
    assert!(p.skipped[0].contains("at once") && p.skipped[0].contains("no memory left"), "{:?}", p.skipped);
    let [sequential, device] = predicted(&p);
    assert!((sequential - device).abs() < 0.01 * sequential, "{sequential} and {device}");
}

#[test]
fn without_a_budget_phases_are_measured_at_once_all_the_same() {
    let times = Times { batching: 3, transferring: 2, training: 4 };
    let settings = Settings { budget: std::time::Duration::ZERO, ..unlimited(1) };
    let p = device(times).profile(&settings).expect("nothing fails");
    let overlapped = p.routes[0].overlapped.as_ref().expect("plans depend on it");
    assert!(!overlapped.samples.is_empty());
}
