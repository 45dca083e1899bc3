//! The suite of phase Batching, on a device whose operations take no simulated time.

use morphgl_batching_sim_neighbor::{CPU, CpuSimNeighbor, DEVICE, SimNeighbor};
use morphgl_registry::{Build, Place};
use morphgl_sim::{Config, Device, available};

#[test]
fn on_the_device() {
    let mut description = available(DEVICE);
    description.build =
        Build::Batching(|c| Ok(Box::new(SimNeighbor::new(c, &Device::new(c.place.clone(), Config::instant(8)))?)));
    morphgl_conformance::batching::run(&description);
}

#[test]
fn on_simulated_cpu_workers() {
    let mut description = available(CPU);
    description.build =
        Build::Batching(|c| Ok(Box::new(CpuSimNeighbor::new(c, &Device::new(Place::Host, Config::instant(1)))?)));
    morphgl_conformance::batching::run(&description);
}
