//! Parallel loops over rows of unequal work: parts of about equal work, each with its piece of every output.
//!
//! The parts depend on the rows alone, not on the number of threads, and so do the bits of sums over a part.

use std::ops::Range;

use crate::parallel;

/// Rows divided into parts. The work of a row is its number of entries plus 1.
#[derive(Clone, Copy)]
pub(super) struct Parts<'a> {
    /// Offsets of the rows' entries, one more than rows.
    indptr: &'a [u32],
    count: usize,
}

/// Division of an output's elements among the parts.
#[derive(Clone, Copy)]
pub(super) enum Piece {
    /// This number of elements per row.
    Row(usize),
    /// `each` elements per entry; with `self_loops`, each row has one more entry.
    Entry { self_loops: bool, each: usize },
    /// This number of elements per part.
    Part(usize),
}

impl<'a> Parts<'a> {
    /// Parts of about `work` entries and rows.
    pub(super) fn new(indptr: &'a [u32], work: usize) -> Self {
        let rows = indptr.len() - 1;
        Self { indptr, count: Self::count_of(indptr[rows] as usize + rows, work) }
    }

    /// Number of parts of `work` entries and rows in `total`.
    pub(super) fn count_of(total: usize, work: usize) -> usize {
        (total / work).max(1)
    }

    /// The first row of a part.
    fn start(&self, part: usize) -> usize {
        let rows = self.indptr.len() - 1;
        if part >= self.count {
            return rows;
        }
        let work = |row: usize| (self.indptr[row] as usize + row) as u64;
        let target = work(rows) * part as u64 / self.count as u64;
        let (mut low, mut high) = (0, rows);
        while low < high {
            let middle = low.midpoint(high);
            if work(middle) < target { low = middle + 1 } else { high = middle }
        }
        low
    }

    fn offset(&self, piece: Piece, part: usize, row: usize) -> usize {
        match piece {
            Piece::Row(each) => row * each,
            Piece::Entry { self_loops, each } => (self.indptr[row] as usize + if self_loops { row } else { 0 }) * each,
            Piece::Part(each) => part * each,
        }
    }

    /// Calls `each(rows, outputs)` for every part with its pieces of the outputs, in parallel.
    pub(super) fn run<const N: usize>(
        self,
        pieces: [Piece; N],
        outputs: [&mut [f32]; N],
        each: &(impl Fn(Range<usize>, [&mut [f32]; N]) + Sync),
    ) {
        let starts = |part: usize| {
            let row = self.start(part);
            pieces.map(|piece| self.offset(piece, part, row))
        };
        assert_eq!(outputs.each_ref().map(|output| output.len()), starts(self.count), "lengths of the outputs");
        parallel::split(0..self.count, &starts, outputs, &|part, outputs| {
            each(self.start(part)..self.start(part + 1), outputs);
        });
    }
}

#[cfg(test)]
mod tests;
