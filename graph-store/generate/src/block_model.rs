//! The degree-corrected stochastic block model, made row block by row block without a list of edges.
//!
//! Nodes are cut into blocks of consecutive ids. The edges between two blocks are a function of the pair: how many
//! there are in each class, a Poisson number, and then each edge's two ends, drawn by expected degree. A block's rows
//! need only the pairs it takes part in, so an undirected graph comes out row after row by drawing every edge twice,
//! with no sort of the whole, no spill files and no order among threads.

use rayon::prelude::*;

use crate::alias::{Slot, build, draw};
use crate::node_data::NodeData;
use crate::output::{Footprint, Model};
use crate::poisson::poisson;
use crate::random::{Key, Purpose};
use crate::rows::{Rows, assemble};
use crate::sbm::Parameters;

/// Expected degrees are kept in these fractions, as integers: their sums are exact, whoever adds them up.
const UNIT: f64 = 64.0;

#[derive(Debug)]
pub(crate) struct BlockModel {
    parameters: Parameters,
    key: Key,
    block_nodes: u64,
    blocks: Vec<Block>,
    /// Expected degrees of each class, added up, and of all.
    class_weights: Vec<u64>,
    weight: u64,
    /// By what the outside rate is raised, since a draw whose ends are of one class is thrown away.
    outside_draws: f64,
}

/// What is needed to draw an end of an edge within a block.
#[derive(Debug)]
struct Block {
    /// Alias tables of the nodes by expected degree, one class after the other.
    nodes: Vec<Slot>,
    /// Where each class's table starts, and where the last ends.
    starts: Vec<u32>,
    class_weights: Vec<u64>,
    weight: u64,
    /// Alias table of the classes by weight.
    classes: Vec<Slot>,
}

impl BlockModel {
    pub(crate) fn new(parameters: Parameters) -> Self {
        let block_nodes = block_nodes(&parameters);
        let blocks: Vec<Block> = (0..parameters.data.nodes().div_ceil(block_nodes))
            .into_par_iter()
            .map(|b| Block::new(&parameters, b * block_nodes..((b + 1) * block_nodes).min(parameters.data.nodes())))
            .collect();
        let mut class_weights = vec![0u64; parameters.data.config.classes];
        for block in &blocks {
            class_weights.iter_mut().zip(&block.class_weights).for_each(|(sum, w)| *sum += w);
        }
        let weight: u64 = class_weights.iter().sum();
        let same: f64 = class_weights.iter().map(|&w| (w as f64 / weight as f64).powi(2)).sum();
        let key = Key::new(parameters.data.config.seed, Purpose::Edges);
        let outside_draws = if parameters.rate_outside > 0.0 { parameters.rate_outside / (1.0 - same) } else { 0.0 };
        Self { parameters, key, block_nodes, blocks, class_weights, weight, outside_draws }
    }

    pub(crate) fn footprint(parameters: &Parameters) -> Footprint {
        let (nodes, block_nodes) = (parameters.data.nodes(), block_nodes(parameters));
        let per_class = (size_of::<Slot>() + size_of::<u64>() + size_of::<u32>()) as u64;
        let classes = nodes.div_ceil(block_nodes) * parameters.data.config.classes as u64;
        // A quarter more edges than expected, eight bytes each as drawn and four once sorted; 12 bytes a row.
        let edges = (block_nodes as f64 * parameters.degree * 1.25) as u64 + 1024;
        Footprint {
            resident: nodes * size_of::<Slot>() as u64 + classes * per_class,
            block: edges * 12 + block_nodes * 12,
        }
    }

    /// Draws the edges between blocks `a <= b` as pairs (a node of `a`, a node of `b`), each edge once.
    fn pair(&self, a: usize, b: usize, mut edge: impl FnMut(u32, u32)) {
        let key = self.key.child((a as u64) << 32 | b as u64);
        let (left, right) = (&self.blocks[a], &self.blocks[b]);
        // Within a block both orders of a pair of nodes are drawn.
        let scale = if a == b { 0.5 } else { 1.0 } / UNIT;
        for (class, &all) in self.class_weights.iter().enumerate() {
            let (l, r) = (left.class_weights[class], right.class_weights[class]);
            if l == 0 || r == 0 {
                continue;
            }
            let key = key.child(class as u64);
            let expected = self.parameters.rate_inside * scale * l as f64 * r as f64 / all as f64;
            let (l, r) = (left.class(class), right.class(class));
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
                edge(draw(left.class(l), ends.value(4 * i + 2)), draw(right.class(r), ends.value(4 * i + 3)));
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

    fn rows(&self, block: usize) -> Rows {
        let first = block as u64 * self.block_nodes;
        let len = self.block_nodes.min(self.data().nodes() - first) as usize;
        let mut edges = Vec::with_capacity((len as f64 * self.parameters.degree * 1.1) as usize);
        for other in 0..block {
            self.pair(other, block, |from, to| edges.push((to, from)));
        }
        self.pair(block, block, |a, b| edges.extend([(a, b), (b, a)]));
        for other in block + 1..self.blocks.len() {
            self.pair(block, other, |to, from| edges.push((to, from)));
        }
        assemble(first as u32, len, &edges)
    }
}

impl Block {
    fn new(parameters: &Parameters, range: std::ops::Range<u64>) -> Self {
        let (data, classes) = (&parameters.data, parameters.data.config.classes);
        let mut members: Vec<(u32, u32, u64)> = range
            .map(|v| {
                let rank = data.rank(v);
                let degree = parameters.law.quantile((rank as f64 + 0.5) / data.nodes() as f64);
                (data.class_of_rank(rank), v as u32, (degree * UNIT).round().max(1.0) as u64)
            })
            .collect();
        members.sort_unstable();
        let mut nodes = Vec::with_capacity(members.len());
        let (mut starts, mut class_weights) = (vec![0; classes + 1], vec![0; classes]);
        let mut items = Vec::new();
        for members in members.chunk_by(|a, b| a.0 == b.0) {
            let class = members[0].0 as usize;
            items.clear();
            items.extend(members.iter().map(|&(_, v, w)| (v, w)));
            class_weights[class] = items.iter().map(|i| i.1).sum();
            build(&items, &mut nodes);
            starts[class + 1] = items.len() as u32;
        }
        for class in 0..classes {
            starts[class + 1] += starts[class];
        }
        let weighted: Vec<(u32, u64)> = class_weights.iter().enumerate().map(|(c, &w)| (c as u32, w)).collect();
        let mut table = Vec::with_capacity(classes);
        build(&weighted, &mut table);
        Self { nodes, starts, weight: class_weights.iter().sum(), class_weights, classes: table }
    }

    fn class(&self, class: usize) -> &[Slot] {
        &self.nodes[self.starts[class] as usize..self.starts[class + 1] as usize]
    }
}

/// Nodes of a block: enough blocks for many threads and for little memory, but not so many that the pairs of blocks
/// hold fewer than a handful of edges a class. A function of the configuration alone, since the edges follow from it.
fn block_nodes(parameters: &Parameters) -> u64 {
    let (nodes, classes) = (parameters.data.nodes() as f64, parameters.data.config.classes as f64);
    let by_edges = (nodes * parameters.degree / (8.0 * classes)).sqrt();
    let blocks = by_edges.min(nodes / 2048.0).clamp(1.0, 1024.0);
    (nodes / blocks).ceil() as u64
}
