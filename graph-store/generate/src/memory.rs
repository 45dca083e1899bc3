//! Memory of a generator, known before anything is built, and the parallelism that fits a budget.

use crate::{Error, Result};

/// Bytes that the writers of all arrays hold: up to eight, each with three buffers of half a MiB.
const WRITERS: u64 = 12 << 20;
/// Bytes of a thread: what it touches of its stack, and what an allocator keeps for it (mimalloc: a page of 64 KiB for
/// every size that it asks for).
const THREAD: u64 = 512 << 10;

/// Bytes that something takes: what a thread has while it makes it, and what waits to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) making: u64,
    pub(crate) waiting: u64,
}

/// What a model needs in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Footprint {
    /// Bytes that stay as long as the model.
    pub(crate) resident: u64,
    /// Bytes of a thread while the model is built.
    pub(crate) build: u64,
    /// The largest block of rows.
    pub(crate) rows: Piece,
    /// The largest block of features.
    pub(crate) features: Piece,
    /// The largest block of labels and splits.
    pub(crate) labels: Piece,
}

/// How many threads build the model, and how many pieces are in a group: one group is made while another is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) builders: usize,
    pub(crate) rows: usize,
    pub(crate) features: usize,
    pub(crate) labels: usize,
}

impl Piece {
    /// Bytes of a group being made on `threads` threads while another waits.
    fn group(self, pieces: u64, threads: u64) -> u64 {
        pieces.min(threads).saturating_mul(self.making).saturating_add((2 * pieces).saturating_mul(self.waiting))
    }

    /// The largest group for `memory` bytes, at least one piece.
    fn pieces(self, memory: u64, threads: u64) -> usize {
        // Four pieces a thread even out how long they take.
        (1..=4 * threads).rev().find(|&pieces| self.group(pieces, threads) <= memory).unwrap_or(1) as usize
    }
}

impl Footprint {
    /// The least bytes in which the dataset is written by `threads` threads.
    pub(crate) fn least(&self, threads: usize) -> u64 {
        let stages = [self.rows, self.features, self.labels].map(|piece| piece.group(1, 1));
        let most = stages.into_iter().fold(self.build, u64::max);
        self.fixed(threads).saturating_add(most)
    }

    fn fixed(&self, threads: usize) -> u64 {
        self.resident.saturating_add(WRITERS + threads as u64 * THREAD)
    }

    /// The parallelism within `memory` bytes.
    ///
    /// # Errors
    ///
    /// They are less than the least.
    pub(crate) fn plan(&self, memory: u64, threads: usize) -> Result<Plan> {
        let least = self.least(threads);
        if memory < least {
            let what = format!("{} KiB do not hold the tables and two blocks of rows or features", memory >> 10);
            return Err(Error::argument("memory", what, format!("pass at least {} MiB", least.div_ceil(1 << 20))));
        }
        let (rest, threads) = (memory - self.fixed(threads), threads as u64);
        Ok(Plan {
            builders: (rest / self.build.max(1)).clamp(1, threads) as usize,
            rows: self.rows.pieces(rest, threads),
            features: self.features.pieces(rest, threads),
            labels: self.labels.pieces(rest, threads),
        })
    }
}

/// Bytes that [`Pages`](morphgl_platform::Pages) of `bytes` take: from 1 MiB on they are huge.
pub(crate) fn mapped(bytes: u64) -> u64 {
    bytes.saturating_add(8 << 10).next_multiple_of(if bytes >= 1 << 20 { 2 << 20 } else { 4 << 10 })
}

/// Upper bound of a Poisson number of events with `each` edges and this mean in all; exceeded with a chance below 10^-13.
pub(crate) fn most_events(mean: f64, each: f64) -> f64 {
    mean + 8.0 * (each * mean).sqrt() + 64.0 * each
}

#[cfg(test)]
mod tests;
