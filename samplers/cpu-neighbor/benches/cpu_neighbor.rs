//! Sampled edges a second on one thread, and with mini-batches spread over threads.
//!
//! Run: `cargo bench -p morphgl-batching-cpu-neighbor`. A graph of 500,000 nodes with 30 in-neighbours on average
//! (uniform degrees from 1 to 59, uniform sources), fanouts 15,10,5, 1024 seeds a mini-batch, no features.
#![allow(clippy::print_stdout, reason = "a bench prints")]

use std::sync::Arc;
use std::time::Instant;

use morphgl_batching_cpu_neighbor::CpuNeighbor;
use morphgl_graph_store::{Array, Dataset, Splits, Topology};
use morphgl_registry::{BatchId, Batching, BatchingContext, Place, Result, SamplerSettings, SeedSet};
use morphgl_sampler_core::philox4x32_10;

const NODES: u32 = 500_000;
const BATCHES: u32 = 40;

fn graph() -> Dataset {
    let mut indptr = vec![0u64];
    let mut indices = Vec::new();
    for node in 0..NODES {
        let degree = 1 + philox4x32_10([node, 0, 0, 0], [1, 0])[0] % 59;
        for block in 0..degree.div_ceil(4) {
            let words = philox4x32_10([node, block, 0, 0], [2, 0]);
            let left = (degree - 4 * block).min(4) as usize;
            indices.extend(words[..left].iter().map(|w| ((u64::from(*w) * u64::from(NODES)) >> 32) as u32));
        }
        indptr.push(indices.len() as u64);
    }
    let none = || Array::from(Vec::new());
    Dataset {
        path: Default::default(),
        name: "uniform".into(),
        topology: Topology::new(indptr, indices, None).expect("the graph was made whole"),
        features: None,
        labels: None,
        num_classes: 0,
        splits: Splits { train: none(), valid: none(), test: none() },
        node_ids: None,
    }
}

fn main() -> Result<()> {
    let seeds: Vec<u32> = (0..NODES).collect();
    let context = BatchingContext {
        dataset: Arc::new(graph()),
        seeds: SeedSet::new("seeds", &seeds, NODES as usize)?,
        settings: SamplerSettings::default(),
        gather: false,
        place: Place::Host,
        options: Default::default(),
    };
    let sampler = CpuNeighbor::new(&context)?;
    for threads in [1, 2, 4] {
        let mut worker = sampler.worker(threads)?;
        let mut recycled = None;
        let (mut speeds, mut edges, mut nodes) = (Vec::new(), 0, 0);
        for index in 0..BATCHES {
            let start = Instant::now();
            let (batch, _) = worker.prepare(BatchId { epoch: 0, index }, recycled)?.wait()?;
            let seconds = start.elapsed().as_secs_f64();
            let host = batch.host()?;
            (edges, nodes) = (edges + host.num_edges(), nodes + host.input_nodes.len());
            // The first mini-batches grow the buffers.
            if index >= 4 {
                speeds.push(host.num_edges() as f64 / seconds / 1e6);
            }
            recycled = Some(batch);
        }
        speeds.sort_by(f64::total_cmp);
        let (min, median, max) = (speeds[0], speeds[speeds.len() / 2], speeds[speeds.len() - 1]);
        let (edges, nodes) = (edges / BATCHES as usize, nodes / BATCHES as usize);
        println!(
            "{threads} threads a mini-batch: {min:.1} / {median:.1} / {max:.1} million edges a second \
             (min / median / max of {}; {edges} edges, {nodes} input nodes a mini-batch)",
            speeds.len()
        );
    }
    Ok(())
}
