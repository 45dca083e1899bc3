//! Files that are changed while they are mapped are named.

use morphgl_batching_cpu::CpuWalk;
use morphgl_conformance::batching::graphs;
use morphgl_registry::{BatchId, Batching, BatchingContext, Place, SamplerSettings, Sampling, SeedSet, WalkSettings};

/// Every step from a node leads to nodes that do not exist, the largest id among them: the mini-batch is refused.
#[test]
fn ids_that_change_in_a_mapped_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let dataset = graphs::mapped(&graphs::cycle(300), &dir.path().join("set"));
    let indices = dataset.topology.indices().clone();
    let seeds = SeedSet::new("seeds", &(0..300).collect::<Vec<_>>(), 300).expect("all nodes");
    let sampling = Sampling::Walk(WalkSettings::of_layers(2));
    let walk = CpuWalk::new(&BatchingContext {
        dataset: dataset.into(),
        seeds,
        settings: SamplerSettings { sampling, batch_size: 100, ..Default::default() },
        gather: false,
        place: Place::Host,
        options: serde_json::Value::Null,
    });
    let walk = walk.expect("a valid context");
    let prepare = |threads: usize| {
        let mut worker = walk.worker(threads).expect("a worker");
        worker.prepare(BatchId { epoch: 0, index: 1 }, None).and_then(|handle| handle.wait()).map(drop)
    };
    prepare(1).expect("the file is as it was");
    for node in [300, 1 << 20, u32::MAX] {
        graphs::overwrite(&indices, &vec![node; 600]);
        for threads in [1, 3] {
            let error = prepare(threads).expect_err("no neighbour exists").to_string();
            assert!(error.contains(&indices.file().expect("mapped").display().to_string()), "{error}");
            assert!(error.contains("but there are 300 nodes; the mapped file was changed: import it again"), "{error}");
        }
    }
}
