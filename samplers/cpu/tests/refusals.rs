//! Unsupported contexts and requests are errors with a cure.

use std::sync::Arc;

use morphgl_batching_cpu::CpuNeighbor;
use morphgl_conformance::batching::{graphs, hops};
use morphgl_registry::{BatchId, Batching, BatchingContext, Pick, SamplerSettings, SeedSet};

fn context() -> BatchingContext {
    BatchingContext::new(
        Arc::new(graphs::cycle(6)),
        SeedSet::new("seeds", &[0, 3, 5], 6).expect("three nodes"),
        SamplerSettings { batch_size: 2, ..Default::default() },
    )
}

#[track_caller]
fn check(change: impl FnOnce(&mut BatchingContext), expected: &str) {
    let mut context = context();
    change(&mut context);
    assert_eq!(CpuNeighbor::new(&context).expect_err("the context is refused").to_string(), expected);
}

#[test]
fn impossible_contexts() {
    check(|c| hops(&mut c.settings).fanouts.0.clear(), "fanouts: there is none; give one per hop, for example 15,10,5");
    check(|c| c.settings.batch_size = 0, "batch size: a mini-batch needs at least one seed; give a positive number");
    check(
        |c| hops(&mut c.settings).pick = Pick::Weighted,
        "weighted pick: the graph has no edge weights; pick uniformly, or import the dataset with weights",
    );
    check(
        |c| c.place = "cuda:0".parse().expect("a place"),
        "place: sampling on the CPU runs at host, not at cuda:0; choose a sampler of that device",
    );
    check(
        |c| c.options = serde_json::json!({"walks": 3}),
        "Batching_CPU_Neighbor: \"walks\" is none of its options; it has no options; leave it out",
    );
}

#[test]
fn impossible_requests() {
    let sampler = CpuNeighbor::new(&context()).expect("a valid context");
    assert_eq!(
        sampler.worker(0).err().expect("no thread, no worker").to_string(),
        "threads of a batching worker: 0 threads make no mini-batch; give at least 1"
    );
    let mut worker = sampler.worker(1).expect("a worker");
    let error = worker.prepare(BatchId { epoch: 3, index: 2 }, None).expect_err("there are two");
    assert_eq!(error.to_string(), "mini-batch 2 of epoch 3: an epoch has 2; ask for an index below that");
}

/// Ids in a mapped file may change after they were checked: then mini-batches are refused, and the file is named.
#[test]
fn ids_that_change_in_a_mapped_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let dataset = graphs::mapped(&graphs::cycle(300), dir.path().join("set").as_path());
    let indices = dataset.topology.indices().clone();
    let seeds: Vec<u32> = (0..300).collect();
    let seeds = SeedSet::new("seeds", &seeds, 300).expect("all nodes");
    let sampler = CpuNeighbor::new(&BatchingContext { dataset: dataset.into(), seeds, ..context() }).expect("valid");
    let prepare = |threads: usize| {
        let mut worker = sampler.worker(threads).expect("a worker");
        worker.prepare(BatchId { epoch: 0, index: 0 }, None).and_then(|handle| handle.wait()).map(drop)
    };
    prepare(1).expect("the file is as it was");
    graphs::overwrite(&indices, &(0..600).map(|i| i * 977 + 300).collect::<Vec<_>>());
    for threads in [1, 3] {
        let error = prepare(threads).expect_err("no neighbour exists").to_string();
        assert!(error.contains(&indices.file().expect("mapped").display().to_string()), "{error}");
        assert!(error.contains("but there are 300 nodes; the mapped file was changed: import it again"), "{error}");
    }
}
