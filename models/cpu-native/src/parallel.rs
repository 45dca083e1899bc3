//! Parallel loops over tasks that each own a piece of every output.
//!
//! Made of `rayon::join` alone, which keeps its jobs on the stack: a loop allocates nothing.

use std::cell::RefCell;
use std::ops::Range;

use crate::buffer::Buffer;

/// An output, and how many elements of it a task writes; the last task's piece may be shorter.
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

/// Pieces of one output, `size` elements a task.
pub(crate) fn pieces<T: Send>(values: &mut [T], size: usize, each: &(impl Fn(usize, &mut [T]) + Sync)) {
    let size = size.max(1);
    tasks(values.len().div_ceil(size), [(values, size)], &|task, [piece]| each(task, piece));
}

/// Calls `each(task, pieces)` for every task of `range`; `starts` says where in each output a task's piece begins.
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

/// Gives the thread's own scratch of these lengths, with any content; it is kept and grows to the largest length.
pub(crate) fn with_scratch<R>(lens: [usize; 3], f: impl FnOnce([&mut [f32]; 3]) -> R) -> R {
    SCRATCH.with_borrow_mut(|all| {
        let mut index = 0;
        f(all.each_mut().map(|buffer| {
            index += 1;
            buffer.get(lens[index - 1])
        }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_has_its_pieces() {
        for (count, rows) in [(1, 3), (4, 11), (7, 21), (0, 0)] {
            let (mut a, mut b) = (vec![0.0; 2 * rows], vec![0.0; count]);
            tasks(count, [(&mut a, 6), (&mut b, 1)], &|task, [a, b]| {
                assert_eq!((a.len(), b.len()), ((2 * rows - 6 * task).min(6), 1));
                a.fill(task as f32);
                b.fill(task as f32);
            });
            assert!(a.iter().enumerate().all(|(i, &x)| x == (i / 6) as f32));
            assert!(b.iter().enumerate().all(|(i, &x)| x == i as f32));
        }
        let mut ids = [0u32; 10];
        pieces(&mut ids, 4, &|task, piece| piece.fill(task as u32));
        assert_eq!(ids, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]);
    }
}
