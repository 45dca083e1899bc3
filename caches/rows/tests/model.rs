//! Model test of the dynamic cache's protocol: loom runs all interleavings of small cases, with all values that loads may
//! return. The sources are those of the crate, with loom's atomics and locks in place of the standard library's.

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
    pub(crate) use loom::sync::{Mutex, MutexGuard};
}

#[allow(dead_code, unreachable_pub, reason = "the cases use a part of it")]
#[path = "../src/dynamic/mod.rs"]
mod dynamic;

use std::sync::Arc;

use dynamic::Eviction;
use dynamic::shard::Shard;
use dynamic::slots::Slots;
use loom::thread;

/// Rows of two words, the second one partial.
const ROW: usize = 12;

fn row(node: u32, version: u8) -> [u8; ROW] {
    [16 * node as u8 + version; ROW]
}

#[track_caller]
fn check(node: u32, out: [u8; ROW], versions: u8) {
    assert!((0..versions).any(|v| out == row(node, v)), "node {node} has the row {out:?}");
}

/// Runs `case` in every interleaving with at most `preemptions` of threads by others.
fn model(preemptions: usize, case: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(case);
}

#[test]
fn a_row_is_read_whole_or_not_at_all() {
    model(4, || {
        let slots = Arc::new(Slots::new(1, ROW));
        slots.write(0, 1, &row(1, 0));
        let writer = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || {
                slots.write(0, 2, &row(2, 0));
                slots.write(0, 1, &row(1, 1));
            })
        };
        for node in [1, 2] {
            let mut out = [0; ROW];
            if slots.read(0, node, &mut out) {
                check(node, out, 2);
            }
        }
        writer.join().expect("no panic");
        let mut out = [0; ROW];
        assert!(slots.read(0, 1, &mut out), "nobody writes");
        assert_eq!(out, row(1, 1));
    });
}

#[test]
fn readers_beside_an_eviction() {
    for eviction in [Eviction::Sieve, Eviction::Lru] {
        model(3, move || {
            let shard = Arc::new(Shard::new(eviction, 1, ROW));
            assert!(shard.insert(1, &row(1, 0)));
            let writer = {
                let shard = Arc::clone(&shard);
                thread::spawn(move || assert!(shard.insert(2, &row(2, 0)), "nobody else writes"))
            };
            for node in [1, 2] {
                let mut out = [0; ROW];
                if shard.get_into(node, &mut out) {
                    check(node, out, 1);
                }
            }
            writer.join().expect("no panic");
            let mut out = [0; ROW];
            assert!(shard.get_into(2, &mut out) && !shard.get_into(1, &mut [0; ROW]), "one row, the last");
            check(2, out, 1);
        });
    }
}

#[test]
fn two_threads_insert_the_same_node() {
    model(3, || {
        let shard = Arc::new(Shard::new(Eviction::Sieve, 2, ROW));
        let writer = {
            let shard = Arc::clone(&shard);
            thread::spawn(move || assert!(shard.insert(1, &row(1, 1)), "there is a slot for each of the two"))
        };
        assert!(shard.insert(1, &row(1, 0)), "there is a slot for each of the two");
        let mut out = [0; ROW];
        if shard.get_into(1, &mut out) {
            check(1, out, 2);
        }
        writer.join().expect("no panic");
        assert!(shard.get_into(1, &mut out), "it was inserted");
        check(1, out, 2);
        // Both slots are still in use.
        assert!(shard.insert(2, &row(2, 0)) && shard.get_into(1, &mut out) && shard.get_into(2, &mut out));
    });
}

#[test]
fn all_slots_claimed_is_a_row_not_cached() {
    model(3, || {
        let shard = Arc::new(Shard::new(Eviction::Lru, 1, ROW));
        let writer = {
            let shard = Arc::clone(&shard);
            thread::spawn(move || shard.insert(1, &row(1, 0)))
        };
        let second = shard.insert(2, &row(2, 0));
        let first = writer.join().expect("no panic");
        assert!(first || second, "the first to claim the slot publishes its row");
        let mut out = [0; ROW];
        let found = [1, 2].map(|node| shard.get_into(node, &mut out));
        assert!(found[0] != found[1], "one row: {found:?}");
    });
}
