//! Parallel loops over tasks that each own a piece of every output.
//!
//! Built on `rayon::join` alone, which keeps its jobs on the stack: a loop allocates nothing.

use std::cell::RefCell;
use std::ops::Range;

use crate::buffer::Buffer;

/// Rows of a block that one task multiplies: they, the weights and the result stay in a core's cache.
pub(crate) const ROWS: usize = 96;

/// An output, and how many of its elements a task writes; the last task's piece may be shorter.
pub(crate) type Out<'a, T = f32> = (&'a mut [T], usize);

/// Calls `each(task, pieces)` for every task below `count`.
pub(crate) fn tasks<T: Send, const N: usize>(
    count: usize,
    outputs: [Out<'_, T>; N],
    each: &(impl Fn(usize, [&mut [T]; N]) + Sync),
) {
    let sizes = outputs.each_ref().map(|(output, size)| (output.len(), *size));
    let starts = |task: usize| sizes.map(|(len, size)| (task * size).min(len));
    split(0..count, &starts, outputs.map(|(output, _)| output), each);
}

/// Calls `each(rows, pieces)` for every block of at most [`ROWS`] of `count` rows; outputs are given with their row widths.
pub(crate) fn row_blocks<const N: usize>(
    count: usize,
    outputs: [Out<'_>; N],
    each: &(impl Fn(Range<usize>, [&mut [f32]; N]) + Sync),
) {
    let outputs = outputs.map(|(output, width)| (output, ROWS * width));
    tasks(count.div_ceil(ROWS), outputs, &|task, pieces| each(block(task, ROWS, count), pieces));
}

/// The `index`-th block of `size` of `count` elements; the last one may be shorter.
pub(crate) fn block(index: usize, size: usize, count: usize) -> Range<usize> {
    (index * size).min(count)..((index + 1) * size).min(count)
}

/// Calls `each(task, piece)` for pieces of `size` elements of one output.
pub(crate) fn pieces<T: Send>(values: &mut [T], size: usize, each: &(impl Fn(usize, &mut [T]) + Sync)) {
    let size = size.max(1);
    tasks(values.len().div_ceil(size), [(values, size)], &|task, [piece]| each(task, piece));
}

/// Calls `each(task, pieces)` for every task of `range`; `starts(task)` is where the task's piece of each output begins.
pub(crate) fn split<T: Send, const N: usize>(
    range: Range<usize>,
    starts: &(impl Fn(usize) -> [usize; N] + Sync),
    outputs: [&mut [T]; N],
    each: &(impl Fn(usize, [&mut [T]; N]) + Sync),
) {
    if range.len() <= 1 {
        if range.len() == 1 {
            each(range.start, outputs);
        }
        return;
    }
    let middle = range.start.midpoint(range.end);
    let (from, to) = (starts(range.start), starts(middle));
    let mut rights: [&mut [T]; N] = std::array::from_fn(|_| Default::default());
    let mut index = 0;
    let lefts = outputs.map(|output| {
        let (left, right) = output.split_at_mut(to[index] - from[index]);
        rights[index] = right;
        index += 1;
        left
    });
    rayon::join(|| split(range.start..middle, starts, lefts, each), || split(middle..range.end, starts, rights, each));
}

thread_local! {
    static SCRATCH: RefCell<[Buffer; 3]> = const { RefCell::new([Buffer::new(), Buffer::new(), Buffer::new()]) };
}

/// Calls `f` with the thread's scratch of these lengths and any content; it is kept and grows to the largest length.
pub(crate) fn with_scratch<R>(lens: [usize; 3], f: impl FnOnce([&mut [f32]; 3]) -> R) -> R {
    SCRATCH.with_borrow_mut(|[a, b, c]| f([a.get(lens[0]), b.get(lens[1]), c.get(lens[2])]))
}

#[cfg(test)]
mod tests;
