//! The suite of phase Transferring for the copy engine's operator, on a CUDA device or the emulated one.

use std::sync::Arc;

use morphgl_conformance::available;
use morphgl_conformance::batching::{Case, graphs, reference};
use morphgl_conformance::transferring;
use morphgl_registry::{
    BatchId, Counters, DeviceBatch, GivenRows, GivenTable, Handle, LINK_BYTES, MiniBatch, Place, Result, Transferring,
    TransferringContext,
};
use morphgl_transferring_cuda::{DMA, PcieDma};
use serde_json::{Value, json};

fn context(case: &Case, options: Value) -> TransferringContext {
    let to = "cuda:0".parse().expect("a place");
    TransferringContext { options, ..TransferringContext::new(Arc::clone(&case.dataset), Place::Host, to) }
}

#[test]
fn conforms() {
    if !available(&DMA) {
        return;
    }
    transferring::run(&DMA);
}

/// Bytes of given rows are counted where they cross the link, and where they lie on the device.
#[test]
fn given_rows_are_counted() {
    if !available(&DMA) {
        return;
    }
    let case = Case::new(graphs::random(120, 7, false));
    let mut operator = PcieDma::new(&context(&case, Value::Null)).expect("the device is available");
    let mut sent = |given: bool| -> (u64, Box<dyn DeviceBatch>, Counters) {
        let id = BatchId { epoch: 0, index: 1 };
        let mut batch = reference::sample_with_given(&case, id, &|_| given);
        if let Some(given) = &mut batch.given {
            given.rows = vec![0.5; given.nodes.len() * 1000];
        }
        let bytes = batch.num_bytes() as u64;
        let (moved, measured) =
            operator.transfer(MiniBatch::Host(batch)).and_then(Handle::measured).expect("no failure");
        let MiniBatch::Device(moved) = moved else { panic!("the mini-batch is on the device") };
        (bytes, moved, measured.counters)
    };
    let (without, with) = (sent(false), sent(true));
    for (bytes, moved, counters) in [&without, &with] {
        assert_eq!(counters.get(&LINK_BYTES), Some(*bytes));
        assert!(moved.num_bytes().is_some_and(|on_device| on_device >= *bytes), "{bytes} bytes sent");
    }
    assert_eq!((without.1.first_layer_rows().version, with.1.first_layer_rows().version), (None, Some(0)));
    assert!(with.0 > without.0, "given rows are longer than the edges that they leave out");
}

/// The rows of a super-batch cross the link with its first mini-batch; then each mini-batch brings the numbers of its given nodes alone.
#[test]
fn a_table_of_given_rows_is_uploaded_once() {
    if !available(&DMA) {
        return;
    }
    let case = Case::new(graphs::random(120, 7, false)).with_fanouts("7,3");
    let mut operator = PcieDma::new(&context(&case, Value::Null)).expect("the device is available");
    let widths = [256, 100];
    let tables = [0, 1].map(|version| Rows::new(120, &widths, version));
    let table_bytes = 4 * 120 * (1 + widths.iter().sum::<usize>() as u64);
    let (mut uploaded, mut packed) = (0, 0);
    for (turn, table) in [0, 0, 0, 0, 0, 0, 1, 0, 1, 1, 1, 1, 1].into_iter().enumerate() {
        let id = BatchId { epoch: 0, index: turn as u32 % 3 };
        let batch = reference::sample_with_given(&case, id, &|_| true);
        let (bytes, given) = (batch.num_bytes() as u64, batch.first_layer_rows().given as u64);
        assert!(given > 20, "{given} given rows");
        let moved = operator.transfer_with_given(MiniBatch::Host(batch), &tables[table]);
        let (moved, measured) = moved.and_then(Handle::measured).expect("no failure");
        let link_bytes = measured.counters.get(&LINK_BYTES).expect("bytes are counted");
        let is_new = turn == 0 || turn == 6;
        assert_eq!(link_bytes, bytes + if is_new { table_bytes } else { 0 }, "mini-batch {turn}");
        assert_eq!(moved.first_layer_rows().version, Some(table as u64));
        uploaded += link_bytes - bytes;
        packed += 4 * given * widths.iter().sum::<usize>() as u64;
    }
    assert!(uploaded < packed / 2, "{uploaded} bytes of tables, {packed} of the rows of each mini-batch");
}

/// Rows of all nodes.
#[derive(Debug)]
struct Rows {
    nodes: Arc<[u32]>,
    matrices: Vec<Vec<f32>>,
    version: u64,
}

impl Rows {
    fn new(num_nodes: u32, widths: &[usize], version: u64) -> Self {
        let matrices = widths.iter().map(|width| vec![0.5; num_nodes as usize * width]).collect();
        Self { nodes: (0..num_nodes).collect(), matrices, version }
    }
}

impl GivenTable for Rows {
    fn nodes(&self) -> &Arc<[u32]> {
        &self.nodes
    }

    fn matrices(&self) -> Vec<&[f32]> {
        self.matrices.iter().map(Vec::as_slice).collect()
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn fill(&self, given: &mut GivenRows) -> Result<()> {
        panic!("the device fills in the rows of {} nodes", given.nodes.len())
    }
}

#[test]
fn invalid_settings_are_refused_with_cures() {
    if !available(&DMA) {
        return;
    }
    let case = Case::new(graphs::random(30, 3, false));
    let elsewhere = TransferringContext { from: "cuda:0".parse().expect("a place"), ..context(&case, Value::Null) };
    for (context, expected) in [
        (elsewhere, "not at cuda:0"),
        (TransferringContext { to: Place::Host, ..context(&case, Value::Null) }, "not at host"),
        (context(&case, json!({"depth": 0})), "a depth of 0"),
        (context(&case, json!({"deep": 1})), "unknown field"),
    ] {
        let error = PcieDma::new(&context).expect_err("refused").to_string();
        assert!(error.contains(expected) && error.contains("Transferring_PCIe_Dma"), "{error}");
    }
}
