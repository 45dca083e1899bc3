//! The steady state allocates nothing. The file has one test, since it counts the allocations of its process.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{batch, context, host, model};
use morphgl_graph_store::Dtype;
use morphgl_registry::Training;
use morphgl_training_cpu_native::CpuNative;
use serde_json::json;

struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Calls into the pool between two allocations of its queue: a block of crossbeam's injector has 63 slots.
const CALLS_PER_BLOCK: usize = 63;

/// Maximum number of windows of rounds; one of them must be free of allocations.
const MAX_WINDOWS: usize = 8;

#[test]
fn the_steady_state_allocates_nothing() {
    let kinds = [("sage", 1, 32), ("sage", 4, 32), ("sage", 4, 130), ("gcn", 4, 32), ("gat", 4, 32), ("mlp", 4, 130)];
    for (kind, threads, hidden) in kinds {
        let nodes: &[usize] = if kind == "mlp" { &[300] } else { &[5_000, 2_000, 300] };
        let model = model(kind, 100, 5, json!({"layers": 2, "hidden": hidden, "input_dropout": 0.1}));
        let mut trainer = CpuNative::new(&context(&model, threads)).expect("the operator is built");
        let batches: Vec<_> = [Dtype::F16, Dtype::F32].map(|t| host(batch(nodes, (100, 5), t, false, 1))).into();
        let mut round = || {
            for batch in &batches {
                trainer.accumulate(batch).expect("accumulated");
                trainer.step().expect("a step");
            }
        };
        (0..60).for_each(|_| round());
        // A thread grows its scratch when it first works, which may be late on a busy machine. So one window without
        // allocations is enough: a trainer that allocates at every step has none.
        let rounds = 100usize;
        let allowed = (4 * rounds).div_ceil(CALLS_PER_BLOCK);
        let mut allocations = vec![];
        while allocations.len() < MAX_WINDOWS && allocations.last().is_none_or(|&last| last > allowed) {
            let before = COUNT.load(Ordering::Relaxed);
            (0..rounds).for_each(|_| round());
            allocations.push(COUNT.load(Ordering::Relaxed) - before);
        }
        assert!(
            allocations.last().is_some_and(|&last| last <= allowed),
            "{kind}-{hidden}, {threads} threads: {allocations:?} allocations, each in {rounds} rounds; {allowed} are rayon's"
        );
    }
}
