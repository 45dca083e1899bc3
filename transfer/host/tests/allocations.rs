//! Batching and transferring allocate nothing once their memory has grown to the size of a mini-batch.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use morphgl_batching_cpu::CpuNeighbor;
use morphgl_conformance::batching::{Case, graphs};
use morphgl_graph_store::FeatureMatrix;
use morphgl_registry::{
    BatchId, Batching, BatchingWorker, HostBatch, MiniBatch, Place, Transferring, TransferringContext,
};
use morphgl_transferring_cpu_host::CpuHost;

/// The system's allocator, counting the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

fn count() {
    // Allocations of an ending thread do not matter here.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: all calls are passed to the system's allocator with their arguments unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const COLUMNS: usize = 300;

struct Pipeline {
    worker: Box<dyn BatchingWorker>,
    transfer: CpuHost,
}

impl Pipeline {
    /// A single thread batches and transfers.
    fn new(case: &Case) -> Self {
        let context = TransferringContext::new(Arc::clone(&case.dataset), Place::Host, Place::Host);
        let transfer = CpuHost::new(&context).expect("the host to the host");
        let context = case.context(Place::Host, serde_json::Value::Null);
        let worker = CpuNeighbor::new(&context).and_then(|sampler| sampler.worker(1)).expect("a worker");
        Self { worker, transfer }
    }

    /// A mini-batch made in the memory of `recycled`.
    fn run(&mut self, id: BatchId, recycled: Option<HostBatch>) -> HostBatch {
        let prepared = self.worker.prepare(id, recycled.map(MiniBatch::Host)).and_then(|handle| handle.wait());
        let (batch, _) = prepared.expect("a mini-batch");
        let moved = self.transfer.transfer(batch).and_then(|handle| handle.wait());
        moved.and_then(|(batch, _)| batch.into_host()).expect("a mini-batch in host memory")
    }
}

/// Address of the features: their pages come from the system, not from the allocator.
fn features_address(batch: &HostBatch) -> *const u8 {
    batch.features.as_ref().expect("features").as_bytes().as_ptr()
}

/// Runs each of `ids` once, in the memory of the mini-batch `ahead` before it; returns the addresses of their features.
fn pass(pipeline: &mut Pipeline, ids: &[BatchId], batches: &mut [Option<HostBatch>], at: &mut Vec<*const u8>) {
    at.clear();
    let ahead = batches.len();
    for (i, &id) in ids.iter().enumerate() {
        let batch = &mut batches[i % ahead];
        *batch = Some(pipeline.run(id, batch.take()));
        at.push(features_address(batch.as_ref().expect("a mini-batch")));
    }
}

#[track_caller]
fn check(gather: bool) {
    let mut graph = graphs::random(20_000, 12, false);
    // So many columns that the features of a mini-batch fill several huge pages.
    let data: Vec<f32> = (0..20_000 * COLUMNS).map(|i| i as f32).collect();
    graph.features = Some(FeatureMatrix::F32 { data: data.into(), dim: COLUMNS });
    let mut case = Case::new(graph).with(|settings| settings.batch_size = 300).with_fanouts("8,5,3");
    case.gather = gather;
    let mut pipeline = Pipeline::new(&case);
    let ids: Vec<_> = (0..12).map(|index| BatchId { epoch: 0, index }).collect();
    let mut batches = [None, None, None];
    let (mut before, mut after) = (Vec::with_capacity(ids.len()), Vec::with_capacity(ids.len()));
    // Twice, so that every buffer has had its largest mini-batch. All passes together stay below 63 external calls, after which
    // rayon allocates another block for its queue.
    pass(&mut pipeline, &ids, &mut batches, &mut before);
    pass(&mut pipeline, &ids, &mut batches, &mut before);
    let before_pass = ALLOCATIONS.get();
    pass(&mut pipeline, &ids, &mut batches, &mut after);
    assert_eq!(ALLOCATIONS.get() - before_pass, 0, "allocations of {} mini-batches, gather: {gather}", ids.len());
    assert_eq!(after, before, "addresses of the features, gather: {gather}");
}

#[test]
fn batching_that_gathers_allocates_nothing_once_warm() {
    check(true);
}

#[test]
fn a_transfer_that_gathers_allocates_nothing_once_warm() {
    check(false);
}
