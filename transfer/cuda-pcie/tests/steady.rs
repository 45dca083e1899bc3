//! A steady state allocates nothing. The only test of its program: statistics count all uses of the device.

mod common;

use std::sync::Arc;

use common::{check, operator, place, stream, with_rows};
use morphgl_conformance::available;
use morphgl_conformance::batching::{Case, reference};
use morphgl_cuda::statistics;
use morphgl_registry::{BatchId, HostBatch, MiniBatch, Place, Transferring, TransferringContext};
use morphgl_transferring_cuda::DmaGather;
use serde_json::json;

#[test]
fn a_steady_state_allocates_nothing() {
    if !available(&morphgl_transferring_cuda::ZERO_COPY) {
        return;
    }
    let case = Case::new(with_rows(900, 100));
    let stream = stream();
    let mut operator =
        operator(&case, json!({"presample": 2, "cache_bytes": 40_000})).expect("the device is available");
    let (dataset, to) = (Arc::clone(&case.dataset), place());
    let options = json!({"presample": 2, "cache_bytes": 40_000, "depth": 2, "lines": 9, "order": "pages"});
    let context = TransferringContext { dataset, from: Place::Host, to, gather: true, sampled: None, options };
    let mut from_host = DmaGather::new(&context).expect("the device is available");
    let mut settled = 0;
    for round in 0..6 {
        (0..5).for_each(|index| check(&mut operator, &stream, &case, index));
        let send = |index| {
            let batch = reference::sample(&case, BatchId { epoch: 0, index });
            from_host.transfer(MiniBatch::Host(HostBatch { features: None, ..batch })).expect("enough memory")
        };
        let sent: Vec<_> = (0..5).map(send).collect();
        sent.into_iter().for_each(|handle| drop(handle.wait().expect("no failure")));
        match round {
            0..=2 => settled = statistics(stream.device()).allocations,
            _ => assert_eq!(statistics(stream.device()).allocations, settled, "in round {round}"),
        }
    }

    // Where all rows are cached, all are hits: no kernel counts them, and none copies rows.
    let mut launches = |cached: usize| {
        let hotness: Vec<f32> = (0..900).map(|node| if node < cached { 1.0 } else { 0.0 }).collect();
        assert_eq!(operator.gather().fill_cache(&hotness, u64::MAX).expect("enough memory"), cached);
        let before = statistics(stream.device()).launches;
        check(&mut operator, &stream, &case, 0);
        statistics(stream.device()).launches - before
    };
    assert_eq!(launches(900) + 2, launches(899));
}
