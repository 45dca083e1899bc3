//! Phases that overlap on a device.

use crate::common::{Fakes, Times, npu, unlimited};
use crate::in_one_of_thirty;
use morphgl_plan::{Limits, Resource, Strategy};
use morphgl_profile::{Profile, Settings};
use morphgl_registry::{At, Build, Description, Error, Hardware, Key, Phase, Resource as Part, submit};

const NPU: Part = Part::new("NPU");
const PCIE: Part = Part::PCIE;

/// An operator that queues its work: these tests build none of them.
const fn queueing(phase: Phase, hardware: Hardware, build: Build) -> Description {
    let key = Key::new(phase, hardware, "Queueing");
    Description::new(key, "queues its work", At::Device("npu"), At::Device("npu"), build).queueing()
}

submit! { queueing(Phase::Batching, Hardware::new(&[NPU, PCIE]), Build::Batching(|_| Err(Error::failed("fake", "not built")))) }
submit! { queueing(Phase::Transferring, Hardware::new(&[NPU]), Build::Transferring(|_| Err(Error::failed("fake", "not built")))) }
submit! { queueing(Phase::Training, Hardware::new(&[NPU]), Build::Training(|_| Err(Error::failed("fake", "not built")))) }

/// One route on a device that queues, whose phases only wait and so do not slow each other.
fn device(times: Times) -> Fakes {
    let mut fakes = Fakes::new(60, times);
    (fakes.routes, fakes.trainers) = (Vec::new(), Vec::new());
    fakes.add_trainer("Training_NPU_Queueing", npu(), times);
    fakes.add_route(60, times, ["Batching_NPU+PCIe_Queueing", "Transferring_NPU_Queueing"], "Training_NPU_Queueing");
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
fn a_device_without_memory_for_all_phases_is_planned_without_overlap() {
    let mut fakes = device(Times { batching: 1, transferring: 1, training: 2 });
    fakes.routes[0].1.room = 2;
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
