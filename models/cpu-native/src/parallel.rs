//! Parallel loops over tasks that each own a piece of every output.
//!
//! Made of `rayon::join` alone, which keeps its jobs on the stack: a loop allocates nothing.

use std::cell::RefCell;
use std::ops::Range;

/// An output, and how many elements of it a task writes; the last task's piece may be shorter.
pub(crate) type Out<'a> = (&'a mut [f32], usize);

/// Calls `each(task, pieces)` for every task below `count`.
pub(crate) fn tasks<const N: usize>(
    count: usize,
    outputs: [Out<'_>; N],
    each: &(impl Fn(usize, [&mut [f32]; N]) + Sync),
) {
    let sizes = outputs.each_ref().map(|(_, size)| *size);
    split(0..count, sizes, outputs.map(|(output, _)| output), each);
}

fn split<const N: usize>(
    range: Range<usize>,
    sizes: [usize; N],
    outputs: [&mut [f32]; N],
    each: &(impl Fn(usize, [&mut [f32]; N]) + Sync),
) {
    if range.len() <= 1 {
        if range.len() == 1 {
            each(range.start, outputs);
        }
        return;
    }
    let middle = range.start.midpoint(range.end);
    let mut rights: [&mut [f32]; N] = std::array::from_fn(|_| Default::default());
    let mut index = 0;
    let lefts = outputs.map(|output| {
        let (left, right) = output.split_at_mut(((middle - range.start) * sizes[index]).min(output.len()));
        rights[index] = right;
        index += 1;
        left
    });
    rayon::join(|| split(range.start..middle, sizes, lefts, each), || split(middle..range.end, sizes, rights, each));
}

/// Pieces of an array of integers, `size` elements a task.
pub(crate) fn pieces<T: Send>(values: &mut [T], size: usize, each: &(impl Fn(usize, &mut [T]) + Sync)) {
    fn go<T: Send>(first: usize, values: &mut [T], size: usize, each: &(impl Fn(usize, &mut [T]) + Sync)) {
        let count = values.len().div_ceil(size);
        if count <= 1 {
            if count == 1 {
                each(first, values);
            }
            return;
        }
        let half = count / 2;
        let (left, right) = values.split_at_mut(half * size);
        rayon::join(|| go(first, left, size, each), || go(first + half, right, size, each));
    }
    go(0, values, size.max(1), each);
}

thread_local! {
    static SCRATCH: RefCell<[Vec<f32>; 3]> = const { RefCell::new([Vec::new(), Vec::new(), Vec::new()]) };
}

/// Gives the thread's own scratch of these lengths, with any content; it is kept and grows to the largest length.
pub(crate) fn with_scratch<R>(lens: [usize; 3], f: impl FnOnce([&mut [f32]; 3]) -> R) -> R {
    SCRATCH.with_borrow_mut(|all| {
        let mut index = 0;
        f(all.each_mut().map(|values| {
            let len = lens[index];
            index += 1;
            if values.len() < len {
                values.resize(len, 0.0);
            }
            &mut values[..len]
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
