//! Loops over long tasks on the threads of the current rayon pool. Rayon's own are compiled anew for every closure, and a
//! generic caller has them for each of its types; these are compiled once.

use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

/// A task takes any number of indices.
pub const ANY: RangeInclusive<usize> = 1..=usize::MAX;

/// `make(i)` for every `i` below `count`, in order; a task takes `indices` consecutive ones.
///
/// # Panics
///
/// When `make` does.
pub fn map<T: Send>(count: usize, indices: RangeInclusive<usize>, make: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let made: Vec<Mutex<Option<T>>> = (0..count).map(|_| Mutex::new(None)).collect();
    let store = |i: usize| *made[i].lock().unwrap_or_else(PoisonError::into_inner) = Some(make(i));
    for_each(count, indices, &store);
    let inner = |slot: Mutex<Option<T>>| slot.into_inner().unwrap_or_else(PoisonError::into_inner);
    made.into_iter().map(|slot| inner(slot).expect("every index was run")).collect()
}

/// `make(item)` for every item, in order; a task takes `items_of_task` consecutive ones.
///
/// # Panics
///
/// When `make` does.
pub fn map_mut<I: Send, T: Send>(
    items: &mut [I],
    items_of_task: RangeInclusive<usize>,
    make: impl Fn(&mut I) -> T + Sync,
) -> Vec<T> {
    let items: Vec<Mutex<&mut I>> = items.iter_mut().map(Mutex::new).collect();
    map(items.len(), items_of_task, |i| make(&mut items[i].lock().unwrap_or_else(PoisonError::into_inner)))
}

/// The results of both, which run beside each other where a thread is idle; `first` runs on the calling thread.
///
/// # Panics
///
/// When one of them does.
pub fn join<A: Send, B: Send>(first: impl FnOnce() -> A + Send, second: impl FnOnce() -> B + Send) -> (A, B) {
    let (mut first, mut second) = (Some(first), Some(second));
    let (mut a, mut b) = (None, None);
    both(&mut || a = first.take().map(|first| first()), &mut || b = second.take().map(|second| second()));
    (a.expect("it was run"), b.expect("it was run"))
}

fn for_each(count: usize, indices: RangeInclusive<usize>, run: &(dyn Fn(usize) + Sync)) {
    (0..count).into_par_iter().with_min_len(*indices.start()).with_max_len(*indices.end()).for_each(run);
}

fn both(first: &mut (dyn FnMut() + Send), second: &mut (dyn FnMut() + Send)) {
    rayon::join(first, second);
}

#[cfg(test)]
mod tests;
