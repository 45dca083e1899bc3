//! Kernels and their argument groups.

use morphgl_cuda::{Argument, Buffer};
use morphgl_registry::BatchId;

morphgl_cuda::kernels! {
    /// The kernels, loaded on a device.
    pub(crate) struct Kernels {
        SAMPLE = "kernels/sample.cu" {
            sample_nodes, sample_locate, sample_add_part, sample_leave_out, sample_row_sums, sample_row_offsets,
            sample_order_count, sample_order_scan, sample_order_place, sample_pick, sample_take_all, sample_read,
            sample_firsts, sample_relabel, sample_indices, sample_count,
            sample_given, sample_divide, sample_renumber,
        }
        LARGE = "kernels/large.cu" { sample_pick_large }
        WEIGHTED = "kernels/weighted.cu" {
            sample_count_positive, sample_pick_weighted, sample_pick_weighted_long,
        }
        TYPED = "kernels/typed.cu" {
            typed_trees, typed_insert, typed_divide, typed_count, typed_rows, typed_pick, typed_pick_block, typed_relabel,
        }
        SHADOW = "kernels/shadow.cu" { shadow_induce, shadow_induce_long, shadow_copy }
        WALK = "kernels/walk.cu" { walk_few, walk_many }
    }
}

/// Threads of a block, as in the kernels.
pub(crate) const BLOCK: u32 = 128;
/// Maximum edges per row picked by a group of lanes.
pub(crate) const GROUP: u32 = 32;

/// Indices of a hop's sizes in `counts`; expanded rows begin at the value of entry `first`, or at 0 if it is negative.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SizeIndices {
    pub(crate) first: i32,
    pub(crate) rows: u32,
    pub(crate) edges: u32,
}

/// Parameters of a hop's random draws besides the node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draws {
    /// `u32::MAX` for all.
    pub(crate) fanout: u32,
    pub(crate) hop: u32,
    pub(crate) id: BatchId,
    pub(crate) seed: u64,
}

impl Draws {
    pub(crate) fn arguments(&self) -> [Argument<'static>; 5] {
        [self.fanout.into(), self.hop.into(), self.id.index.into(), self.id.epoch.into(), self.seed.into()]
    }
}

/// Hash table of a mini-batch's nodes, for relabelling.
#[derive(Debug)]
pub(crate) struct Table {
    /// A power of two of entries; none before the first use.
    pub(crate) entries: Buffer<u64>,
    pub(crate) value_bits: u32,
    /// Bits of a node and of a tree, where an entry is of a node in a tree; else none, and a node has 32.
    pub(crate) tree_bits: [u32; 2],
    /// Whether the table is direct-addressed: one entry per node of the graph.
    pub(crate) direct: bool,
    pub(crate) stamp: u64,
}

impl Table {
    pub(crate) fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Bits of an entry besides those of its stamp.
    pub(crate) fn entry_bits(&self) -> u32 {
        let [node, tree] = self.tree_bits;
        self.value_bits + if node == 0 { 32 } else { node + tree }
    }

    pub(crate) fn arguments(&self) -> [Argument<'_>; 4] {
        let shift = if self.direct { 0 } else { 32 - self.len().trailing_zeros() };
        let layout = shift | self.value_bits << 8;
        [(&self.entries).into(), ((self.len() - 1) as u32).into(), layout.into(), self.stamp.into()]
    }
}
