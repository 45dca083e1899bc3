use morphgl_conformance::batching::{Case, graphs, reference};

use super::*;
use crate::CudaSampler;

/// A table is cleared before its stamps wrap around.
#[test]
fn stamps_run_out() {
    let case = Case { gather: false, ..Case::new(graphs::random(200, 6, false)) };
    let context = case.context("cuda:0".parse().expect("a place"), serde_json::Value::Null);
    let sampler = CudaSampler::new(&context);
    let mut worker = Worker::new(sampler.expect("built").shared(), 1).expect("a worker");
    let mut stamps = Vec::new();
    for epoch in 0..8 {
        let id = BatchId { epoch, index: 0 };
        let (batch, _) = worker.prepare(id, None).and_then(|h| h.wait()).expect("a mini-batch");
        let MiniBatch::Device(batch) = batch else { panic!("the mini-batch is on the device") };
        assert_eq!(batch.to_host().expect("a copy"), reference::sample(&case, id));
        let table = &mut worker.scratch[0].table;
        if epoch == 0 {
            table.stamp = (1 << (32 - table.value_bits)) - 3;
        }
        stamps.push(table.stamp);
    }
    assert_eq!(stamps[3..], [1, 2, 3, 4, 5], "{stamps:?}");
}
