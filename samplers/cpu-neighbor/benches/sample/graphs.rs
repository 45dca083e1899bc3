//! The graphs that are sampled.

use std::path::Path;
use std::sync::Arc;

use morphgl_graph_store::{Array, Dataset, Element, Load, Splits, Topology, read_npy};
use morphgl_sampler_core::{permute, philox4x32_10};
use rayon::prelude::*;

/// A graph without features, and its training nodes.
pub(crate) struct Graph {
    pub(crate) dataset: Arc<Dataset>,
    pub(crate) seeds: Vec<u32>,
}

/// Entries of the table that sources are drawn from.
const SOURCES: u64 = 1 << 24;
/// Edges a thread makes at a time.
const TASK: usize = 1 << 16;

/// A graph by name: from `data` where given, else made here with as many nodes and edges and degrees as skewed.
pub(crate) fn named(name: &str, data: Option<&Path>) -> Graph {
    if let Some(data) = data {
        let dir = data.join(name);
        let indptr = read::<i64>(&dir.join("indptr.npy")).iter().map(|&v| v as u64).collect();
        let indices = read::<i32>(&dir.join("indices_i32.npy")).iter().map(|&v| v as u32).collect();
        let seeds = read::<i64>(&dir.join("train_idx.npy")).iter().map(|&v| v as u32).collect();
        return graph(name, indptr, indices, seeds);
    }
    match name {
        "products-like" => power_law(name, 2_400_000, 124_000_000, 17_500.0, 197_000),
        "arxiv-like" => power_law(name, 169_343, 2_340_000, 13_000.0, 91_000),
        _ => panic!("unknown graph {name}; use products-like or arxiv-like, or give --data"),
    }
}

fn read<T: Element>(path: &Path) -> Array<T> {
    read_npy(path, Load::Mmap).unwrap_or_else(|e| panic!("{e}")).0
}

/// Degrees by a power law of exponent 2.3, cut at `most`; sources in proportion to their degree.
fn power_law(name: &str, num_nodes: u32, num_edges: u64, most: f64, train: usize) -> Graph {
    let weight = |node: u32| {
        let word = f64::from(philox4x32_10([node, 0, 0, 0], [1, 0])[0]);
        (1.0 - word / (1u64 << 32) as f64).powf(-1.0 / 1.3)
    };
    let mut weights: Vec<f64> = (0..num_nodes).map(weight).collect();
    for _ in 0..20 {
        let cap = most * weights.iter().sum::<f64>() / num_edges as f64;
        weights.iter_mut().for_each(|w| *w = w.min(cap));
    }
    let scale = num_edges as f64 / weights.iter().sum::<f64>();
    let mut end = 0.0;
    let ends = weights.iter().map(|w| {
        end += w * scale;
        end as u64
    });
    let indptr: Vec<u64> = std::iter::once(0).chain(ends).collect();
    let total = indptr[num_nodes as usize];
    let mut row = 0;
    let sources: Vec<u32> = (0..SOURCES)
        .map(|i| {
            let edge = (u128::from(i) * u128::from(total) / u128::from(SOURCES)) as u64;
            while indptr[row + 1] <= edge {
                row += 1;
            }
            row as u32
        })
        .collect();
    let indices = fill(total as usize, |word| sources[((u64::from(word) * SOURCES) >> 32) as usize]);
    graph(name, indptr, indices, train_nodes(num_nodes, train))
}

/// Every node with `degree` in-neighbours, each any node.
pub(crate) fn uniform(num_nodes: usize, degree: usize) -> Graph {
    let indptr = (0..=num_nodes).map(|v| (v * degree) as u64).collect();
    let indices = fill(num_nodes * degree, |word| ((u64::from(word) * num_nodes as u64) >> 32) as u32);
    graph("uniform", indptr, indices, train_nodes(num_nodes as u32, num_nodes.min(100_000)))
}

fn train_nodes(num_nodes: u32, count: usize) -> Vec<u32> {
    let mut nodes: Vec<u32> = (0..num_nodes).collect();
    permute(3, 0, &mut nodes);
    nodes.truncate(count);
    nodes
}

/// Indices, each made from a random word.
fn fill(len: usize, index: impl Fn(u32) -> u32 + Sync) -> Vec<u32> {
    let mut indices = vec![0; len];
    indices.par_chunks_mut(TASK).enumerate().for_each(|(number, task)| {
        for (block, out) in task.chunks_mut(4).enumerate() {
            let words = philox4x32_10([block as u32, number as u32, 0, 0], [2, 0]);
            out.iter_mut().zip(words).for_each(|(out, word)| *out = index(word));
        }
    });
    indices
}

fn graph(name: &str, indptr: Vec<u64>, indices: Vec<u32>, seeds: Vec<u32>) -> Graph {
    let none = || Array::from(Vec::new());
    let dataset = Dataset {
        path: Default::default(),
        name: name.into(),
        topology: Topology::new(indptr, indices, None).unwrap_or_else(|e| panic!("{name}: {e}")),
        features: None,
        labels: None,
        num_classes: 0,
        splits: Splits { train: none(), valid: none(), test: none() },
        node_ids: None,
    };
    Graph { dataset: Arc::new(dataset), seeds }
}
