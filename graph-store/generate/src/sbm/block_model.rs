//! The degree-corrected stochastic block model by blocks of rows, without a list of edges.
//!
//! Nodes are cut into blocks of consecutive ids. The edges between two blocks are a function of the pair: how many
//! there are in each class, a Poisson number, and then each edge's two ends, drawn by expected degree. A block's rows
//! need only the pairs it takes part in, so an undirected graph is made row after row by drawing every edge twice,
//! with no sort of the whole, no spill files and no order among threads.

use super::Parameters;
use crate::alias::draw;
use crate::memory::{Footprint, max_events};
use crate::node_data::NodeData;
use crate::output::Model;
use crate::poisson::poisson;
use crate::random::{Key, Purpose};
use crate::rows::{Buffers, SortedRows};
use crate::tables::{Tables, UNIT};

#[derive(Debug)]
pub(crate) struct BlockModel {
    parameters: Parameters,
    key: Key,
    block_nodes: u64,
    tables: Tables,
    /// Rate of draws between classes: those whose ends are of one class are discarded.
    outside_draws: f64,
}

impl BlockModel {
    /// Builds the tables, on at most `builders` threads.
    pub(crate) fn new(mut parameters: Parameters, builders: usize) -> Self {
        parameters.data.make_means();
        let block_nodes = block_nodes(&parameters);
        let tables = Tables::new(&parameters.data, &parameters.law, block_nodes, builders);
        let weight = tables.weight as f64;
        let same: f64 = tables.class_weights.iter().map(|&w| (w as f64 / weight).powi(2)).sum();
        let key = Key::new(parameters.data.config.seed, Purpose::Edges);
        let outside_draws = if parameters.rate_outside > 0.0 { parameters.rate_outside / (1.0 - same) } else { 0.0 };
        Self { parameters, key, block_nodes, tables, outside_draws }
    }

    pub(crate) fn footprint(parameters: &Parameters) -> Footprint {
        let (data, block_nodes) = (&parameters.data, block_nodes(parameters));
        let (tables, build) = Tables::memory(data, block_nodes);
        Footprint {
            resident: tables + data.means_bytes(),
            build,
            rows: Buffers::memory(block_nodes, max_edges(parameters)),
            features: data.features_memory(),
            labels: data.labels_memory(),
        }
    }

    /// Draws the edges between blocks `a <= b` as pairs (a node of `a`, a node of `b`), each edge once.
    fn pair(&self, a: usize, b: usize, mut edge: impl FnMut(u32, u32)) {
        let key = self.key.child((a as u64) << 32 | b as u64);
        let (left, right) = (self.tables.block(a), self.tables.block(b));
        let (left_nodes, right_nodes) = (self.tables.nodes(a), self.tables.nodes(b));
        // Within a block both orders of a pair of nodes are drawn.
        let scale = if a == b { 0.5 } else { 1.0 } / UNIT;
        for (class, &all) in self.tables.class_weights.iter().enumerate() {
            let (l, r) = (left.class_weights[class], right.class_weights[class]);
            if l == 0 || r == 0 {
                continue;
            }
            let key = key.child(class as u64);
            let expected = self.parameters.rate_inside * scale * l as f64 * r as f64 / all as f64;
            let (l, r) = (left.class(class, left_nodes), right.class(class, right_nodes));
            let ends = key.child(0);
            for i in 0..poisson(key, expected) {
                edge(draw(l, ends.value(2 * i)), draw(r, ends.value(2 * i + 1)));
            }
        }
        let key = key.child(self.tables.class_weights.len() as u64);
        let expected =
            self.outside_draws * scale * left.weight as f64 * right.weight as f64 / self.tables.weight as f64;
        let ends = key.child(0);
        for i in 0..poisson(key, expected) {
            let l = draw(&left.classes, ends.value(4 * i)) as usize;
            let r = draw(&right.classes, ends.value(4 * i + 1)) as usize;
            if l != r {
                let (l, r) = (left.class(l, left_nodes), right.class(r, right_nodes));
                edge(draw(l, ends.value(4 * i + 2)), draw(r, ends.value(4 * i + 3)));
            }
        }
    }
}

impl Model for BlockModel {
    fn data(&self) -> &NodeData {
        &self.parameters.data
    }

    fn num_blocks(&self) -> usize {
        self.tables.num_blocks()
    }

    fn buffers(&self) -> Buffers {
        Buffers::new(max_edges(&self.parameters))
    }

    fn rows(&self, block: usize, buffers: &Buffers) -> SortedRows {
        let first = block as u64 * self.block_nodes;
        let len = self.block_nodes.min(self.data().nodes() - first) as usize;
        buffers.rows(first as u32, len, |edges| {
            for other in 0..block {
                self.pair(other, block, |from, to| edges.push(to, from));
            }
            self.pair(block, block, |a, b| {
                edges.push(a, b);
                edges.push(b, a);
            });
            for other in block + 1..self.tables.num_blocks() {
                self.pair(block, other, |to, from| edges.push(to, from));
            }
        })
    }
}

/// Upper bound of the edges drawn for the rows of a block, exceeded with a probability below 10^-13.
fn max_edges(parameters: &Parameters) -> u64 {
    let (classes, nodes) = (parameters.data.config.classes as f64, parameters.data.nodes() as f64);
    // A block's nodes are drawn without replacement from all, whose expected degrees have this mean and maximum:
    // Bernstein's inequality for their sum, where the variance is at most the mean times the maximum.
    let (block, mean) = (block_nodes(parameters) as f64, parameters.degree + 1.0 / UNIT);
    let largest = parameters.law.max() + 1.0 / UNIT;
    let sum = block * mean + 27.0 * largest + (80.0 * block * mean * largest).sqrt();
    let sum = sum.min(block * largest).min(1.01 * nodes * mean);
    let outside = if classes > 1.0 { 1.05 * parameters.rate_outside * classes / (classes - 1.0) } else { 0.0 };
    // Edges within the block are drawn in pairs, which doubles the variance.
    max_events(sum * (parameters.rate_inside + outside), 2.0) as u64
}

/// Nodes of a block: enough blocks for many threads and for little memory, but not so many that the pairs of blocks
/// hold fewer than a handful of edges per class. A function of the configuration alone, since the edges follow from it.
fn block_nodes(parameters: &Parameters) -> u64 {
    let (nodes, classes) = (parameters.data.nodes() as f64, parameters.data.config.classes as f64);
    let by_edges = (nodes * parameters.degree / (8.0 * classes)).sqrt();
    let blocks = by_edges.min(nodes / 2048.0).clamp(1.0, 1024.0);
    (nodes / blocks).ceil() as u64
}
