//! Stable radix sort of records whose scratch fits the cache.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::records::{Keyed, Record, Records};

/// Bits of the widest digit, whose counters take a third of a small first-level cache.
pub(crate) const WIDEST: u32 = 12;
/// Bits that get digits beyond those that number the records.
const SPARE: u32 = 6;
/// Maximum distance of an insertion.
const FAR: usize = 32;

/// A pool of sort buffers, so that no sort faults in fresh pages.
#[derive(Debug)]
pub struct Scratch<R> {
    buffers: Mutex<Vec<Records<R>>>,
    /// Capacity of every buffer in records.
    capacity: usize,
}

impl<R: Keyed> Scratch<R> {
    /// A pool of buffers for at least `capacity` records each.
    pub fn new(capacity: usize) -> Self {
        Self { buffers: Mutex::default(), capacity }
    }

    /// An empty buffer.
    pub fn take(&self) -> Records<R> {
        // A buffer is whole whatever happened to the thread that held the lock.
        let buffer = self.buffers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut buffer = buffer.unwrap_or_default();
        buffer.clear();
        buffer.reserve(self.capacity);
        buffer
    }

    /// Returns a buffer to the pool.
    pub fn give(&self, buffer: Records<R>) {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
    }

    /// Number of free buffers.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Sorts stably by the bits of the key from `low` on.
    ///
    /// # Complexity
    ///
    /// O(n) for keys of bounded length, and O(n) space.
    pub fn sort(&self, records: &mut Records<R>, low: u32) {
        let mut scratch = self.take();
        sort(records, &mut scratch, low);
        self.give(scratch);
    }
}

/// Sorts by the bits of the key from `low` on; records that agree in them keep their order. The two vectors may be swapped.
///
/// Digits cover the bits that differ, in either half of the key, least significant first. Of whole keys, only as many of the
/// upper bits get digits as distinguish nearly all records; the few that remain are sorted by insertion.
///
/// # Complexity
///
/// O(n · digits) time, O(n) space in `scratch`; O(n) where the records are sorted, O(n log n) where most records agree in
/// their upper bits.
pub(crate) fn sort<R: Keyed>(records: &mut Records<R>, scratch: &mut Records<R>, low: u32) {
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
    // The content of an earlier sort is overwritten, record by record.
    scratch.set_len(records.len());
    let mut left = if low == 0 { records.len().ilog2() + SPARE } else { u64::BITS };
    let mut halves = [0..0, 0..0];
    for (half, bits) in halves.iter_mut().zip([differ & !0xffff_ffff, differ & 0xffff_ffff]) {
        if bits != 0 && left > 0 {
            let (from, to) = (bits.trailing_zeros(), u64::BITS - bits.leading_zeros());
            *half = from.max(to.saturating_sub(left))..to;
            left -= half.end - half.start;
        }
    }
    let mut digits = [Digit::default(); DIGITS];
    let mut count = 0;
    for Range { start: mut from, end: to } in halves.into_iter().rev().filter(|half| !half.is_empty()) {
        let width = (to - from).div_ceil((to - from).div_ceil(WIDEST));
        while from < to {
            digits[count] = Digit { from, mask: (1 << width.min(to - from)) - 1 };
            count += 1;
            from += width;
        }
    }
    // Digits whose counters share the first-level cache are counted in one pass.
    for digits in digits[..count].chunks(3) {
        match digits {
            [a, b, c] => passes(records, scratch, [*a, *b, *c]),
            [a, b] => passes(records, scratch, [*a, *b]),
            [a] => passes(records, scratch, [*a]),
            _ => unreachable!("chunks of one to three"),
        }
    }
    if low == 0 {
        insert(records, digits[0].from);
    }
}

/// Sorts records that are sorted by the bits from `low` on.
fn insert<R: Keyed>(records: &mut [R], low: u32) {
    let mut from = 0;
    while let Some(at) = records[from..].windows(2).position(|w| w[0].key() > w[1].key()) {
        from += at + 1;
        let (record, mut to) = (records[from], from);
        while to > 0 && from - to < FAR && records[to - 1].key() > record.key() {
            records[to] = records[to - 1];
            to -= 1;
        }
        records[to] = record;
        if from - to == FAR {
            // Too many agree: they are sorted at once.
            let upper = record.key() >> low;
            let start = records[..from].partition_point(|r| r.key() >> low < upper);
            let end = from + records[from..].partition_point(|r| r.key() >> low == upper);
            records[start..end].sort_by_key(|r| r.key());
            from = end - 1;
        }
    }
}

/// Overwrites `records` with the edges from `sources` to `targets`, without weights: a counting sort, stable, by the
/// [`WIDEST`] bits of the target from bit `low` on. Returns, for each value of these bits, the end of its edges.
///
/// # Complexity
///
/// O(n) time, without scratch.
pub(crate) fn place<R: Record>(sources: &[u32], targets: &[u32], low: u32, records: &mut Records<R>) -> Vec<u32> {
    let digit = |target: u32| (target >> low) as usize % COUNTERS;
    let mut counters = [0u32; COUNTERS];
    targets.iter().for_each(|&target| counters[digit(target)] += 1);
    let mut sum = 0;
    for counter in &mut counters {
        sum += std::mem::replace(counter, sum);
    }
    records.set_len(targets.len());
    let out = &mut records[..];
    for (&source, &target) in sources.iter().zip(targets) {
        let slot = &mut counters[digit(target)];
        out[*slot as usize] = R::new(u64::from(target) << 32 | u64::from(source), 1.0);
        *slot += 1;
    }
    counters.to_vec()
}

/// Some bits of a key, by which one pass sorts.
#[derive(Debug, Clone, Copy, Default)]
struct Digit {
    from: u32,
    mask: u64,
}

/// Maximum number of digits: each half of a key has at most three.
const DIGITS: usize = 6;
const COUNTERS: usize = 1 << WIDEST;

impl Digit {
    fn of<R: Keyed>(self, record: &R) -> usize {
        (record.key() >> self.from & self.mask) as usize % COUNTERS
    }
}

/// Sorts by `N` digits, the least significant first.
fn passes<R: Keyed, const N: usize>(records: &mut Records<R>, scratch: &mut Records<R>, digits: [Digit; N]) {
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
mod tests;
