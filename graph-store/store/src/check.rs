//! Parallel checks of whole arrays, before a dataset is opened and before a new one is renamed to its target; a fault names the
//! first invalid element.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use half::{bf16, f16};
use rayon::prelude::*;

use crate::{FeatureMatrix, FeatureView, Types};

/// The largest number of nodes a graph may have: ids are `u32` in memory.
pub const MAX_NODES: u64 = u32::MAX as u64;

/// The first invalid element of an array.
#[derive(Debug, PartialEq)]
pub(crate) struct Fault {
    pub(crate) array: String,
    pub(crate) element: u64,
    pub(crate) what: String,
}

impl Fault {
    pub(crate) fn new(array: &str, element: usize, what: String) -> Self {
        Self { array: array.to_string(), element: element as u64, what }
    }

    /// As a text that names the array and the element.
    pub(crate) fn describe(self) -> String {
        format!("{}, element {}: {}", self.array, self.element, self.what)
    }
}

/// The fault of an array, if it has one.
type Checked = std::result::Result<(), Fault>;

fn fault(array: &str, element: usize, what: String) -> Checked {
    Err(Fault::new(array, element, what))
}

/// Index of the first bad value.
fn first<T: Sync>(values: &[T], bad: impl Fn(&T) -> bool + Sync + Send) -> Option<usize> {
    const CHUNK: usize = 1 << 16;
    values
        .par_chunks(CHUNK)
        .enumerate()
        // A chunk is tested without branches, and searched only when it has a bad value.
        .filter(|(_, c)| c.iter().fold(false, |any, v| any | bad(v)))
        .map(|(i, c)| i * CHUNK + c.iter().position(&bad).expect("the chunk holds a bad value"))
        .min()
}

pub(crate) fn topology(indptr: &[u64], indices: &[u32], weights: Option<&[f32]>) -> Checked {
    let Some((&start, &end)) = indptr.first().zip(indptr.last()) else {
        return fault("indptr", 0, "the array is empty and must hold at least one offset".into());
    };
    let num_nodes = indptr.len() as u64 - 1;
    if num_nodes > MAX_NODES {
        let what = format!("{num_nodes} nodes are more than the {MAX_NODES} that ids of 32 bits allow");
        return fault("indptr", 0, what);
    }
    if start != 0 {
        return fault("indptr", 0, format!("the first offset is {start} and must be 0"));
    }
    if let Some(i) = indptr.par_windows(2).position_first(|w| w[0] > w[1]) {
        return fault("indptr", i + 1, format!("the offset decreases from {} to {}", indptr[i], indptr[i + 1]));
    }
    if end != indices.len() as u64 {
        let what = format!("the last offset is {end}, but there are {} edges", indices.len());
        return fault("indptr", indptr.len() - 1, what);
    }
    if let Some(i) = first(indices, |&u| u64::from(u) >= num_nodes) {
        return fault("indices", i, format!("an edge comes from node {}, but there are {num_nodes} nodes", indices[i]));
    }
    if let Some(weights) = weights {
        if weights.len() != indices.len() {
            return fault("weights", 0, format!("{} weights for {} edges", weights.len(), indices.len()));
        }
        if let Some(i) = first(weights, |w| !(w.is_finite() && *w >= 0.0)) {
            return fault("weights", i, format!("the weight {} is not a finite number of at least 0", weights[i]));
        }
    }
    Ok(())
}

/// Checks the types of the edges of a sound graph: as many as edges, sorted in every row, between nodes of their types.
pub(crate) fn edge_types(types: &Types, indptr: &[u64], indices: &[u32], edge_types: &[u16]) -> Checked {
    let fault = |element: usize, what: String| fault("edge_types", element, what);
    let num_nodes = indptr.len() - 1;
    if num_nodes != types.num_nodes() {
        return fault(0, format!("the types have {} nodes, the graph {num_nodes}", types.num_nodes()));
    }
    if edge_types.len() != indices.len() {
        return fault(0, format!("{} types of edges for {} edges", edge_types.len(), indices.len()));
    }
    edge_types_into(0..num_nodes, types, indptr, indices, edge_types)
}

/// As [`edge_types`], of the edges into some of the nodes, where there are as many types as edges.
pub(crate) fn edge_types_into(
    nodes: Range<usize>,
    types: &Types,
    indptr: &[u64],
    indices: &[u32],
    edge_types: &[u16],
) -> Checked {
    let fault = |element: usize, what: String| fault("edge_types", element, what);
    let all = types.edge_types();
    let wrong = |node: usize| {
        let (row, target) = (indptr[node] as usize..indptr[node + 1] as usize, types.node_type(node as u32));
        row.clone().find(|&edge| {
            let number = usize::from(edge_types[edge]);
            let is_sorted = edge == row.start || edge_types[edge - 1] <= edge_types[edge];
            !is_sorted || number >= all.len() || types.ends(number) != [types.node_type(indices[edge]), target]
        })
    };
    let Some(edge) = nodes.into_par_iter().with_min_len(1 << 10).find_map_first(wrong) else { return Ok(()) };
    let Some(of) = all.get(usize::from(edge_types[edge])) else {
        return fault(edge, format!("the edge type {} does not exist, there are {}", edge_types[edge], all.len()));
    };
    let (source, target) = (indices[edge], indptr.partition_point(|&end| end <= edge as u64) as u32 - 1);
    let [from, to] = [source, target].map(|node| &types.node_types()[types.node_type(node)].name);
    if (from, to) == (&of.source, &of.target) {
        return fault(edge, format!("the edges of node {target} are not sorted by type"));
    }
    fault(edge, format!("an edge from node {source} ({from}) to node {target} ({to}) has the type {of}"))
}

pub(crate) fn features(name: &str, view: FeatureView<'_>) -> Checked {
    let bad = match view {
        FeatureView::F32(d) => first(d, |v: &f32| !v.is_finite()),
        FeatureView::F16(d) => first(d, |v: &f16| !v.is_finite()),
        FeatureView::Bf16(d) => first(d, |v: &bf16| !v.is_finite()),
        FeatureView::U8(_) => None,
    };
    bad.map_or(Ok(()), |i| fault(name, i, "the value is NaN or infinite".into()))
}

impl FeatureMatrix {
    /// The first of these rows with a value that is NaN or infinite.
    pub fn first_invalid(&self, rows: Range<usize>) -> Option<usize> {
        let first = rows.start;
        let fault = features("features", self.rows(rows)).err()?;
        Some(first + fault.element as usize / self.dim().max(1))
    }
}

pub(crate) fn labels(labels: &[i32], num_classes: usize) -> Checked {
    match first(labels, |&l| l < -1 || l >= num_classes as i32) {
        Some(i) => fault("labels", i, format!("the label is {}, outside -1 (none) and 0..{num_classes}", labels[i])),
        None => Ok(()),
    }
}

pub(crate) fn targets(values: &[f32]) -> Checked {
    match first(values, |value| value.is_infinite()) {
        Some(i) => fault("targets", i, format!("the target is {}; NaN stands for an unknown one", values[i])),
        None => Ok(()),
    }
}

/// Checks that the examples of a split exist, of which there are `count` of the kind `of` (node or row), and that none but one of training
/// repeats.
pub(crate) fn split(name: &str, examples: &[u32], (of, count): (&str, usize)) -> Checked {
    if name == "train" { all_exist(name, examples, (of, count)) } else { distinct(name, examples, (of, count)) }
}

pub(crate) fn exist(name: &str, nodes: &[u32], num_nodes: usize) -> Checked {
    all_exist(name, nodes, ("node", num_nodes))
}

fn all_exist(name: &str, numbers: &[u32], (of, count): (&str, usize)) -> Checked {
    match first(numbers, |&v| v as usize >= count) {
        Some(i) => fault(name, i, format!("{of} {} does not exist, there are {count}", numbers[i])),
        None => Ok(()),
    }
}

fn distinct(name: &str, numbers: &[u32], (of, count): (&str, usize)) -> Checked {
    all_exist(name, numbers, (of, count))?;
    let mut seen = vec![false; if numbers.is_empty() { 0 } else { count }];
    match numbers.iter().position(|&v| std::mem::replace(&mut seen[v as usize], true)) {
        Some(i) => fault(name, i, format!("{of} {} is listed twice", numbers[i])),
        None => Ok(()),
    }
}

/// Checks that `nodes` has every node once.
pub(crate) fn permutation(name: &str, nodes: &[u32], num_nodes: usize) -> Checked {
    if nodes.len() != num_nodes {
        return fault(name, 0, format!("{} elements for {num_nodes} nodes", nodes.len()));
    }
    let seen: Vec<AtomicU64> = (0..num_nodes.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
    let bad = |&v: &u32| {
        let (word, bit) = (v as usize / 64, 1 << (v % 64));
        v as usize >= num_nodes || seen[word].fetch_or(bit, Ordering::Relaxed) & bit != 0
    };
    if nodes.par_iter().with_min_len(1 << 12).any(bad) {
        // In order, for the first fault.
        return distinct(name, nodes, ("node", num_nodes));
    }
    Ok(())
}

/// The rows of edges' features: each below the number of `rows` of the edge's type, which is of all edges without `edge_types`.
pub(crate) fn edge_ids(ids: &[u32], edge_types: Option<&[u16]>, rows: &[Option<u64>]) -> Checked {
    edge_ids_of(0..ids.len(), ids, edge_types, rows)
}

/// As [`edge_ids`], of some of the edges.
pub(crate) fn edge_ids_of(
    edges: Range<usize>,
    ids: &[u32],
    edge_types: Option<&[u16]>,
    rows: &[Option<u64>],
) -> Checked {
    let of = |edge: usize| rows[edge_types.map_or(0, |types| usize::from(types[edge]))];
    let bad = |edge: &usize| of(*edge).is_some_and(|rows| u64::from(ids[*edge]) >= rows);
    match edges.into_par_iter().with_min_len(1 << 16).find_first(bad) {
        None => Ok(()),
        Some(edge) => {
            let rows = of(edge).unwrap_or(0);
            fault("edge_ids", edge, format!("row {} of the edge's features, which have {rows}", ids[edge]))
        }
    }
}
