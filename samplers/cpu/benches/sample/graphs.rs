//! The sampled graphs.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use morphgl_graph_store::{Array, Dataset, Element, Load, Topology, read_npy};
use morphgl_platform::Pages;
use morphgl_platform::philox::philox4x32_10;
use rayon::prelude::*;

/// A graph without features, and its training nodes.
pub(crate) struct Graph {
    pub(crate) dataset: Arc<Dataset>,
    pub(crate) seeds: Vec<u32>,
}

/// Entries of the table from which sources are drawn.
const SOURCES: u64 = 1 << 24;
/// Edges that a thread generates at a time.
const TASK: usize = 1 << 16;

/// A graph by name: from `data` if given, else generated with the same size and degree skew.
pub(crate) fn named(name: &str, data: Option<&Path>) -> Graph {
    if let Some(data) = data {
        let dir = data.join(name);
        let (offsets, nodes) = (read::<i64>(&dir.join("indptr.npy")), read::<i32>(&dir.join("indices_i32.npy")));
        let indptr =
            array(offsets.len(), |out: &mut [u64]| out.iter_mut().zip(&*offsets).for_each(|(o, &v)| *o = v as u64));
        let indices =
            array(nodes.len(), |out: &mut [u32]| out.iter_mut().zip(&*nodes).for_each(|(o, &v)| *o = v as u32));
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

/// Power-law degrees with exponent 2.3, truncated at `most`; sources in proportion to their degree.
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
    let indptr = offsets(&weights, num_edges);
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
    let indices = fill(total as usize, |_, words| sources[((u64::from(words[0]) * SOURCES) >> 32) as usize]);
    let seeds = train_nodes(&indptr, train);
    graph(name, indptr, indices, seeds)
}

/// A graph with `degree` uniform in-neighbours per node.
pub(crate) fn uniform(num_nodes: usize, degree: usize) -> Graph {
    let indptr = array(num_nodes + 1, |out: &mut [u64]| {
        out.iter_mut().enumerate().for_each(|(v, end)| *end = (v * degree) as u64);
    });
    let indices = fill(num_nodes * degree, |_, words| ((u64::from(words[0]) * num_nodes as u64) >> 32) as u32);
    let seeds = train_nodes(&indptr, num_nodes.min(100_000));
    graph("uniform", indptr, indices, seeds)
}

/// An R-MAT graph of average in-degree `degree`, with quadrants 36, 13, 12 and 3 of 64: expected in-degrees, drawn
/// in-neighbours.
pub(crate) fn rmat(num_nodes: usize, degree: usize) -> Graph {
    let bits = (num_nodes - 1).checked_ilog2().map_or(0, |b| b + 1);
    // The share of a row's half is 3/4 for a bit of 0, and 1/4 for one of 1.
    let weights: Vec<f32> = (0..num_nodes).map(|v| 3f32.powi((bits - v.count_ones()) as i32)).collect();
    let indptr = offsets(&weights, (num_nodes * degree) as u64);
    drop(weights);
    let total = indptr[num_nodes] as usize;
    let indices = fill(total, |edge, mut words| {
        let row = indptr.partition_point(|&end| end <= edge as u64) as u32 - 1;
        loop {
            // Of each bit, 1 has probability 1/4 in the rows of 0, and 3/16 in those of 1.
            let source = words[0] & words[1] & (!row | words[2] | words[3]) & ((1 << bits) - 1);
            if (source as usize) < num_nodes {
                return source;
            }
            words = philox4x32_10(words, [2, 1]);
        }
    });
    let seeds = train_nodes(&indptr, num_nodes.min(100_000) / 4);
    graph("rmat", indptr, indices, seeds)
}

/// Offsets of rows whose lengths are in proportion to their weights.
fn offsets<T: Copy + Into<f64>>(weights: &[T], num_edges: u64) -> Array<u64> {
    let scale = num_edges as f64 / weights.iter().map(|&w| w.into()).sum::<f64>();
    array(weights.len() + 1, |out: &mut [u64]| {
        let mut end = 0.0;
        for (out, &weight) in out[1..].iter_mut().zip(weights) {
            end += weight.into() * scale;
            *out = end as u64;
        }
    })
}

/// Random nodes with in-neighbours.
fn train_nodes(indptr: &[u64], count: usize) -> Vec<u32> {
    let num_nodes = indptr.len() as u64 - 1;
    let (mut known, mut nodes) = (HashSet::new(), Vec::new());
    for draw in 0u32.. {
        let node = ((u64::from(philox4x32_10([draw, 0, 0, 0], [3, 0])[0]) * num_nodes) >> 32) as usize;
        if indptr[node] < indptr[node + 1] && known.insert(node) {
            nodes.push(node as u32);
        }
        // If few nodes have any, one mini-batch of seeds suffices.
        if nodes.len() == count || draw as usize > 20 * count {
            break;
        }
    }
    nodes
}

/// Indices, each a function of its position and four random words.
fn fill(len: usize, index: impl Fn(usize, [u32; 4]) -> u32 + Sync) -> Array<u32> {
    array(len, |indices: &mut [u32]| {
        indices.par_chunks_mut(TASK).enumerate().for_each(|(number, task)| {
            for (i, out) in task.iter_mut().enumerate() {
                *out = index(number * TASK + i, philox4x32_10([i as u32, number as u32, 0, 0], [2, 0]));
            }
        });
    })
}

/// An array on huge pages, as in loaded datasets.
fn array<T: Element + bytemuck::Pod>(len: usize, make: impl FnOnce(&mut [T])) -> Array<T> {
    let mut pages = Pages::zeroed(len * size_of::<T>()).expect("memory for the graph");
    make(bytemuck::cast_slice_mut(&mut pages));
    Array::from_pages(pages).expect("whole elements")
}

fn graph(name: &str, indptr: Array<u64>, indices: Array<u32>, seeds: Vec<u32>) -> Graph {
    let dataset = Dataset::new(name, Topology::new(indptr, indices, None).unwrap_or_else(|e| panic!("{name}: {e}")));
    Graph { dataset: Arc::new(dataset), seeds }
}
