//! Small graphs with difficult structure.

use std::fs;
use std::io::Write;
use std::path::Path;

use half::f16;
use morphgl_graph_store::{
    Array, Dataset, DatasetWriter, EdgeType, Element, FeatureMatrix, Load, NodeType, OpenOptions, TargetMatrix,
    TaskRows, Topology, Types,
};
use morphgl_platform::philox::philox4x32_10;

/// A random word for two numbers.
fn word(a: usize, b: usize) -> u32 {
    philox4x32_10([a as u32, b as u32, 0, 0], [0xC0, 0xFE])[0]
}

/// A random graph of about `degree` in-neighbours per node: with isolated nodes, self loops, duplicate edges, a node
/// with edges from all nodes (node 0), some nodes without a class, two targets per node of which some are unknown, and features of
/// f16 in rows of 3.
/// With `weights`, these are quarters, a fifth of them 0.
pub fn random(num_nodes: usize, degree: usize, weights: bool) -> Dataset {
    let mut rows: Vec<Vec<u32>> = vec![(0..num_nodes as u32).collect()];
    for node in 1..num_nodes {
        let len = if node % 7 == 3 { 0 } else { word(node, 0) as usize % (2 * degree + 1) };
        rows.push((0..len).map(|i| word(node, i + 1) % num_nodes as u32).collect());
    }
    if degree == 0 {
        rows[0].clear();
    }
    let num_edges = rows.iter().map(Vec::len).sum();
    let weights = weights.then(|| (0..num_edges).map(|e| (word(e, 99) % 5) as f32 * 0.25).collect());
    dataset(&rows, weights)
}

/// A graph as [`random`] with three node types, `big` with most of the nodes, one without nodes, and `small`; and with five edge types,
/// two of which are between nodes of one type, and one of which has no edges.
pub fn typed(num_nodes: usize, degree: usize, weights: bool) -> Dataset {
    let dataset = random(num_nodes, degree, weights);
    let big = num_nodes as u64 / 4 * 3;
    let counts = [("big", big), ("none", 0), ("small", num_nodes as u64 - big)];
    let nodes = counts.map(|(name, count)| NodeType { name: name.into(), count }).to_vec();
    let edges = [
        ("big", "a", "big"),
        ("small", "a", "big"),
        ("none", "d", "big"),
        ("big", "b", "big"),
        ("big", "b", "small"),
        ("small", "c", "small"),
    ];
    let edge = |(source, name, target): (&str, &str, &str)| EdgeType {
        source: source.into(),
        name: name.into(),
        target: target.into(),
    };
    let types = Types::new(nodes, edges.map(edge).to_vec()).expect("sound");
    let topology = &dataset.topology;
    let (mut order, mut edge_types) = ((0..topology.num_edges() as usize).collect::<Vec<_>>(), Vec::new());
    for node in 0..num_nodes as u32 {
        let target = types.node_type(node);
        let of = |edge: &usize| {
            let ends = [types.node_type(topology.indices()[*edge]), target];
            let fitting: Vec<usize> = (0..edges.len()).filter(|&number| types.ends(number) == ends).collect();
            fitting[word(*edge, 77) as usize % fitting.len()] as u16
        };
        let row = &mut order[topology.edge_range(node)];
        row.sort_by_key(of);
        edge_types.extend(row.iter().map(of));
    }
    let indices: Vec<u32> = order.iter().map(|&edge| topology.indices()[edge]).collect();
    let weights = topology.weights().map(|w| order.iter().map(|&edge| w[edge]).collect::<Vec<f32>>().into());
    let topology = Topology::new(topology.indptr().clone(), indices, weights);
    let topology = topology.and_then(|topology| topology.with_types(types, edge_types)).expect("sorted by type");
    Dataset { topology, ..dataset }
}

/// A graph as of [`typed`] whose edges from small to big nodes are the reverses of those from big to small ones, by name.
pub fn with_reverse(dataset: &Dataset) -> Dataset {
    let topology = &dataset.topology;
    let (types, edge_types) = topology.types().zip(topology.edge_types()).expect("a graph with types");
    let mut edges = types.edge_types().to_vec();
    edges[1].name = "rev_b".into();
    let types = Types::new(types.node_types().to_vec(), edges).expect("a name of its own");
    assert_eq!((types.reverse_of(1), types.reverse_of(4), types.reverse_of(0)), (Some(4), Some(1), None));
    let topology = topology.clone().with_types(types, edge_types.clone()).expect("the same edges");
    Dataset { topology, ..dataset.clone() }
}

/// The graph with random times of nodes and, if `of_edges`, of edges; if `ascends`, with the same time for all nodes and edges but those
/// that are the last of their sub-rows, so that every sub-row ascends by time.
pub fn timed(dataset: &Dataset, ascends: bool, of_edges: bool) -> Dataset {
    let topology = &dataset.topology;
    let num_nodes = dataset.num_nodes();
    let of_node = |node: usize| if ascends { 50 } else { i64::from(word(node, 31) % 100) };
    let mut edges: Vec<i64> = (0..topology.num_edges() as usize).map(|edge| i64::from(word(edge, 32) % 100)).collect();
    if ascends {
        edges.fill(40);
        let rows =
            (0..num_nodes as u32).flat_map(|node| topology.sub_rows(node).map(|(_, row)| row).collect::<Vec<_>>());
        for row in rows {
            let later = row.len() / 3;
            edges[row.end - later..row.end].fill(60);
        }
    }
    let nodes = (0..num_nodes).map(of_node).collect::<Vec<i64>>();
    let topology = topology.clone().with_times(Some(nodes.into()), of_edges.then(|| edges.into()));
    Dataset { topology: topology.expect("a time per node and edge"), ..dataset.clone() }
}

/// A ring, each node with its two neighbours (a single node: itself, twice).
pub fn cycle(num_nodes: usize) -> Dataset {
    let n = num_nodes as u32;
    let rows: Vec<Vec<u32>> = (0..n).map(|v| vec![(v + n - 1) % n, (v + 1) % n]).collect();
    dataset(&rows, None)
}

/// The same graph without features, labels and targets.
pub fn bare(dataset: &Dataset) -> Dataset {
    Dataset { features: None, labels: None, num_classes: 0, targets: None, ..dataset.clone() }
}

/// A copy with the nodes renumbered in a random order, in a typed graph within each type, and with draw keys; and the new number of each
/// node.
pub fn reordered(dataset: &Dataset) -> (Dataset, Vec<u32>) {
    let topology = &dataset.topology;
    let mut old_of_new: Vec<u32> = (0..dataset.num_nodes() as u32).collect();
    old_of_new.sort_by_key(|&v| (topology.types().map(|types| types.node_type(v)), word(v as usize, 55)));
    let mut new_of_old = vec![0; old_of_new.len()];
    (0u32..).zip(&old_of_new).for_each(|(new, &old)| new_of_old[old as usize] = new);
    let (mut indptr, mut indices) = (vec![0u64], Vec::new());
    for &old in &old_of_new {
        indices.extend(topology.neighbors(old).iter().map(|&u| new_of_old[u as usize]));
        indptr.push(indices.len() as u64);
    }
    fn of_edges<T: Copy>(topology: &Topology, old_of_new: &[u32], values: &[T]) -> Vec<T> {
        old_of_new.iter().flat_map(|&old| values[topology.edge_range(old)].to_vec()).collect()
    }
    let weights = topology.weights().map(|weights| of_edges(topology, &old_of_new, weights).into());
    let edge_times = topology.edge_times().map(|times| of_edges(topology, &old_of_new, times).into());
    let node_times =
        topology.node_times().map(|times| old_of_new.iter().map(|&v| times[v as usize]).collect::<Vec<_>>());
    let types = topology.types().zip(topology.edge_types());
    let types = types.map(|(types, of)| (Types::clone(types), of_edges(topology, &old_of_new, of)));
    let keys: Vec<u32> = old_of_new.iter().map(|&old| topology.draw_key(old)).collect();
    let topology = Topology::new(indptr, indices, weights).and_then(|t| t.with_draw_keys(keys));
    let topology = topology.and_then(|t| match types {
        Some((types, edge_types)) => t.with_types(types, edge_types),
        None => Ok(t),
    });
    let topology =
        topology.and_then(|t| t.with_times(node_times.map(Array::from), edge_times)).expect("the same graph");
    let features = dataset.features.as_ref().map(|matrix| {
        let FeatureMatrix::F16 { data, dim } = matrix else { panic!("the graphs of the suite have features of f16") };
        let rows = old_of_new.iter().flat_map(|&old| data[old as usize * dim..][..*dim].to_vec());
        FeatureMatrix::F16 { data: rows.collect::<Vec<_>>().into(), dim: *dim }
    });
    if let Some(rows) = &dataset.task_rows {
        // Rows keep their numbers, and so do their labels and targets.
        let nodes: Vec<u32> = rows.nodes().iter().map(|&old| new_of_old[old as usize]).collect();
        let task_rows = TaskRows::new(nodes, rows.times().clone(), dataset.num_nodes()).expect("the same rows");
        return (Dataset { topology, features, task_rows: Some(task_rows), ..dataset.clone() }, new_of_old);
    }
    let labels = dataset.labels.as_ref().map(|l| old_of_new.iter().map(|&old| l[old as usize]).collect::<Vec<_>>());
    let targets = dataset.targets.as_ref().map(|matrix| {
        let rows = old_of_new.iter().flat_map(|&old| matrix.row(old).to_vec());
        TargetMatrix::new(rows.collect::<Vec<_>>(), matrix.dim()).expect("the same rows")
    });
    (Dataset { topology, features, labels: labels.map(Array::from), targets, ..dataset.clone() }, new_of_old)
}

/// The dataset in mapped files: written to `dir`, without features, labels, targets and splits, and opened from there.
pub fn mapped(dataset: &Dataset, dir: &Path) -> Dataset {
    let topology = &dataset.topology;
    let mut writer = DatasetWriter::create(dir, false).expect("a fresh folder");
    writer.array("indptr", topology.indptr(), None).expect("room");
    writer.array("indices", topology.indices(), None).expect("room");
    if let Some(weights) = topology.weights() {
        writer.array("weights", weights, None).expect("room");
    }
    if let (Some(types), Some(edge_types)) = (topology.types(), topology.edge_types()) {
        writer.set_types(Types::clone(types));
        writer.array("edge_types", edge_types, None).expect("room");
    }
    writer.finish("mapped", 0, Default::default()).expect("arrays that fit");
    Dataset::open(dir, OpenOptions { load: Load::Mmap, verify: true }).expect("what was written")
}

/// Overwrites the mapped array in place, so that every mapping of the file reads `values` from now on.
pub fn overwrite<T: Element>(array: &Array<T>, values: &[T]) {
    assert_eq!(array.len(), values.len(), "elements");
    let file = array.file().expect("a mapped array");
    let mut bytes = fs::read(file).expect("it was written");
    let header = bytes.len() - size_of_val(values);
    bytes[header..].copy_from_slice(bytemuck::cast_slice(values));
    fs::OpenOptions::new().write(true).open(file).and_then(|mut file| file.write_all(&bytes)).expect("room");
}

/// A graph given by the in-neighbours of each node.
pub fn dataset(rows: &[Vec<u32>], weights: Option<Vec<f32>>) -> Dataset {
    let mut indptr = vec![0u64];
    indptr.extend(rows.iter().scan(0, |end, row| {
        *end += row.len() as u64;
        Some(*end)
    }));
    let num_nodes = rows.len();
    let features: Vec<f16> = (0..3 * num_nodes).map(|i| f16::from_f32((word(i, 7) % 512) as f32)).collect();
    let labels: Vec<i32> = (0..num_nodes).map(|v| (word(v, 8) % 5) as i32 - 1).collect();
    // Of the two targets, the first is unknown at every fourth node, the second at every third.
    let target = |i: usize| match word(i, 9).is_multiple_of(4 - i as u32 % 2) {
        true => f32::NAN,
        false => (word(i, 10) % 99) as f32 / 8.0 - 6.0,
    };
    let targets = TargetMatrix::new((0..2 * num_nodes).map(target).collect::<Vec<_>>(), 2).expect("finite targets");
    let topology = Topology::new(indptr, rows.concat(), weights.map(Array::from)).expect("the rows make a graph");
    Dataset {
        features: Some(FeatureMatrix::F16 { data: features.into(), dim: 3 }),
        labels: Some(labels.into()),
        num_classes: 4,
        targets: Some(targets),
        ..Dataset::new("test", topology)
    }
}
