//! The same seed gives `==` mini-batches with 1, 2 and 8 workers, from RAM and from mapped files.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use morphgl_batching_cpu::CpuNeighbor;
use morphgl_conformance::batching::graphs;
use morphgl_graph_store::{Dataset, DatasetWriter, Load, OpenOptions, read_npy};
use morphgl_registry::{
    BatchId, Batching, BatchingContext, HostBatch, NeighborSettings, Pick, SamplerSettings, SeedSet,
};

/// Mini-batches 0 to `count` of epoch 1; each worker takes the next one.
fn batches(sampler: &CpuNeighbor, workers: usize, threads: usize, count: u32) -> Vec<HostBatch> {
    let next = AtomicU32::new(0);
    let work = || {
        let mut worker = sampler.worker(threads).expect("a worker");
        let (mut made, mut recycled) = (Vec::new(), None);
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return made;
            }
            let handle = worker.prepare(BatchId { epoch: 1, index }, recycled.take()).expect("a mini-batch");
            let batch = handle.wait().expect("a mini-batch").0;
            made.push(batch.host().expect("in host memory").clone());
            recycled = Some(batch);
        }
    };
    let mut all: Vec<HostBatch> = thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        running.into_iter().flat_map(|w| w.join().expect("the worker ends well")).collect()
    });
    all.sort_by_key(|batch| batch.id);
    all
}

fn sampler(dataset: Dataset, settings: &SamplerSettings) -> CpuNeighbor {
    let seeds: Vec<u32> = (0..dataset.num_nodes() as u32).collect();
    let seeds = SeedSet::new("all nodes", &seeds, dataset.num_nodes()).expect("each node once");
    CpuNeighbor::new(&BatchingContext::new(Arc::new(dataset), seeds, settings.clone()))
        .expect("the settings are possible")
}

/// Writes the dataset, and compares all ways to load it and all numbers of workers and threads.
#[track_caller]
fn check(dataset: &Dataset, settings: &SamplerSettings, count: u32) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("graph");
    write(dataset, &path);
    let open = |load| Dataset::open(&path, OpenOptions { load, verify: true }).expect("what was written opens");
    let (ram, mmap) = (open(Load::Ram), open(Load::Mmap));
    assert!(mmap.topology.indices().is_mapped() && !ram.topology.indices().is_mapped());
    let (ram, mmap) = (sampler(ram, settings), sampler(mmap, settings));
    let expected = batches(&ram, 1, 1, count);
    assert_eq!(expected.len(), count as usize);
    assert!(expected.iter().all(|b| b.num_edges() > 0));
    for sampler in [&ram, &mmap] {
        for (workers, threads) in [(1, 1), (2, 1), (8, 1), (1, 2), (2, 3), (1, 8)] {
            let actual = batches(sampler, workers, threads, count);
            assert!(actual == expected, "{workers} workers of {threads} threads differ from one");
        }
    }
}

fn write(dataset: &Dataset, path: &Path) {
    let mut writer = DatasetWriter::create(path, false).expect("a new dataset");
    let topology = &dataset.topology;
    writer.array::<u64>("indptr", topology.indptr(), None).expect("written");
    writer.array::<u32>("indices", topology.indices(), None).expect("written");
    if let Some(weights) = topology.weights() {
        writer.array::<f32>("weights", weights, None).expect("written");
    }
    if let Some(morphgl_graph_store::FeatureMatrix::F16 { data, dim }) = &dataset.features {
        writer.array("features", data, Some(*dim)).expect("written");
    }
    if let Some(targets) = &dataset.targets {
        writer.array::<f32>("targets", targets.values(), Some(targets.dim())).expect("written");
    }
    if let Some(labels) = &dataset.labels {
        writer.array::<i32>("labels", labels, None).expect("written");
    }
    writer.finish("for a test", dataset.num_classes, Default::default()).expect("renamed into place");
}

#[test]
fn on_a_random_graph() {
    let settings = SamplerSettings { batch_size: 256, seed: 5, ..Default::default() };
    check(&graphs::random(20_000, 20, false), &settings, 40);
}

#[test]
fn on_a_random_graph_by_weight() {
    let by_weight = NeighborSettings { pick: Pick::Weighted, ..Default::default() };
    let settings = SamplerSettings { batch_size: 256, seed: 6, ..by_weight.into() };
    check(&graphs::random(5000, 12, true), &settings, 10);
}

/// The graph of a web crawl's arrays; of its first rows alone where there are fewer offsets than nodes.
fn web(folder: &Path, name: &str) -> Dataset {
    let (indptr, _) = read_npy::<u64>(&folder.join(format!("{name}.indptr.u64.npy")), Load::Mmap).expect("offsets");
    let (indices, _) = read_npy::<u32>(&folder.join(format!("{name}.indices.u32.npy")), Load::Mmap).expect("arcs");
    let num_nodes = indptr.len() as u32 - 1;
    let inside = |range: &[u64]| indices[range[0] as usize..range[1] as usize].iter().filter(|&&u| u < num_nodes);
    let rows: Vec<Vec<u32>> = indptr.windows(2).map(|range| inside(range).copied().collect()).collect();
    graphs::bare(&graphs::dataset(&rows, None))
}

#[test]
fn on_a_web_graph() {
    let settings = SamplerSettings { seed: 7, ..Default::default() };
    check(&web(&morphgl_testdata::path("bvgraph/expected"), "cnr-2000-head"), &settings, 12);
    if let Some(folder) = morphgl_testdata::extra("bvgraph-cnr-2000/expected") {
        check(&web(&folder, "cnr-2000"), &settings, 12);
    }
}
