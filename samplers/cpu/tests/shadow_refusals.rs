//! Files that are changed while they are mapped are named.

use morphgl_batching_cpu::CpuShadow;
use morphgl_conformance::batching::graphs;
use morphgl_registry::{
    BatchId, Batching, BatchingContext, Fanout, Fanouts, NeighborSettings, Place, SamplerSettings, Sampling, SeedSet,
    ShadowSettings,
};

/// Hops that find nodes by one edge of each row, and an induced subgraph that reads all of them, of which another does not exist.
#[test]
fn ids_that_change_in_a_mapped_file() {
    for weights in [false, true] {
        let dir = tempfile::tempdir().expect("a folder");
        let dataset = graphs::mapped(&graphs::random(300, 4, weights), &dir.path().join("set"));
        let (topology, indices) = (dataset.topology.clone(), dataset.topology.indices().clone());
        let seeds = SeedSet::new("seeds", &(0..300).collect::<Vec<_>>(), 300).expect("all nodes");
        let hops =
            NeighborSettings { fanouts: Fanouts(vec![Fanout::AtMost(1.try_into().expect("1"))]), ..Default::default() };
        let sampling = Sampling::Shadow(ShadowSettings { hops, layers: 2 });
        let shadow = CpuShadow::new(&BatchingContext {
            dataset: dataset.into(),
            seeds,
            settings: SamplerSettings { sampling, batch_size: 300, ..Default::default() },
            gather: false,
            place: Place::Host,
            options: serde_json::Value::Null,
        });
        let shadow = shadow.expect("a valid context");
        let prepare = |threads: usize| {
            let mut worker = shadow.worker(threads).expect("a worker");
            worker.prepare(BatchId { epoch: 0, index: 0 }, None).and_then(|handle| handle.wait()).map(drop)
        };
        prepare(1).expect("the file is as it was");
        // Node 0 has an edge from every node, of which the hop reads one alone. 300 to 319 share a word of 64 bits with nodes
        // that exist.
        for node in [300, 319, 1 << 20, u32::MAX] {
            let mut changed = indices.to_vec();
            changed[topology.edge_range(0)][1..].fill(node);
            graphs::overwrite(&indices, &changed);
            for threads in [1, 3] {
                let error = prepare(threads).expect_err("a neighbour does not exist").to_string();
                assert!(error.contains(&indices.file().expect("mapped").display().to_string()), "{error}");
                assert!(error.contains("but there are 300 nodes; the mapped file was changed"), "{error}");
            }
            changed.copy_from_slice(&indices);
            changed[topology.edge_range(0)].copy_from_slice(&(0..300).collect::<Vec<_>>());
            graphs::overwrite(&indices, &changed);
            prepare(2).expect("the file is as it was");
        }
    }
}
