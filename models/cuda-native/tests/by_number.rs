//! Features that lie in a table of all nodes are read there by number: the same bits as of packed rows.

mod common;

use std::sync::Arc;

use common::{batch, context, dataset, model, place};
use morphgl_conformance::available;
use morphgl_cuda::{Buffer, CudaBatch, CudaFeatures, CudaRows, Device, RowTable, Stream};
use morphgl_graph_store::Dtype;
use morphgl_registry::{DeviceBatch, Handle, HostBatch, ModelState, Training};
use morphgl_training_cuda_native::{CudaNative, KEY};
use serde_json::{Value, json};

/// Nodes of the table.
const NODES: usize = 211;

/// A mini-batch whose input nodes have any numbers.
fn scattered(sizes: (usize, usize), dtype: Dtype, seed: u64) -> HostBatch {
    let mut batch = batch(&[90, 40, 17], sizes, dtype, false, seed);
    batch.input_nodes = (0..90).map(|i| (i * 37 + seed as u32) % NODES as u32).collect();
    batch
}

/// The mini-batch on the device, its features in a table whose other rows are of no number that it reads.
fn by_number(batch: &HostBatch) -> CudaBatch {
    let device = Device::open(&place(), &KEY).expect("the device is available");
    let stream = Stream::new(&device, false).expect("a stream");
    let features = batch.features.as_ref().expect("features");
    let row_bytes = features.dim * features.dtype.size();
    let mut table = vec![0xffu8; NODES * row_bytes];
    for (row, &node) in features.as_bytes().chunks_exact(row_bytes).zip(&batch.input_nodes) {
        table[node as usize * row_bytes..][..row_bytes].copy_from_slice(row);
    }
    let parts = [[1u8].as_slice(), &table].map(|part| Buffer::of(&stream, part).expect("memory"));
    let lacking = HostBatch { features: None, ..batch.clone() };
    let mut sent = CudaBatch::upload(&stream, &lacking).expect("memory");
    let rows = CudaRows::OfNodes(RowTable::new(Arc::new(parts), 1));
    sent.features = Some(CudaFeatures { dim: features.dim, dtype: features.dtype, rows });
    sent
}

fn packed(batch: &HostBatch) -> CudaBatch {
    let device = Device::open(&place(), &KEY).expect("the device is available");
    CudaBatch::upload(&Stream::new(&device, false).expect("a stream"), batch).expect("memory")
}

/// Losses, gradients and the score in evaluation, of three mini-batches.
fn trained(model: &Value, sizes: (usize, usize), dtype: Dtype, send: fn(&HostBatch) -> CudaBatch) -> impl PartialEq {
    let mut trainer =
        CudaNative::new(&context(model, place(), dataset(0, 0, sizes.0, sizes.1, false))).expect("it is built");
    let mut losses = Vec::new();
    for seed in 0..3 {
        let batch = send(&scattered(sizes, dtype, seed)).into_batch();
        losses.push(trainer.accumulate(&batch).and_then(Handle::wait).expect("a pass").0.loss_sum.to_bits());
        losses.push(trainer.score(&batch).and_then(Handle::wait).expect("a pass").0.loss_sum.to_bits());
    }
    assert!(losses.iter().all(|&bits| f64::from_bits(bits).is_finite()), "{losses:?}");
    let gradients = trainer.gradients().expect("gradients");
    (losses, gradients)
}

#[test]
fn losses_and_gradients_have_the_bits_of_packed_rows() {
    if !available(&morphgl_training_cuda_native::DESCRIPTION) {
        return;
    }
    for kind in ["sage", "gcn", "gat", "gin", "mlp"] {
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::U8] {
            // Rows of whole groups of four elements, and not; layers that aggregate first, and that multiply first.
            for (dim, hidden, input_dropout) in [(12, 16, 0.0), (7, 16, 0.0), (60, 4, 0.0), (12, 16, 0.4), (7, 16, 0.4)]
            {
                let more =
                    json!({"hidden": hidden, "layers": 2, "heads": 2, "dropout": 0.5, "input_dropout": input_dropout});
                let (model, sizes) = (model(kind, dim, 4, more), (dim, 4));
                let same = trained(&model, sizes, dtype, packed) == trained(&model, sizes, dtype, by_number);
                assert!(same, "{kind}, {dim} columns of {dtype}, {hidden} hidden, input dropout {input_dropout}");
            }
        }
    }
}

#[test]
fn a_mini_batch_is_copied_to_the_host_with_its_rows() {
    if !available(&morphgl_training_cuda_native::DESCRIPTION) {
        return;
    }
    let batch = scattered((7, 4), Dtype::F16, 1);
    let (sent, whole) = (by_number(&batch), packed(&batch));
    assert_eq!(sent.to_host().expect("a copy"), batch);
    let bytes = [&sent, &whole].map(|batch| batch.num_bytes().expect("a number"));
    assert!(bytes[0] < bytes[1], "it has no copy of its rows: {bytes:?}");
}
