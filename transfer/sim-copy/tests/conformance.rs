//! The suite of phase Transferring, on a device with durations of zero.

use std::sync::OnceLock;

use morphgl_conformance::transferring::{run, run_from};
use morphgl_registry::{Build, Place};
use morphgl_sim::{Config, Device, SimBatch, available};
use morphgl_transferring_sim_copy::{
    COPY, COPY_KEY, DMA, DMA_GATHER, GATHER, GATHER_KEY, HOST_GATHER, HOST_GATHER_KEY, SimCopy, SimDma, SimDmaGather,
    SimGather, SimHostGather,
};

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
fn the_copy_without_features_and_the_gather() {
    let mut description = available(DMA_GATHER);
    description.build = Build::Transferring(|c| Ok(Box::new(SimDmaGather::new(c, device())?)));
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

#[test]
fn the_gather_by_the_host() {
    let mut description = available(HOST_GATHER);
    description.build = Build::Transferring(|c| Ok(Box::new(SimHostGather::new(c, device())?)));
    run_from(&description, device().place(), &mut |batch, _| {
        SimBatch::copy(device(), &HOST_GATHER_KEY, &batch).expect("memory").into_batch()
    });
}

#[test]
fn the_copy_from_another_device() {
    static OTHER: OnceLock<Device> = OnceLock::new();
    fn other() -> &'static Device {
        let place = || Place::Device { backend: "sim".into(), index: 1 };
        OTHER.get_or_init(|| Device::new(place(), Config::instant(1)))
    }
    let mut description = available(COPY);
    description.build = Build::Transferring(|c| Ok(Box::new(SimCopy::new(c, other(), device())?)));
    run_from(&description, other().place(), &mut |batch, _| {
        SimBatch::copy(other(), &COPY_KEY, &batch).expect("memory").into_batch()
    });
    assert_eq!(other().statistics().memory_used, 0, "a mini-batch that was moved has left its device");
}
