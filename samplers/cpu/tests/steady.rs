//! In a steady state a worker allocates nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use morphgl_batching_cpu::{CpuNeighbor, CpuTyped};
use morphgl_conformance::batching::{Case, graphs};
use morphgl_registry::{
    BatchId, Batching, BatchingContext, CustomSettings, Fanouts, NegativeDistribution, NeighborSettings, PairSettings,
    Pick, Place, SamplerSettings, Sampling, SeedSet,
};
use morphgl_sampler_core::TYPED;

/// Counts allocations of the system's allocator.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, and the block came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `realloc`, and the block came from the system's allocator.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Samples all mini-batches of two epochs, then those of the first again, which allocate nothing.
#[track_caller]
fn check(weights: bool, settings: SamplerSettings) {
    let seeds: Vec<u32> = (0..5000).collect();
    let seeds = SeedSet::new("all nodes", &seeds, 5000).expect("each node once");
    check_seeds(weights, seeds, settings);
}

#[track_caller]
fn check_seeds(weights: bool, seeds: SeedSet, settings: SamplerSettings) {
    let context = BatchingContext::new(Arc::new(graphs::random(5000, 12, weights)), seeds, settings);
    check_sampler(&CpuNeighbor::new(&context).expect("the settings are possible"));
}

#[track_caller]
fn check_sampler(sampler: &dyn Batching) {
    let mut worker = sampler.worker(1).expect("a worker");
    let (mut recycled, mut before) = (None, 0);
    for epoch in [0, 1, 0] {
        before = ALLOCATIONS.load(Ordering::Relaxed);
        for index in 0..sampler.num_batches() as u32 {
            let handle = worker.prepare(BatchId { epoch, index }, recycled.take()).expect("a mini-batch");
            recycled = Some(handle.wait().expect("a mini-batch").0);
        }
    }
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0, "allocations of an epoch that was made before");
}

/// One test, so that no other one allocates at the same time.
#[test]
fn a_steady_worker_allocates_nothing() {
    let settings = SamplerSettings { batch_size: 128, seed: 5, ..Default::default() };
    check(false, settings.clone());
    let with = |hops: NeighborSettings| SamplerSettings { sampling: hops.into(), ..settings.clone() };
    check(true, with(NeighborSettings { pick: Pick::Weighted, ..Default::default() }));
    check(false, with("-1,100,3".parse::<Fanouts>().expect("fanouts").into()));
    check(false, SamplerSettings { shuffle: false, ..settings.clone() });
    for distribution in [NegativeDistribution::Uniform, NegativeDistribution::Degree, NegativeDistribution::InBatch] {
        let pairs: Vec<[u32; 2]> = (0..5000).map(|v| [v, (v * 7 + 1) % 5000]).collect();
        let drawn = PairSettings { negatives: 3, distribution, avoid_edges: true, exclude: true };
        let seeds = SeedSet::of_pairs("pairs", &pairs, 5000, drawn).expect("nodes of the graph");
        check_seeds(distribution == NegativeDistribution::Degree, seeds, settings.clone());
    }
    let pairs: Vec<[u32; 2]> = (0..5000).map(|v| [v, (v * 7 + 1) % 5000]).collect();
    let given: Vec<u32> = (0..50_000).map(|i| i * 3 % 5000).collect();
    let distribution = NegativeDistribution::Given;
    let drawn = PairSettings { negatives: 3, distribution, avoid_edges: false, exclude: true };
    let seeds = SeedSet::of_pairs_against("pairs", &pairs, &given, 5000, drawn).expect("nodes of the graph");
    check_seeds(false, seeds, settings);
    let typed = Case::new(graphs::typed(5000, 12, true)).with(|s| {
        let hops = Some(NeighborSettings::default());
        let kind = TYPED.name.to_string();
        s.sampling = Sampling::Custom(CustomSettings { kind, layers: 3, hops, settings: Default::default() });
    });
    let disjoint = typed.with(|s| {
        let Sampling::Custom(custom) = &mut s.sampling else { unreachable!("set above") };
        custom.settings.insert("disjoint".into(), true.into());
    });
    for case in [typed, disjoint] {
        let sampler = CpuTyped::new(&case.context(Place::Host, Default::default()));
        check_sampler(&sampler.expect("the settings are possible"));
    }
}
