//! The suite of phase Transferring.

use std::sync::Arc;

use morphgl_registry::{
    At, BatchFeatures, BatchId, BatchPairs, Build, Description, GivenRows, GivenTable, HostBatch, MiniBatch, Place,
    Result, Transferring, TransferringContext,
};

use morphgl_sampler_core::TYPED;

use crate::batching::{Case, graphs, on_host, reference};

/// Tests an operator that reads mini-batches in host memory; skips one that cannot run on this machine, and prints why.
///
/// # Panics
///
/// When the operator does not conform, or reads from elsewhere, see [`run_from`].
pub fn run(description: &Description) {
    assert_eq!(description.reads, At::Host, "mini-batches of a device are made by its own crate, see run_from");
    run_from(description, &Place::Host, &mut |batch, _| MiniBatch::Host(batch));
}

/// Tests an operator that reads at `from`; `place` brings a mini-batch of a case there.
///
/// # Panics
///
/// When the operator does not conform.
pub fn run_from(description: &Description, from: &Place, place: &mut dyn FnMut(HostBatch, &Case) -> MiniBatch) {
    let Some(to) = crate::output_place(description) else { return };
    let random = Case::new(graphs::random(120, 7, true));
    let deep = random.with_fanouts("9,9,9,9");
    // Enough rows for a multi-threaded gather.
    let large = Case::new(graphs::random(9000, 4, false)).with(|s| s.batch_size = 3000);
    let bare = Case { dataset: Arc::new(graphs::bare(&random.dataset)), ..random.clone() };
    let lonely = Case::new(graphs::random(60, 0, false)).with(|s| s.batch_size = 7);
    if description.takes_given_rows {
        given_rows_arrive(description, &random, [from, &to], place);
        given_rows_are_filled_in(description, &random, [from, &to], place);
    }
    if description.takes_pairs {
        pairs_arrive(description, &random, [from, &to], place);
    }
    let built = |options| try_build(description, &random, [from, &to], true, options);
    crate::set_each_option(description.options, built, |what, mut operator| {
        for index in 0..3 {
            let whole = reference::sample(&random, BatchId { epoch: 4, index });
            let lacking = HostBatch { features: None, ..whole.clone() };
            assert_eq!(transfer(operator.as_mut(), place(lacking, &random), &to), whole, "{what}");
        }
    });
    let typed = Case::new(graphs::typed(160, 9, true)).by(&TYPED);
    for case in [random, deep, large, bare, lonely, typed] {
        let mut operator = build(description, &case, [from, &to], true);
        let mut passing = build(description, &case, [from, &to], false);
        for index in 0..3 {
            let id = BatchId { epoch: 4, index };
            if (index as usize * case.settings.batch_size) >= case.seeds.nodes().len() {
                continue;
            }
            let whole = reference::sample(&case, id);
            let lacking = HostBatch { features: None, ..whole.clone() };
            for (what, batch) in [("whole", &whole), ("without features", &lacking)] {
                let moved = transfer(operator.as_mut(), place(batch.clone(), &case), &to);
                assert_eq!(moved, whole, "{id}, handed over {what}");
                let moved = transfer(passing.as_mut(), place(batch.clone(), &case), &to);
                assert_eq!(&moved, batch, "{id}, handed over {what} to an operator that is not to gather");
            }
            if let Some(features) = &whole.features {
                // Features that are present are not replaced: a cache may have filled them in.
                let marked = HostBatch { features: Some(inverted(features)), ..whole.clone() };
                let moved = transfer(operator.as_mut(), place(marked.clone(), &case), &to);
                assert_eq!(moved, marked, "{id}, with features of its own");
            }
        }
    }
}

/// Given rows arrive bit for bit with their nodes, degrees and version, whether features come with the mini-batch or are gathered;
/// so does the version of a mini-batch that is given no row.
fn given_rows_arrive(
    description: &Description,
    case: &Case,
    [from, to]: [&Place; 2],
    place: &mut dyn FnMut(HostBatch, &Case) -> MiniBatch,
) {
    let mut operator = build(description, case, [from, to], true);
    for (index, width) in [(0, 1), (1, 7), (2, 64)] {
        let id = BatchId { epoch: 4, index };
        let mut whole = reference::sample_with_given(case, id, &|node| node % 3 != 0);
        let given = whole.given.as_mut().expect("nodes that are found last are given");
        // Bit patterns of all kinds, since a transfer copies rows and does no arithmetic: all magnitudes, negative zeros, NaNs.
        let bits = (0..(given.nodes.len() * width) as u32).map(|i| i.wrapping_mul(0x9e37_79b9));
        given.rows = bits.map(f32::from_bits).collect();
        given.version = u64::MAX - u64::from(index);
        let lacking = HostBatch { features: None, ..whole.clone() };
        let none =
            HostBatch { given: Some(Box::new(GivenRows { version: 9, ..GivenRows::default() })), ..whole.clone() };
        for batch in [whole.clone(), lacking, none] {
            let expected = HostBatch { features: whole.features.clone(), ..batch.clone() };
            let moved = operator.transfer(place(batch, case)).and_then(|handle| handle.wait());
            let (moved, _) = moved.unwrap_or_else(|e| panic!("{id} with given rows: {e}"));
            assert_eq!(moved.first_layer_rows().version, expected.given.as_ref().map(|given| given.version), "{id}");
            let moved = on_host(&moved);
            let bits = |batch: &HostBatch| -> Option<Vec<u32>> {
                Some(batch.given.as_ref()?.rows.iter().map(|x| x.to_bits()).collect())
            };
            assert_eq!(bits(&moved), bits(&expected), "{id}: the bits of given rows");
            let without_rows = |mut batch: HostBatch| {
                batch.given.iter_mut().for_each(|given| given.rows.clear());
                batch
            };
            assert_eq!(without_rows(moved), without_rows(expected), "{id} with given rows");
        }
    }
}

/// Pairs arrive with their mini-batch, and a mini-batch without any has none after one that had some.
fn pairs_arrive(
    description: &Description,
    case: &Case,
    [from, to]: [&Place; 2],
    place: &mut dyn FnMut(HostBatch, &Case) -> MiniBatch,
) {
    let mut operator = build(description, case, [from, to], true);
    for (num_positives, negatives) in [(1, 0), (0, 0), (3, 2), (0, 0), (400, 5)] {
        let whole = reference::sample(case, BatchId { epoch: 4, index: 1 });
        let seed = |i: usize| (i * i % whole.num_seeds) as u32;
        let ends: Vec<[u32; 2]> = (0..num_positives * (1 + negatives)).map(|i| [seed(i), seed(i + 1)]).collect();
        let edge_types = if negatives == 2 { (0..ends.len() as u16).collect() } else { Vec::new() };
        let pairs = (num_positives > 0).then(|| Box::new(BatchPairs { num_positives, ends, edge_types }));
        let labels = if pairs.is_some() { Vec::new() } else { whole.labels.clone() };
        let batch = HostBatch { labels, pairs, ..whole };
        let lacking = HostBatch { features: None, ..batch.clone() };
        for handed in [batch.clone(), lacking] {
            let moved = transfer(operator.as_mut(), place(handed, case), to);
            assert_eq!(moved, batch, "{num_positives} positives with {negatives} negatives each");
        }
    }
}

/// Rows of some nodes, in matrices of these widths.
#[derive(Debug)]
struct Table {
    nodes: Arc<[u32]>,
    widths: Vec<usize>,
    matrices: Vec<Vec<f32>>,
    version: u64,
}

impl Table {
    /// Rows of the nodes below `num_nodes` for which `is_given` is true, all of whose elements differ.
    fn new(num_nodes: usize, is_given: impl Fn(u32) -> bool, widths: &[usize], version: u64) -> Self {
        let nodes: Arc<[u32]> = (0..num_nodes as u32).filter(|&node| is_given(node)).collect();
        let element = |matrix: usize, i: usize| (matrix * 1_000_000 + i) as f32 + version as f32 / 16.0;
        let matrix = |(m, width): (usize, &usize)| (0..nodes.len() * width).map(|i| element(m, i)).collect();
        let matrices = widths.iter().enumerate().map(matrix).collect();
        Self { nodes, widths: widths.to_vec(), matrices, version }
    }
}

impl GivenTable for Table {
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
        let rows = |(matrix, &width): (&Vec<f32>, &usize)| {
            let row =
                |node: &u32| &matrix[self.nodes.binary_search(node).expect("a node of the table") * width..][..width];
            given.nodes.iter().flat_map(row).copied().collect()
        };
        let mut filled: Vec<Vec<f32>> = self.matrices.iter().zip(&self.widths).map(rows).collect();
        given.rows = filled.remove(0);
        given.inputs = filled;
        given.version = self.version;
        Ok(())
    }
}

/// Rows are those of the table that comes with each mini-batch, also where several tables take turns, and a mini-batch without given
/// nodes has none.
fn given_rows_are_filled_in(
    description: &Description,
    case: &Case,
    [from, to]: [&Place; 2],
    place: &mut dyn FnMut(HostBatch, &Case) -> MiniBatch,
) {
    let mut operator = build(description, case, [from, to], true);
    let sets: [fn(u32) -> bool; 4] = [|v| v % 3 != 0, |v| v % 2 == 1, |_| true, |v| v == u32::MAX];
    let widths: [&[usize]; 4] = [&[5], &[64, 3], &[33, 12, 1], &[2]];
    let table = |i: usize| Table::new(case.dataset.num_nodes(), sets[i], widths[i], 3 + i as u64);
    let tables: Vec<Table> = (0..4).map(table).collect();
    for (turn, i) in [0, 1, 0, 2, 1, 3, 2, 0].into_iter().enumerate() {
        let id = BatchId { epoch: 4, index: turn as u32 % 3 };
        let mut expected = reference::sample_with_given(case, id, &sets[i]);
        let lacking = HostBatch { features: None, ..expected.clone() };
        assert_eq!(lacking.given.is_some(), i != 3, "set {i} has given nodes");
        let moved = operator.transfer_with_given(place(lacking, case), &tables[i]).and_then(|handle| handle.wait());
        let (moved, _) = moved.unwrap_or_else(|e| panic!("{id} with a table of given rows: {e}"));
        if let Some(given) = &mut expected.given {
            tables[i].fill(given).expect("the table has the nodes");
        }
        assert_eq!(moved.first_layer_rows(), expected.first_layer_rows(), "{id}: rows of the first layer");
        assert_eq!(on_host(&moved), expected, "{id} with rows of table {i}");
    }
}

/// Features with every bit inverted.
fn inverted(features: &BatchFeatures) -> BatchFeatures {
    let mut inverted = features.clone();
    let (rows, dim, dtype) = (features.num_rows(), features.dim, features.dtype);
    inverted.resize(rows, dim, dtype).iter_mut().for_each(|byte| *byte = !*byte);
    inverted
}

fn transfer(operator: &mut dyn Transferring, batch: MiniBatch, to: &Place) -> HostBatch {
    let (id, num_seeds) = (batch.id(), batch.num_seeds());
    let handle = operator.transfer(batch).unwrap_or_else(|e| panic!("{id}: {e}"));
    let (batch, _) = handle.wait().unwrap_or_else(|e| panic!("{id}: {e}"));
    assert_eq!((batch.id(), &batch.place(), batch.num_seeds()), (id, to, num_seeds), "id, place and seeds");
    on_host(&batch)
}

fn build(description: &Description, case: &Case, places: [&Place; 2], gather: bool) -> Box<dyn Transferring> {
    let built = try_build(description, case, places, gather, serde_json::Value::Null);
    built.unwrap_or_else(|e| panic!("{} from {} to {}: {e}", description.key, places[0], places[1]))
}

fn try_build(
    description: &Description,
    case: &Case,
    [from, to]: [&Place; 2],
    gather: bool,
    options: serde_json::Value,
) -> Result<Box<dyn Transferring>> {
    let Build::Transferring(build) = description.build else {
        panic!("{} is not of phase Transferring", description.key)
    };
    let context = TransferringContext {
        gather,
        options,
        ..TransferringContext::new(Arc::clone(&case.dataset), from.clone(), to.clone())
    };
    build(&context)
}
