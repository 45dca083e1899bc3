//! Stable radix sort of records whose scratch fits the cache.

use std::sync::{Mutex, PoisonError};

use crate::records::{Record, Records};

/// Widest digit: its counters take a third of a small first-level cache.
const WIDEST: u32 = 12;

/// Buffers that go from one sort to the next, so that no sort meets fresh pages.
#[derive(Debug)]
pub(crate) struct Scratch<R>(Mutex<Vec<Records<R>>>);

impl<R> Default for Scratch<R> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<R: Record> Scratch<R> {
    pub(crate) fn take(&self) -> Records<R> {
        // A buffer is whole whatever happened to the thread that held the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    pub(crate) fn give(&self, buffer: Records<R>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
    }

    /// Sorts by the bits of the key from `low` on; see [`sort`].
    pub(crate) fn sort(&self, records: &mut Records<R>, low: u32) {
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
pub(crate) fn sort<R: Record>(records: &mut Records<R>, scratch: &mut Records<R>, low: u32) {
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
    scratch.set_len(records.len());
    let mut digits = [Digit::default(); DIGITS];
    let mut count = 0;
    for half in [differ & 0xffff_ffff, differ & !0xffff_ffff] {
        if half == 0 {
            continue;
        }
        let (mut from, to) = (half.trailing_zeros(), u64::BITS - half.leading_zeros());
        let width = (to - from).div_ceil((to - from).div_ceil(WIDEST));
        while from < to {
            digits[count] = Digit { from, mask: (1 << width.min(to - from)) - 1 };
            count += 1;
            from += width;
        }
    }
    // All digits are counted in one pass, as far as their counters share the first-level cache.
    for digits in digits[..count].chunks(3) {
        match digits {
            [a, b, c] => passes(records, scratch, [*a, *b, *c]),
            [a, b] => passes(records, scratch, [*a, *b]),
            [a] => passes(records, scratch, [*a]),
            _ => unreachable!("chunks of one to three"),
        }
    }
}

/// Some bits of a key, by which one pass sorts.
#[derive(Debug, Clone, Copy, Default)]
struct Digit {
    from: u32,
    mask: u64,
}

/// Most digits: each half of a key has at most three.
const DIGITS: usize = 6;
const COUNTERS: usize = 1 << WIDEST;

impl Digit {
    fn of<R: Record>(self, record: &R) -> usize {
        (record.key() >> self.from & self.mask) as usize % COUNTERS
    }
}

/// Sorts by `N` digits, the first of them first.
fn passes<R: Record, const N: usize>(records: &mut Records<R>, scratch: &mut Records<R>, digits: [Digit; N]) {
    let mut counters = [[0u32; COUNTERS]; N];
    for record in records.iter() {
        for (counters, digit) in counters.iter_mut().zip(digits) {
            counters[digit.of(record)] += 1;
        }
    }
    for (next, digit) in counters.iter_mut().zip(digits) {
        let mut sum = 0;
        for counter in &mut next[..=digit.mask as usize] {
            sum += std::mem::replace(counter, sum);
        }
        let out = &mut scratch[..];
        for record in records.iter() {
            let slot = &mut next[digit.of(record)];
            out[*slot as usize] = *record;
            *slot += 1;
        }
        std::mem::swap(records, scratch);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::records::Weighted;

    proptest! {
        #[test]
        fn equals_the_stable_sort_of_the_library(
            keys in prop::collection::vec((0u64..5000, 0u64..70_000), 0..700),
            shifts in prop::sample::select(vec![(32, 0), (40, 1), (0, 0), (33, 31)]),
            low in prop::sample::select(vec![0u32, 7, 32]),
        ) {
            let key = |&(a, b): &(u64, u64)| a << shifts.0 | b << shifts.1;
            let mut actual = Records::default();
            keys.iter().map(key).zip((0u16..).map(f32::from)).for_each(|(k, w)| actual.extend_from_slice(&[Weighted::new(k, w)]));
            let mut expected = actual.to_vec();
            expected.sort_by_key(|r| r.key() >> low);
            let mut scratch = Records::default();
            scratch.extend_from_slice(&[Weighted::new(7, 7.0)]);
            sort(&mut actual, &mut scratch, low);
            prop_assert_eq!(&actual[..], &expected[..]);
        }
    }
}
