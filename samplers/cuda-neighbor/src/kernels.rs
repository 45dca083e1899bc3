//! Kernels and their argument groups.

use morphgl_cuda::{Argument, Buffer, Device, Kernel, Shape};
use morphgl_registry::{BatchId, Result};

morphgl_cuda::module! {
    static SAMPLE = "kernels/sample.cu" {
        sample_nodes, sample_locate, sample_row_sums, sample_row_offsets, sample_pick, sample_take_all, sample_read,
        sample_firsts, sample_name, sample_indices, sample_count,
    }
}
morphgl_cuda::module! {
    static LARGE = "kernels/large.cu" { sample_pick_large }
}
morphgl_cuda::module! {
    static WEIGHTED = "kernels/weighted.cu" { sample_count_positive, sample_pick_weighted, sample_pick_weighted_long }
}

/// Threads of a block, as in the kernels.
pub(crate) const BLOCK: u32 = 128;
/// Maximum edges per row picked by a group of lanes.
pub(crate) const GROUP: u32 = 32;
/// Bytes of shared memory available to every launch.
const SHARED: usize = 48 << 10;
/// Bytes of scratch memory for picks that exceed shared memory.
const LARGE_SCRATCH: usize = 64 << 20;

/// The kernels, loaded on a device.
#[derive(Debug)]
pub(crate) struct Kernels {
    pub(crate) nodes: Kernel,
    pub(crate) locate: Kernel,
    pub(crate) row_sums: Kernel,
    pub(crate) row_offsets: Kernel,
    pub(crate) pick: Kernel,
    pub(crate) take_all: Kernel,
    pub(crate) read: Kernel,
    pub(crate) firsts: Kernel,
    pub(crate) name: Kernel,
    pub(crate) indices: Kernel,
    pub(crate) count: Kernel,
    pub(crate) pick_large: Kernel,
    pub(crate) count_positive: Kernel,
    pub(crate) pick_weighted: Kernel,
    pub(crate) pick_weighted_long: Kernel,
    /// Maximum blocks of a grid.
    pub(crate) most: u64,
}

/// Indices of a hop's sizes in `counts`; expanded rows begin at the value of entry `first`, or at 0 if it is negative.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
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
    pub(crate) entries: Buffer<u64>,
    /// Number of entries, a power of two.
    pub(crate) len: u64,
    pub(crate) value_bits: u32,
    /// Whether the table is direct-addressed: one entry per node of the graph.
    pub(crate) direct: bool,
    pub(crate) stamp: u64,
}

impl Table {
    pub(crate) fn arguments(&self) -> [Argument<'_>; 4] {
        let shift = if self.direct { 0 } else { 32 - self.len.trailing_zeros() };
        let layout = shift | self.value_bits << 8;
        [(&self.entries).into(), ((self.len - 1) as u32).into(), layout.into(), self.stamp.into()]
    }
}

impl Kernels {
    pub(crate) fn load(device: &Device) -> Result<Self> {
        let most = u64::from(device.properties()?.multiprocessors) * 16;
        let sample = |name| SAMPLE.kernel(device, name);
        let weighted = |name| WEIGHTED.kernel(device, name);
        Ok(Self {
            nodes: sample("sample_nodes")?,
            locate: sample("sample_locate")?,
            row_sums: sample("sample_row_sums")?,
            row_offsets: sample("sample_row_offsets")?,
            pick: sample("sample_pick")?,
            take_all: sample("sample_take_all")?,
            read: sample("sample_read")?,
            firsts: sample("sample_firsts")?,
            name: sample("sample_name")?,
            indices: sample("sample_indices")?,
            count: sample("sample_count")?,
            pick_large: LARGE.kernel(device, "sample_pick_large")?,
            count_positive: weighted("sample_count_positive")?,
            pick_weighted: weighted("sample_pick_weighted")?,
            pick_weighted_long: weighted("sample_pick_weighted_long")?,
            most,
        })
    }

    /// Launch shape for `threads` threads, capped at what fills the device.
    pub(crate) fn grid(&self, threads: u64) -> Shape {
        Shape::linear(threads.div_ceil(u64::from(BLOCK)).clamp(1, self.most) as usize, BLOCK)
    }

    /// Words of scratch memory for picks of `fanout` edges, and the number of blocks that share them.
    pub(crate) fn large_scratch(&self, fanout: u32) -> (usize, usize) {
        let bytes = 16 * fanout as usize;
        if bytes <= SHARED {
            return (0, self.most as usize);
        }
        let blocks = (LARGE_SCRATCH / bytes).clamp(1, self.most as usize);
        (blocks * bytes / 8, blocks)
    }
}
