//! Parallel loops over rows of unequal work: parts of about equal work, each with its own piece of every output.
//!
//! The parts depend on the rows alone, not on threads; so whatever is summed by part has the same bits on any number.

use std::ops::Range;

use crate::parallel;

/// Rows cut into parts. A row's work is the entries it has, and one.
#[derive(Clone, Copy)]
pub(super) struct Parts<'a> {
    /// Where each row's entries start, one more than rows; empty where rows have none.
    indptr: &'a [u32],
    rows: usize,
    count: usize,
}

/// How much of an output belongs to a row.
#[derive(Clone, Copy)]
pub(super) enum Share {
    /// So many elements a row.
    Row(usize),
    /// So many elements a row, of the first `limit` rows.
    Limited { limit: usize, each: usize },
    /// So many elements an entry, and as many a row if `own`.
    Entry { own: bool, each: usize },
    /// So many elements a part.
    Part(usize),
}

impl<'a> Parts<'a> {
    /// Parts of about `work` entries and rows.
    pub(super) fn new(indptr: &'a [u32], work: usize) -> Self {
        let rows = indptr.len() - 1;
        Self { indptr, rows, count: Self::count_of(indptr[rows] as usize + rows, work) }
    }

    /// How many parts of `work` entries and rows there are of `total`.
    pub(super) fn count_of(total: usize, work: usize) -> usize {
        (total / work).max(1)
    }

    /// Parts of about `work` rows without entries.
    pub(super) fn even(rows: usize, work: usize) -> Self {
        Self { indptr: &[], rows, count: Self::count_of(rows, work) }
    }

    /// The first row of a part.
    fn start(&self, part: usize) -> usize {
        if part >= self.count {
            return self.rows;
        }
        let work = |row: usize| (self.entries_before(row) + row) as u64;
        let target = work(self.rows) * part as u64 / self.count as u64;
        let (mut low, mut high) = (0, self.rows);
        while low < high {
            let middle = low.midpoint(high);
            if work(middle) < target { low = middle + 1 } else { high = middle }
        }
        low
    }

    fn entries_before(&self, row: usize) -> usize {
        if self.indptr.is_empty() { 0 } else { self.indptr[row] as usize }
    }

    fn offset(&self, share: Share, part: usize, row: usize) -> usize {
        match share {
            Share::Row(each) => row * each,
            Share::Limited { limit, each } => row.min(limit) * each,
            Share::Entry { own, each } => (self.entries_before(row) + if own { row } else { 0 }) * each,
            Share::Part(each) => part * each,
        }
    }

    /// Calls `each(rows, outputs)` for every part with its pieces of the outputs, in parallel.
    pub(super) fn run<const N: usize>(
        self,
        shares: [Share; N],
        outputs: [&mut [f32]; N],
        each: &(impl Fn(Range<usize>, [&mut [f32]; N]) + Sync),
    ) {
        for (share, output) in shares.iter().zip(&outputs) {
            assert_eq!(output.len(), self.offset(*share, self.count, self.start(self.count)), "an output of all rows");
        }
        let starts = |part: usize| {
            let row = self.start(part);
            shares.map(|share| self.offset(share, part, row))
        };
        parallel::split(0..self.count, &starts, outputs, &|part, outputs| {
            each(self.start(part)..self.start(part + 1), outputs);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_in_one_part_with_its_pieces() {
        let indptr: Vec<u32> = (0..=100u32).map(|r| if r > 40 { r / 3 + 5000 } else { r / 3 }).collect();
        for work in [1, 7, 100, 1 << 20] {
            let parts = Parts::new(&indptr, work);
            let entries = indptr[100] as usize;
            let (mut a, mut b, mut c) = (vec![0.0; 200], vec![0.0; 3 * (entries + 100)], vec![0.0; 60]);
            let mut d = vec![0.0; 2 * parts.count];
            let shares = [
                Share::Row(2),
                Share::Entry { own: true, each: 3 },
                Share::Limited { limit: 60, each: 1 },
                Share::Part(2),
            ];
            let outputs = [&mut a[..], &mut b[..], &mut c[..], &mut d[..]];
            parts.run(shares, outputs, &|rows, [a, b, c, d]| {
                assert_eq!(a.len(), 2 * rows.len());
                assert_eq!(b.len(), 3 * ((indptr[rows.end] - indptr[rows.start]) as usize + rows.len()));
                assert_eq!(c.len(), rows.end.min(60) - rows.start.min(60));
                assert_eq!(d.len(), 2);
                a.chunks_exact_mut(2).zip(rows).for_each(|(a, row)| a.fill(a[0] + 1.0 + row as f32));
                [b, c, d].into_iter().flatten().for_each(|x| *x += 1.0);
            });
            assert!(a.iter().enumerate().all(|(i, &x)| x == 1.0 + (i / 2) as f32), "{work}");
            assert!([b, c, d].iter().flatten().all(|&x| x == 1.0), "{work}");
        }
    }
}
