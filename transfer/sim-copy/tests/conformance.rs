//! The suite of phase Transferring, on a device with durations of zero.

use std::sync::OnceLock;

use morphgl_conformance::transferring::{run, run_from};
use morphgl_registry::{Build, Place};
use morphgl_sim::{Config, Device, SimBatch, available};
use morphgl_transferring_sim_copy::{DMA, GATHER, GATHER_KEY, SimDma, SimGather};

/// The device of all operators here.
fn device() -> &'static Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    let place = || Place::Device { backend: "sim".into(), index: 0 };
    DEVICE.get_or_init(|| Device::new(place(), Config::instant(4)))
}

#[test]
fn the_copy_from_the_host() {
    let mut description = available(DMA);
    description.build = Build::Transferring(|c| Ok(Box::new(SimDma::new(c, device())?)));
    run(&description);
}

#[test]
fn the_gather_on_the_device() {
    let mut description = available(GATHER);
    description.build = Build::Transferring(|c| Ok(Box::new(SimGather::new(c, device())?)));
    run_from(&description, device().place(), &mut |batch, _| {
        SimBatch::copy(device(), &GATHER_KEY, &batch).expect("memory").into_batch()
    });
}
