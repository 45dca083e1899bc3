//! What-if: speed factors of resources by name.

use crate::common::{TwoRoutes, hardware};
use morphgl_plan::{Candidate, Problem, Resource, WhatIf};

/// A route through each of two devices.
fn two_devices() -> Problem {
    let two = TwoRoutes::new(10, 1, [0.2, 0.1, 0.3, 0.1, 0.4]);
    let routes = two.problem().routes().to_vec();
    let at = |route: &Candidate, device: usize| {
        let [link, device] = [format!("PCIe:{device}"), format!("SIM:{device}")];
        Candidate { hardware: hardware(&["CPU"], &[&link], &[&device]), in_place: false, ..route.clone() }
    };
    let names = ["PCIe:0", "SIM:0", "PCIe:1", "SIM:1"];
    let resources = [vec![Resource::shared("CPU", 1)], names.map(Resource::exclusive).to_vec()].concat();
    Problem::new(10, resources, vec![at(&routes[0], 0), at(&routes[1], 1)]).expect("the problem is valid")
}

/// Seconds of training of both routes at these speeds.
fn training(change: &str) -> Vec<f64> {
    let change: WhatIf = change.parse().expect("factors");
    let problem = change.apply(&two_devices()).expect("resources of the problem");
    problem.routes().iter().map(|r| r.durations.training().at(1).mean).collect()
}

#[test]
fn a_name_without_a_number_is_that_of_every_device() {
    assert_eq!(training("SIM*2"), [0.2, 0.2]);
    assert_eq!(training("SIM:1*2"), [0.4, 0.2]);
    assert_eq!(training("SIM:1*4,SIM*2"), [0.2, 0.1], "the first factor counts");
    assert_eq!(training("CPU*2,PCIe*2"), [0.4, 0.4]);
}

#[test]
fn an_unknown_resource_is_refused() {
    let change: WhatIf = "SI*2".parse().expect("factors");
    let error = change.apply(&two_devices()).expect_err("no such resource").to_string();
    assert_eq!(error, "SI: not a resource of these routes; they hold CPU, PCIe:0, SIM:0, PCIe:1, SIM:1");
}
