//! Stable radix sort of records whose scratch fits the cache.

use std::sync::{Mutex, PoisonError};

use crate::sort::Record;

/// Widest digit: its counters take a third of a small first-level cache.
const WIDEST: u32 = 12;

/// Buffers that go from one sort to the next, so that no sort meets fresh pages.
#[derive(Debug)]
pub(crate) struct Scratch<R>(Mutex<Vec<Vec<R>>>);

impl<R> Default for Scratch<R> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<R: Record> Scratch<R> {
    pub(crate) fn take(&self) -> Vec<R> {
        // A buffer is whole whatever happened to the thread that held the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    pub(crate) fn give(&self, buffer: Vec<R>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
    }

    /// Sorts by the bits of the key from `low` on; see [`sort`].
    pub(crate) fn sort(&self, records: &mut Vec<R>, low: u32) {
        let mut scratch = self.take();
        sort(records, &mut scratch, low);
        self.give(scratch);
    }
}

/// Sorts by the bits of the key from `low` on; records that agree in them keep their order. The two vectors may change
/// places.
///
/// Digits are laid over the bits that differ, in either half of the key, least significant first.
///
/// # Complexity
///
/// O(n · digits) time, O(n) space in `scratch`; O(n) where the records are sorted.
pub(crate) fn sort<R: Record>(records: &mut Vec<R>, scratch: &mut Vec<R>, low: u32) {
    let Some(first) = records.first().copied() else { return };
    if records.is_sorted_by_key(|r| r.key() >> low) {
        return;
    }
    if records.len() < 64 {
        // Clearing the counters would cost more.
        return records.sort_by_key(|r| r.key() >> low);
    }
    assert!(records.len() <= u32::MAX as usize, "{} records in one sort", records.len());
    let differ = records.iter().fold(0, |all, r| all | (r.key() ^ first.key())) & (u64::MAX << low);
    // What an earlier sort left is overwritten, record by record.
    scratch.resize(records.len(), first);
    for half in [differ & 0xffff_ffff, differ & !0xffff_ffff] {
        if half == 0 {
            continue;
        }
        let (mut from, to) = (half.trailing_zeros(), u64::BITS - half.leading_zeros());
        let width = (to - from).div_ceil((to - from).div_ceil(WIDEST));
        while from < to {
            scatter(records, scratch, from, width.min(to - from));
            std::mem::swap(records, scratch);
            from += width;
        }
    }
}

/// Writes the records into `out` in the order of one digit.
fn scatter<R: Record>(records: &[R], out: &mut [R], from: u32, width: u32) {
    const COUNTERS: usize = 1 << WIDEST;
    let mask = (1u64 << width) - 1;
    let digit = |r: &R| (r.key() >> from & mask) as usize % COUNTERS;
    let mut next = [0u32; COUNTERS];
    records.iter().for_each(|r| next[digit(r)] += 1);
    let mut sum = 0;
    for counter in &mut next[..=mask as usize] {
        sum += std::mem::replace(counter, sum);
    }
    for record in records {
        let slot = &mut next[digit(record)];
        out[*slot as usize] = *record;
        *slot += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn equals_the_stable_sort_of_the_library(
            keys in prop::collection::vec((0u64..5000, 0u64..70_000), 0..700),
            shifts in prop::sample::select(vec![(32, 0), (40, 1), (0, 0), (33, 31)]),
            low in prop::sample::select(vec![0u32, 7, 32]),
        ) {
            let key = |&(a, b): &(u64, u64)| a << shifts.0 | b << shifts.1;
            let mut actual: Vec<(u64, f32)> = keys.iter().map(key).zip((0u16..).map(f32::from)).collect();
            let mut expected = actual.clone();
            expected.sort_by_key(|r| r.0 >> low);
            sort(&mut actual, &mut vec![(7, 7.0)], low);
            prop_assert_eq!(actual, expected);
        }
    }
}
