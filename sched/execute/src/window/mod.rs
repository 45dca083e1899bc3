#![doc = include_str!("README.md")]

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Ordered, bounded delivery of items `T` with the indices of a range; released spares `S` go to later claims.
pub(crate) struct Window<T, S> {
    state: Mutex<State<T, S>>,
    /// Signalled when an index can be claimed, or none ever will be.
    space: Condvar,
    /// Signalled when the next item can be taken, or never will be.
    ready: Condvar,
}

/// Invariant: `released ≤ taken ≤ claimed ≤ end`, and `claimed - released ≤ size`.
struct State<T, S> {
    size: u32,
    end: u32,
    claimed: u32,
    taken: u32,
    released: u32,
    /// Position i belongs to index `taken + i`.
    items: VecDeque<Option<T>>,
    spare: Vec<S>,
    closed: bool,
    peak: u32,
}

impl<T, S> Window<T, S> {
    /// A window of `size` indices over `range`, with spares to begin with.
    pub(crate) fn new(range: Range<u32>, size: usize, spare: Vec<S>) -> Self {
        let start = range.start;
        let state = State {
            size: u32::try_from(size).unwrap_or(u32::MAX).max(1),
            end: range.end.max(start),
            claimed: start,
            taken: start,
            released: start,
            items: VecDeque::new(),
            spare,
            closed: false,
            peak: 0,
        };
        Self { state: Mutex::new(state), space: Condvar::new(), ready: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<T, S>> {
        // No code that can panic runs under the lock, so a poisoned lock guards a valid state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for space and claims the next index, with a spare; `None` when no index is left, or the window is closed.
    pub(crate) fn claim(&self) -> Option<(u32, Option<S>)> {
        let mut state = self.lock();
        loop {
            if state.closed || state.claimed == state.end {
                return None;
            }
            if state.claimed - state.released < state.size {
                break;
            }
            state = self.space.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let index = state.claimed;
        state.claimed += 1;
        state.peak = state.peak.max(state.claimed - state.released);
        state.items.push_back(None);
        if state.claimed == state.end {
            // No claim that waits for space will get an index.
            self.space.notify_all();
        }
        Some((index, state.spare.pop()))
    }

    /// Delivers the item of a claimed index.
    pub(crate) fn put(&self, index: u32, item: T) {
        let mut state = self.lock();
        assert!(
            (state.taken..state.claimed).contains(&index),
            "index {index} is put, {}..{} are claimed and not taken",
            state.taken,
            state.claimed
        );
        let position = (index - state.taken) as usize;
        let before = state.items[position].replace(item);
        if position == 0 {
            self.ready.notify_one();
        }
        drop(state);
        assert!(before.is_none(), "index {index} is put twice");
    }

    /// Waits for the next item in order; `None` after the last one, or when the window is closed.
    pub(crate) fn take(&self) -> Option<T> {
        let mut state = self.lock();
        loop {
            if state.closed || state.taken == state.end {
                return None;
            }
            if matches!(state.items.front(), Some(Some(_))) {
                state.taken += 1;
                return state.items.pop_front().flatten();
            }
            state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the life of a taken item: one more can be claimed, with `spare`.
    pub(crate) fn release(&self, spare: Option<S>) {
        let mut state = self.lock();
        assert!(state.released < state.taken, "{} items are released, {} were taken", state.released + 1, state.taken);
        state.released += 1;
        state.spare.extend(spare);
        self.space.notify_one();
    }

    /// Keeps `spare` without ending an item's life. Returns it where there are as many as the window can use.
    pub(crate) fn give(&self, spare: S) -> Option<S> {
        let mut state = self.lock();
        if state.spare.len() < state.size as usize {
            state.spare.push(spare);
            return None;
        }
        Some(spare)
    }

    /// Ends delivery: every waiting thread wakes, and no index can be claimed or taken.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.space.notify_all();
        self.ready.notify_all();
    }

    /// Peak number of indices claimed and not released.
    pub(crate) fn peak(&self) -> usize {
        self.lock().peak as usize
    }

    /// Removes and returns the spares.
    pub(crate) fn spares(&self) -> Vec<S> {
        std::mem::take(&mut self.lock().spare)
    }
}

/// Closes a window when it goes out of scope, by a panic too.
pub(crate) struct CloseOnDrop<'a, T, S>(pub(crate) &'a Window<T, S>);

impl<T, S> Drop for CloseOnDrop<'_, T, S> {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests;
