//! Gathers the features of one mini-batch on a CUDA device, without the runner. Hot rows are cached on all accessible devices.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;

use morphgl_cuda::{CudaBatch, Device, Stream, accelerators};
use morphgl_graph_store::{Dataset, FeatureMatrix, Topology};
use morphgl_registry::{HostBatch, Machine, MiniBatch, Transferring, TransferringContext};
use morphgl_transferring_cuda::{ZERO_COPY, ZERO_COPY_KEY, ZeroCopy};
use serde_json::json;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Err(unavailable) = (ZERO_COPY.probe)(&Machine::probe()) {
        println!("{ZERO_COPY_KEY} cannot run here: {}", unavailable.reason);
        return Ok(());
    }
    let dataset = Arc::new(Dataset {
        features: Some(FeatureMatrix::F32 { data: vec![0.0, 0.5, 1.0, 1.5, 2.0, 2.5].into(), dim: 2 }),
        ..Dataset::new("three nodes", Topology::new(vec![0; 4], vec![], None)?)
    });
    let (from, to): (morphgl_registry::Place, _) = ("cuda:0".parse()?, "cuda:0".parse()?);
    let device = Device::open(&to, &ZERO_COPY_KEY)?;
    let stream = Stream::new(&device, false)?;
    let mut peers = Vec::new();
    for other in accelerators(&Machine::probe()).into_iter().filter(|other| other.place != to) {
        if device.reaches(&Device::open(&other.place, &ZERO_COPY_KEY)?)? {
            peers.push(other.place.to_string());
        }
    }
    // A given hotness replaces pre-sampling: the last node is the hottest.
    let options = json!({"presample": 0, "peers": peers});
    let mut operator = ZeroCopy::new(&TransferringContext { dataset, from, to, gather: true, sampled: None, options })?;
    operator.gather().fill_cache(&[0.0, 1.0, 2.0], 1 << 10)?;
    let cached = operator.gather().cached_rows_by_device();
    cached.iter().for_each(|(place, rows)| println!("{place} caches {rows} of 3 rows"));

    let batch = HostBatch { num_seeds: 1, input_nodes: vec![2, 0], ..Default::default() };
    let batch = CudaBatch::upload(&stream, &batch)?.into_batch();
    let (batch, took) = operator.transfer(batch)?.wait()?;
    let MiniBatch::Device(batch) = batch else { unreachable!("the mini-batch is on the device") };
    println!("after {took:?}: {:?}", batch.to_host()?.features);
    Ok(())
}
