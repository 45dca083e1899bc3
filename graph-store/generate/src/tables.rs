//! Tables to draw nodes from: blocks of consecutive ids, and within a block the nodes of each class.

use morphgl_platform::{PagePool, Pages};
use rayon::prelude::*;

use crate::alias::{Slot, build, draw};
use crate::degrees::PowerLaw;
use crate::memory::{mapped, max_events};
use crate::node_data::NodeData;
use crate::random::index;

/// Unit of expected degrees, which are integers so that their sums are exact in any order.
pub(crate) const UNIT: f64 = 64.0;

/// Alias tables of nodes by expected degree, for each block and class.
#[derive(Debug)]
pub(crate) struct Tables {
    block_nodes: u64,
    blocks: Vec<Block>,
    /// The tables of a block's classes, one after the other, block after block.
    nodes: Pages,
    /// Sums of the expected degrees of each class, and of all.
    pub(crate) class_weights: Vec<u64>,
    pub(crate) weight: u64,
}

/// Tables to draw an end of an edge within a block.
#[derive(Debug)]
pub(crate) struct Block {
    /// Offset of the table of each class's nodes, and the end of the last.
    starts: Vec<u32>,
    pub(crate) class_weights: Vec<u64>,
    pub(crate) weight: u64,
    /// Alias table of the classes by weight.
    pub(crate) classes: Vec<Slot>,
}

impl Tables {
    /// Builds the tables of blocks of `block_nodes` nodes, on at most `builders` threads. A node's expected degree is the quantile of
    /// `law` at its rank.
    pub(crate) fn new(data: &NodeData, law: &PowerLaw, block_nodes: u64, builders: usize) -> Self {
        let num_nodes = data.nodes();
        let mut nodes = Pages::zeroed(num_nodes as usize * size_of::<Slot>())
            .unwrap_or_else(|e| panic!("no memory for the tables of {num_nodes} nodes: {e}"));
        let (slots, pool): (&mut [Slot], _) = (bytemuck::cast_slice_mut(&mut nodes), PagePool::new());
        let parts = slots.par_chunks_mut(block_nodes as usize).enumerate();
        // One run of blocks for each builder.
        let min_len = parts.len().div_ceil(builders.max(1));
        let make = |(b, slots)| Block::new(data, law, b as u64 * block_nodes, slots, &pool);
        let blocks: Vec<Block> = parts.with_min_len(min_len).map(make).collect();
        let mut class_weights = vec![0u64; data.config.classes];
        for block in &blocks {
            class_weights.iter_mut().zip(&block.class_weights).for_each(|(sum, w)| *sum += w);
        }
        let weight = class_weights.iter().sum();
        Self { block_nodes, blocks, nodes, class_weights, weight }
    }

    /// Bytes of the tables, and of a thread that builds them.
    pub(crate) fn memory(data: &NodeData, block_nodes: u64) -> (u64, u64) {
        let classes = data.config.classes as u64;
        // Of each block and class: the offset of its nodes, their weight, and a slot; and the block itself.
        let blocks = data.nodes().div_ceil(block_nodes) * (classes * (4 + 8 + 12) + 256);
        let in_class = max_events(block_nodes as f64 / classes as f64, 1.0).min(block_nodes as f64) as u64;
        let resident = mapped(data.nodes() * size_of::<Slot>() as u64) + blocks + 8 * classes;
        (resident, mapped(block_nodes * size_of::<Member>() as u64) + 24 * in_class.max(classes))
    }

    /// Number of nodes.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len() / size_of::<Slot>()
    }

    /// Number of nodes of a class.
    pub(crate) fn class_len(&self, class: usize) -> usize {
        let classes = self.class_weights.len();
        // Classes are ranks modulo their number.
        self.len() / classes + usize::from(class < self.len() % classes)
    }

    pub(crate) fn num_blocks(&self) -> usize {
        self.blocks.len()
    }

    pub(crate) fn block(&self, block: usize) -> &Block {
        &self.blocks[block]
    }

    /// The alias tables of a block's nodes.
    pub(crate) fn nodes(&self, block: usize) -> &[Slot] {
        &bytemuck::cast_slice(&self.nodes)[block * self.block_nodes as usize..]
    }
}

/// A node while the tables are made: its class before its id, and its expected degree.
type Member = [u64; 2];

impl Block {
    /// Makes the tables of the nodes from `first` on, as many as there are `slots` for.
    fn new(data: &NodeData, law: &PowerLaw, first: u64, slots: &mut [Slot], pool: &PagePool) -> Self {
        let classes = data.config.classes;
        let mut members = pool.take();
        let members: &mut [Member] = bytemuck::cast_slice_mut(members.resize(size_of_val(slots) / 12 * 16));
        for (v, member) in (first..).zip(&mut *members) {
            let rank = data.rank(v);
            let degree = law.quantile((rank as f64 + 0.5) / data.nodes() as f64);
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
    pub(crate) fn class<'n>(&self, class: usize, nodes: &'n [Slot]) -> &'n [Slot] {
        &nodes[self.starts[class] as usize..self.starts[class + 1] as usize]
    }

    /// Number of the block's nodes.
    pub(crate) fn len(&self) -> usize {
        self.starts[self.class_weights.len()] as usize
    }

    /// Draws a class and a node of it by expected degree, with two values.
    pub(crate) fn draw(&self, nodes: &[Slot], bits: [u64; 2]) -> (usize, u32) {
        let class = draw(&self.classes, bits[0]) as usize;
        (class, draw(self.class(class, nodes), bits[1]))
    }

    /// Draws one of all nodes with equal probability, and its class.
    pub(crate) fn draw_uniform(&self, nodes: &[Slot], bits: u64) -> (usize, u32) {
        let at = index((bits >> 32) as u32, self.len());
        (self.starts.partition_point(|&start| start as usize <= at) - 1, nodes[at][1])
    }
}

/// Draws one of a table's nodes with equal probability: the slots are of the items in order.
pub(crate) fn draw_uniform(slots: &[Slot], bits: u64) -> u32 {
    slots[index((bits >> 32) as u32, slots.len())][1]
}
