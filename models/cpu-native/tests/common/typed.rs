//! Random typed graphs and mini-batches.

use std::sync::Arc;

use morphgl_conformance::training::random::{Random, batch};
use morphgl_graph_store::{Dataset, Dtype, EdgeType, FeatureMatrix, NodeType, Topology, Types};
use morphgl_registry::HostBatch;

/// Four node types, of which one has no node and one is the target of no edge type; and edge types between them, some with the same ends.
pub(crate) fn types() -> Types {
    let node = |(name, count): (&str, u64)| NodeType { name: name.to_string(), count };
    let edge = |[source, name, target]: [&str; 3]| {
        let [source, name, target] = [source, name, target].map(str::to_string);
        EdgeType { source, name, target }
    };
    let nodes = [("paper", 500), ("author", 400), ("nobody", 0), ("field", 100)].map(node).to_vec();
    let edges = [
        ["author", "writes", "paper"],
        ["paper", "cites", "paper"],
        ["paper", "written by", "author"],
        ["nobody", "edits", "paper"],
        ["field", "of", "paper"],
        ["field", "of", "author"],
    ];
    Types::new(nodes, edges.map(edge).to_vec()).expect("types")
}

/// A graph of these types: every node with up to four edges of each type that leads to it. Features of `dim` columns.
pub(crate) fn dataset(dim: usize, classes: usize) -> Dataset {
    let (types, mut random) = (types(), Random(5));
    let (mut indptr, mut indices, mut edge_types) = (vec![0u64], Vec::new(), Vec::new());
    for node in 0..types.num_nodes() as u32 {
        for edge_type in 0..types.edge_types().len() {
            let [source, target] = types.ends(edge_type);
            let sources = types.range(source);
            if target == types.node_type(node) && !sources.is_empty() {
                for _ in 0..random.below(5) {
                    indices.push(sources.start + random.below(sources.len()) as u32);
                    edge_types.push(edge_type as u16);
                }
            }
        }
        indptr.push(indices.len() as u64);
    }
    let features: Vec<f32> = (0..types.num_nodes() * dim).map(|_| random.unit()).collect();
    let topology = Topology::new(indptr, indices, None).expect("a graph");
    Dataset {
        features: Some(FeatureMatrix::F32 { data: features.into(), dim }),
        num_classes: classes,
        ..Dataset::new("typed", topology.with_types(types, edge_types).expect("sorted edges"))
    }
}

/// Widths of the features of each node type of [`dataset_by_type`].
pub(crate) const WIDTHS: [usize; 4] = [9, 0, 0, 33];

/// The graph with features of some node types, one of them in f16.
pub(crate) fn dataset_by_type(classes: usize) -> Dataset {
    let mut random = Random(6);
    let mut values = |len: usize| (0..len).map(|_| random.unit()).collect::<Vec<f32>>();
    let papers = FeatureMatrix::F32 { data: values(500 * WIDTHS[0]).into(), dim: WIDTHS[0] };
    let fields: Vec<half::f16> = values(100 * WIDTHS[3]).into_iter().map(half::f16::from_f32).collect();
    let fields = FeatureMatrix::F16 { data: fields.into(), dim: WIDTHS[3] };
    let features_by_type = vec![Some(papers), None, None, Some(fields)];
    Dataset { features: None, features_by_type, ..dataset(1, classes) }
}

/// Widths of the features of each edge type of [`with_edge_features`].
pub(crate) const EDGE_WIDTHS: [usize; 6] = [3, 0, 70, 0, 1, 2];
/// Rows of the features of each edge type.
const EDGE_ROWS: usize = 40;

/// The dataset with features of the edges of some types, of one in f16: several edges of a type share a row.
pub(crate) fn with_edge_features(dataset: Dataset) -> Dataset {
    let mut random = Random(8);
    let of_type = |width: usize| {
        let values: Vec<f32> = (0..EDGE_ROWS * width).map(|_| random.unit()).collect();
        match width {
            0 => None,
            2 => {
                let values: Vec<half::f16> = values.into_iter().map(half::f16::from_f32).collect();
                Some(FeatureMatrix::F16 { data: values.into(), dim: width })
            }
            _ => Some(FeatureMatrix::F32 { data: values.into(), dim: width }),
        }
    };
    let features = EDGE_WIDTHS.map(of_type).to_vec();
    let ids: Vec<u32> = (0..dataset.topology.num_edges()).map(|_| random.below(EDGE_ROWS) as u32).collect();
    dataset.with_edge_features(ids, features).expect("features of the edges")
}

/// Gives the edges of a mini-batch random rows of the features of their types.
pub(crate) fn add_edge_ids(batch: &mut HostBatch, seed: u64) {
    let mut random = Random(seed + 31);
    for block in &mut batch.blocks {
        block.edge_ids = Some((0..block.num_edges()).map(|_| random.below(EDGE_ROWS) as u32).collect());
    }
}

/// A mini-batch of random nodes of the graph, whose edges have random types that lead to their destinations.
pub(crate) fn typed_batch(
    nodes: &[usize],
    sizes: (usize, usize),
    (dtype, importance): (Dtype, bool),
    seed: u64,
) -> HostBatch {
    let (types, mut random) = (types(), Random(seed + 77));
    let mut batch = batch(nodes, sizes, dtype, importance, seed);
    batch.input_nodes.iter_mut().for_each(|node| *node = random.below(types.num_nodes()) as u32);
    for block in &mut batch.blocks {
        block.importance = importance;
        let mut edge_types = Vec::new();
        for row in 0..block.num_dst {
            let own = types.node_type(batch.input_nodes[row]);
            let leading: Vec<_> = (0..types.edge_types().len()).filter(|&t| types.ends(t)[1] == own).collect();
            // No edge type leads to fields, in the graph; a mini-batch may say otherwise.
            let choose = |_| leading.get(random.below(leading.len().max(1))).map_or(0, |&edge_type| edge_type as u16);
            let mut of_row: Vec<u16> = block.row(row).iter().map(choose).collect();
            of_row.sort_unstable();
            edge_types.extend(of_row);
        }
        block.edge_types = Some(edge_types);
    }
    batch
}

/// The context of an operator over [`dataset`].
pub(crate) fn context(
    model: &serde_json::Value,
    dataset: &Arc<Dataset>,
    threads: usize,
) -> morphgl_registry::TrainingContext {
    let spec = serde_json::json!({"model": model});
    morphgl_registry::TrainingContext {
        seed: 3,
        threads,
        ..morphgl_registry::TrainingContext::new(Arc::clone(dataset), spec)
    }
}
