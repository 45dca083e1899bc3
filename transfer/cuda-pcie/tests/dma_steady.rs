//! A steady state allocates nothing. The only test of its program: statistics count all uses of the device.

use std::sync::Arc;

use morphgl_conformance::available;
use morphgl_conformance::batching::{Case, graphs, reference};
use morphgl_cuda::{Device, statistics};
use morphgl_registry::{BatchId, MiniBatch, Place, Transferring, TransferringContext};
use morphgl_transferring_cuda::{DMA_KEY, PcieDma};
use serde_json::json;

#[test]
fn a_steady_state_with_many_in_flight_allocates_nothing() {
    if !available(&morphgl_transferring_cuda::DMA) {
        return;
    }
    let case = Case::new(graphs::random(900, 7, true));
    let (dataset, to) = (Arc::clone(&case.dataset), "cuda:0".parse().expect("a place"));
    let options = json!({"depth": 2});
    let context = TransferringContext { options, ..TransferringContext::new(dataset, Place::Host, to) };
    let mut operator = PcieDma::new(&context).expect("the device is available");
    let device = Device::open(&"cuda:0".parse().expect("a place"), &DMA_KEY).expect("the device is available");
    let mut settled = 0;
    for round in 0..6 {
        let batches = (0..5).map(|index| reference::sample(&case, BatchId { epoch: 1, index }));
        let sent: Vec<_> =
            batches.map(|b| (b.clone(), operator.transfer(MiniBatch::Host(b)).expect("enough memory"))).collect();
        for (expected, handle) in sent {
            let (batch, _) = handle.wait().expect("no failure");
            let MiniBatch::Device(batch) = batch else { panic!("the mini-batch is on the device") };
            assert_eq!(batch.to_host().expect("a copy"), expected);
        }
        match round {
            0..=2 => settled = statistics(&device).allocations,
            _ => assert_eq!(statistics(&device).allocations, settled, "in round {round}"),
        }
    }
}
