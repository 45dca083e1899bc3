//! Memory of a generator, computed before anything is built, and the parallelism that fits a budget.

use crate::{Error, Result};

/// Bytes of the writers of all arrays: up to eight, each with three buffers of half a MiB.
const WRITERS: u64 = 12 << 20;
/// Bytes of a thread: the touched part of its stack, and an allocator's cache for it (mimalloc: a page of 64 KiB for every size
/// that it allocates).
const THREAD: u64 = 512 << 10;

/// Bytes of a block of rows, features or labels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockMemory {
    /// Scratch of the thread that makes the block.
    pub(crate) scratch: u64,
    /// The block itself, until it is written.
    pub(crate) block: u64,
}

/// Memory to generate a graph model's dataset, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Footprint {
    /// Bytes that stay as long as the model.
    pub(crate) resident: u64,
    /// Bytes of a thread while the model is built.
    pub(crate) build: u64,
    /// The largest block of rows.
    pub(crate) rows: BlockMemory,
    /// The largest block of features.
    pub(crate) features: BlockMemory,
    /// The largest block of labels and splits.
    pub(crate) labels: BlockMemory,
}

/// Parallelism: blocks are made in groups, one while another is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Threads that build the model.
    pub(crate) builders: usize,
    /// Blocks in a group of rows, of features, of labels.
    pub(crate) rows: usize,
    pub(crate) features: usize,
    pub(crate) labels: usize,
}

impl BlockMemory {
    /// Bytes of a group of `blocks` that is made on `threads` threads while another is written.
    fn group(self, blocks: u64, threads: u64) -> u64 {
        blocks.min(threads).saturating_mul(self.scratch).saturating_add((2 * blocks).saturating_mul(self.block))
    }

    /// The largest group for `memory` bytes, at least one block.
    fn max_blocks(self, memory: u64, threads: u64) -> usize {
        // Four blocks per thread balance the threads.
        (1..=4 * threads).rev().find(|&blocks| self.group(blocks, threads) <= memory).unwrap_or(1) as usize
    }
}

impl Footprint {
    /// The minimum bytes for `threads` threads to write the dataset.
    pub(crate) fn min_memory(&self, threads: usize) -> u64 {
        let stages = [self.rows, self.features, self.labels].map(|block| block.group(1, 1));
        self.fixed(threads).saturating_add(stages.into_iter().fold(self.build, u64::max))
    }

    fn fixed(&self, threads: usize) -> u64 {
        self.resident.saturating_add(WRITERS + threads as u64 * THREAD)
    }

    /// The parallelism within `memory` bytes.
    ///
    /// # Errors
    ///
    /// They are less than [`Footprint::min_memory`].
    pub(crate) fn plan(&self, memory: u64, threads: usize) -> Result<Plan> {
        let min_memory = self.min_memory(threads);
        if memory < min_memory {
            let what = format!("{} KiB do not hold the tables and two blocks of rows or features", memory >> 10);
            return Err(Error::argument("memory", what, format!("pass at least {} MiB", min_memory.div_ceil(1 << 20))));
        }
        let (rest, threads) = (memory - self.fixed(threads), threads as u64);
        Ok(Plan {
            builders: (rest / self.build.max(1)).clamp(1, threads) as usize,
            rows: self.rows.max_blocks(rest, threads),
            features: self.features.max_blocks(rest, threads),
            labels: self.labels.max_blocks(rest, threads),
        })
    }
}

/// Bytes of [`Pages`](morphgl_platform::Pages) for `bytes`: from 1 MiB on they are huge.
pub(crate) fn mapped(bytes: u64) -> u64 {
    bytes.saturating_add(8 << 10).next_multiple_of(if bytes >= 1 << 20 { 2 << 20 } else { 4 << 10 })
}

/// Upper bound of a Poisson number of events with `each` edges and this mean in all; exceeded with a probability below 10^-13.
pub(crate) fn max_events(mean: f64, each: f64) -> f64 {
    mean + 8.0 * (each * mean).sqrt() + 64.0 * each
}

#[cfg(test)]
mod tests;
