//! One seed, one graph: in memory and on disk, on any number of threads, in any amount of memory.

use std::collections::BTreeMap;
use std::path::Path;

use morphgl_generate::{DEFAULT_MEMORY, Result, RmatConfig, SbmConfig, rmat, rmat_to_disk, sbm, sbm_to_disk};
use morphgl_graph_store::{Dataset, Dtype, OpenOptions};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Graph {
    Sbm(SbmConfig),
    Rmat(RmatConfig),
}

impl Graph {
    fn in_memory(&self) -> Dataset {
        match self {
            Graph::Sbm(c) => sbm(c).unwrap(),
            Graph::Rmat(c) => rmat(c).unwrap(),
        }
    }

    fn to_disk(&self, target: &Path, memory: u64) -> Result<Dataset> {
        let path = match self {
            Graph::Sbm(c) => sbm_to_disk(c, target, memory, false, &|_, _, _| {})?,
            Graph::Rmat(c) => rmat_to_disk(c, target, memory, false, &|_, _, _| {})?,
        };
        Ok(Dataset::open(path, OpenOptions::default())?)
    }

    /// The minimum memory, from the error message.
    fn least_memory(&self) -> u64 {
        let message = self.to_disk(Path::new("never-written"), 0).unwrap_err().to_string();
        let words: Vec<&str> = message.split(' ').collect();
        words[words.len() - 2].parse::<u64>().expect("the cure names a number of MiB") << 20
    }
}

fn on_threads<R: Send>(threads: usize, run: impl FnOnce() -> R + Send) -> R {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(run)
}

#[track_caller]
fn check(graph: &Graph) {
    let expected = on_threads(1, || graph.in_memory());
    let mut descriptions = BTreeMap::new();
    for (threads, memory) in [(1, DEFAULT_MEMORY), (2, graph.least_memory()), (8, DEFAULT_MEMORY / 2)] {
        assert_eq!(on_threads(threads, || graph.in_memory()), expected, "{threads} threads");
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("graph");
        let mut actual = on_threads(threads, || graph.to_disk(&target, memory)).unwrap();
        actual.path = expected.path.clone();
        assert_eq!(actual, expected, "on disk, {threads} threads");
        let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "something is left beside the dataset");
        descriptions.insert(std::fs::read_to_string(target.join("graph.json")).unwrap(), threads);
    }
    assert_eq!(descriptions.len(), 1, "checksums differ: {descriptions:?}");
}

#[test]
fn the_default_block_model_is_one_graph() {
    check(&Graph::Sbm(SbmConfig::default()));
}

#[test]
fn a_larger_kronecker_graph_is_one_graph() {
    check(&Graph::Rmat(RmatConfig { symmetrise: true, dim: 8, dtype: Dtype::F16, ..RmatConfig::default() }));
}

fn dtypes() -> impl Strategy<Value = Dtype> {
    prop::sample::select(vec![Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::U8])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn every_block_model_is_one_graph(
        nodes in 40u64..9000, classes in 2usize..20, dim in 1usize..20, dtype in dtypes(), degree in 0.1f64..3.0, seed: u64
    ) {
        check(&Graph::Sbm(SbmConfig { nodes, classes, dim, dtype, degree, seed, homophily: 0.3, ..SbmConfig::default() }));
    }

    #[test]
    fn every_kronecker_graph_is_one_graph(
        nodes in 20u64..9000, dim in 1usize..20, dtype in dtypes(), edge_factor in 0.1f64..15.0, symmetrise: bool, seed: u64
    ) {
        check(&Graph::Rmat(RmatConfig { nodes, dim, dtype, edge_factor, symmetrise, seed, ..RmatConfig::default() }));
    }
}

#[test]
fn seeds_and_dtypes_differ_in_what_they_should() {
    let base = SbmConfig { nodes: 5000, ..SbmConfig::default() };
    let (a, b) = (sbm(&base).unwrap(), sbm(&SbmConfig { seed: 1, ..base.clone() }).unwrap());
    assert_ne!(a.topology, b.topology);
    assert_ne!(a.features, b.features);
    assert_ne!(a.labels, b.labels);
    assert_ne!(a.splits, b.splits);
    let c = sbm(&SbmConfig { dtype: Dtype::F16, ..base }).unwrap();
    assert_eq!(a.topology, c.topology);
    let (a, c) = (a.features.unwrap(), c.features.unwrap());
    let (mut wide, mut narrow) = (vec![0f32; a.view().len()], vec![0f32; c.view().len()]);
    a.view().to_f32(&mut wide);
    c.view().to_f32(&mut narrow);
    assert!(wide.iter().zip(&narrow).all(|(w, n)| (w - n).abs() <= w.abs() / 1024.0 + 1e-7));
}

/// Checksums of one small graph, so that a change of the generators is noticed: benchmarks name their
/// graphs by configuration and seed.
#[test]
fn graphs_stay_what_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let sums = |target: &Path| -> Vec<String> {
        let text = std::fs::read_to_string(target.join("graph.json")).unwrap();
        let meta: serde_json::Value = serde_json::from_str(&text).unwrap();
        let sum = |name: &str| meta["arrays"][name]["xxh3"].as_str().unwrap().to_string();
        ["indices", "features", "labels", "train"].map(sum).to_vec()
    };
    let (block, kronecker) = (dir.path().join("sbm"), dir.path().join("rmat"));
    let config = SbmConfig { nodes: 10_000, dtype: Dtype::U8, label_noise: 0.1, seed: 42, ..SbmConfig::default() };
    sbm_to_disk(&config, &block, DEFAULT_MEMORY, false, &|_, _, _| {}).unwrap();
    let config = RmatConfig { nodes: 10_000, dtype: Dtype::Bf16, symmetrise: true, seed: 42, ..RmatConfig::default() };
    rmat_to_disk(&config, &kronecker, DEFAULT_MEMORY, false, &|_, _, _| {}).unwrap();
    assert_eq!(sums(&block), ["08036f907af268ad", "d1a2534b2cf4cdb4", "19460aa46379f20b", "d87d756f788fa4c9"]);
    assert_eq!(sums(&kronecker), ["f34afeb6f1cf1f70", "ff44a340ea4b5bd3", "fafd9ee2df193f64", "d87d756f788fa4c9"]);
}
