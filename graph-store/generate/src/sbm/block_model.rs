//! The degree-corrected stochastic block model by blocks of rows, without a list of edges.
//!
//! Nodes are cut into blocks of consecutive ids. The edges between two blocks are a function of the pair: how many
//! there are in each class, a Poisson number, and then each edge's two ends, drawn by expected degree. A block's rows
//! need only the pairs it takes part in, so an undirected graph is made row after row by drawing every edge twice,
//! with no sort of the whole, no spill files and no order among threads.

use morphgl_platform::{PagePool, Pages};
use rayon::prelude::*;

use super::Parameters;
use crate::alias::{Slot, build, draw};
use crate::memory::{Footprint, mapped, max_events};
use crate::node_data::NodeData;
use crate::output::Model;
use crate::poisson::poisson;
use crate::random::{Key, Purpose};
use crate::rows::{Buffers, SortedRows};

/// Unit of expected degrees, which are integers so that their sums are exact in any order.
const UNIT: f64 = 64.0;

#[derive(Debug)]
pub(crate) struct BlockModel {
    parameters: Parameters,
    key: Key,
    block_nodes: u64,
    blocks: Vec<Block>,
    /// Alias tables of each block's nodes by expected degree, one class after the other.
    nodes: Pages,
    /// Sums of the expected degrees of each class, and of all.
    class_weights: Vec<u64>,
    weight: u64,
    /// Rate of draws between classes: those whose ends are of one class are discarded.
    outside_draws: f64,
}

/// Tables to draw an end of an edge within a block.
#[derive(Debug)]
struct Block {
    /// Offset of the table of each class's nodes, and the end of the last.
    starts: Vec<u32>,
    class_weights: Vec<u64>,
    weight: u64,
    /// Alias table of the classes by weight.
    classes: Vec<Slot>,
}

impl BlockModel {
    /// Builds the tables, on at most `builders` threads.
    pub(crate) fn new(mut parameters: Parameters, builders: usize) -> Self {
        parameters.data.make_means();
        let (num_nodes, block_nodes) = (parameters.data.nodes(), block_nodes(&parameters));
        let mut nodes = Pages::zeroed(num_nodes as usize * size_of::<Slot>())
            .unwrap_or_else(|e| panic!("no memory for the tables of {num_nodes} nodes: {e}"));
        let (slots, pool): (&mut [Slot], _) = (bytemuck::cast_slice_mut(&mut nodes), PagePool::new());
        let parts = slots.par_chunks_mut(block_nodes as usize).enumerate();
        // One run of blocks for each builder.
        let min_len = parts.len().div_ceil(builders.max(1));
        let make = |(b, slots)| Block::new(&parameters, b as u64 * block_nodes, slots, &pool);
        let blocks: Vec<Block> = parts.with_min_len(min_len).map(make).collect();
        let mut class_weights = vec![0u64; parameters.data.config.classes];
        for block in &blocks {
            class_weights.iter_mut().zip(&block.class_weights).for_each(|(sum, w)| *sum += w);
        }
        let weight: u64 = class_weights.iter().sum();
        let same: f64 = class_weights.iter().map(|&w| (w as f64 / weight as f64).powi(2)).sum();
        let key = Key::new(parameters.data.config.seed, Purpose::Edges);
        let outside_draws = if parameters.rate_outside > 0.0 { parameters.rate_outside / (1.0 - same) } else { 0.0 };
        Self { parameters, key, block_nodes, blocks, nodes, class_weights, weight, outside_draws }
    }

    pub(crate) fn footprint(parameters: &Parameters) -> Footprint {
        let (data, block_nodes) = (&parameters.data, block_nodes(parameters));
        let classes = data.config.classes as u64;
        // Of each block and class: the offset of its nodes, their weight, and a slot; and the block itself.
        let blocks = data.nodes().div_ceil(block_nodes) * (classes * (4 + 8 + 12) + 256);
        let in_class = max_events(block_nodes as f64 / classes as f64, 1.0).min(block_nodes as f64) as u64;
        Footprint {
            resident: mapped(data.nodes() * size_of::<Slot>() as u64) + blocks + 8 * classes + data.means_bytes(),
            build: mapped(block_nodes * size_of::<Member>() as u64) + 24 * in_class.max(classes),
            rows: Buffers::memory(block_nodes, max_edges(parameters)),
            features: data.features_memory(),
            labels: data.labels_memory(),
        }
    }

    /// The alias tables of a block's nodes.
    fn nodes(&self, block: usize) -> &[Slot] {
        &bytemuck::cast_slice(&self.nodes)[block * self.block_nodes as usize..]
    }

    /// Draws the edges between blocks `a <= b` as pairs (a node of `a`, a node of `b`), each edge once.
    fn pair(&self, a: usize, b: usize, mut edge: impl FnMut(u32, u32)) {
        let key = self.key.child((a as u64) << 32 | b as u64);
        let (left, right) = (&self.blocks[a], &self.blocks[b]);
        let (left_nodes, right_nodes) = (self.nodes(a), self.nodes(b));
        // Within a block both orders of a pair of nodes are drawn.
        let scale = if a == b { 0.5 } else { 1.0 } / UNIT;
        for (class, &all) in self.class_weights.iter().enumerate() {
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
        let key = key.child(self.class_weights.len() as u64);
        let expected = self.outside_draws * scale * left.weight as f64 * right.weight as f64 / self.weight as f64;
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
        self.blocks.len()
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
            for other in block + 1..self.blocks.len() {
                self.pair(block, other, |to, from| edges.push(to, from));
            }
        })
    }
}

/// A node while the tables are made: its class before its id, and its expected degree.
type Member = [u64; 2];

impl Block {
    /// Makes the tables of the nodes from `first` on, as many as there are `slots` for.
    fn new(parameters: &Parameters, first: u64, slots: &mut [Slot], pool: &PagePool) -> Self {
        let (data, classes) = (&parameters.data, parameters.data.config.classes);
        let mut members = pool.take();
        let members: &mut [Member] = bytemuck::cast_slice_mut(members.resize(size_of_val(slots) / 12 * 16));
        for (v, member) in (first..).zip(&mut *members) {
            let rank = data.rank(v);
            let degree = parameters.law.quantile((rank as f64 + 0.5) / data.nodes() as f64);
            *member = [u64::from(data.class_of_rank(rank)) << 32 | v, (degree * UNIT).round().max(1.0) as u64];
        }
        members.sort_unstable();
        let (mut starts, mut class_weights) = (vec![0; classes + 1], vec![0; classes]);
        let mut rest = slots;
        for members in members.chunk_by(|a, b| a[0] >> 32 == b[0] >> 32) {
            let class = (members[0][0] >> 32) as usize;
            class_weights[class] = members.iter().map(|m| m[1]).sum();
            let (slots, others) = std::mem::take(&mut rest).split_at_mut(members.len());
            build(slots, |i| (members[i][0] as u32, members[i][1]));
            starts[class + 1] = members.len() as u32;
            rest = others;
        }
        for class in 0..classes {
            starts[class + 1] += starts[class];
        }
        let mut table = vec![[0; 3]; classes];
        build(&mut table, |class| (class as u32, class_weights[class]));
        Self { starts, weight: class_weights.iter().sum(), class_weights, classes: table }
    }

    /// The alias table of a class among those of the block's nodes.
    fn class<'n>(&self, class: usize, nodes: &'n [Slot]) -> &'n [Slot] {
        &nodes[self.starts[class] as usize..self.starts[class + 1] as usize]
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
