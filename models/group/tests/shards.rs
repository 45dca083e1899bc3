//! Gathers from divided rows are gathers from the whole matrix.

use std::sync::Arc;

use morphgl_batching_cpu::CpuNeighbor;
use morphgl_generate::{SbmConfig, sbm};
use morphgl_graph_store::{Dataset, FeatureMatrix};
use morphgl_group::{GroupError, Layout, ReadRows, Result, ShardedBatching, Shards};
use morphgl_registry::{
    BatchId, Batching, BatchingContext, Fanouts, Handle, MiniBatch, Place, SamplerSettings, SeedSet,
};
use proptest::prelude::*;
use serde_json::Value;

/// All parts, in one memory.
#[derive(Debug)]
struct Parts {
    parts: Vec<Arc<Vec<u8>>>,
    row_bytes: usize,
}

impl ReadRows for Parts {
    fn read(&self, requests: &mut [(usize, &[u32], &mut [u8])]) -> Result<()> {
        for (rank, rows, out) in requests {
            for (&row, out) in rows.iter().zip(out.chunks_exact_mut(self.row_bytes)) {
                let at = row as usize * self.row_bytes;
                out.copy_from_slice(&self.parts[*rank][at..at + self.row_bytes]);
            }
        }
        Ok(())
    }
}

/// Owners that never answer.
#[derive(Debug)]
struct Silent;

impl ReadRows for Silent {
    fn read(&self, requests: &mut [(usize, &[u32], &mut [u8])]) -> Result<()> {
        let ranks = requests.iter().map(|(rank, ..)| *rank).collect();
        Err(GroupError::Late { ranks, limit: std::time::Duration::from_secs(1) })
    }
}

fn view(matrix: &FeatureMatrix, rank: usize, size: usize, replicated: &[u32]) -> Shards {
    let layout = Layout { num_rows: matrix.num_rows(), size };
    let parts: Vec<Arc<Vec<u8>>> = (0..size).map(|rank| layout.copy(matrix, rank)).collect();
    let own = Arc::clone(&parts[rank]);
    let owners = Parts { parts, row_bytes: matrix.row_bytes() };
    Shards::new(matrix, (rank, size), own, replicated, Box::new(owners))
}

proptest! {
    #[test]
    fn rows_are_those_of_the_matrix(
        num_rows in 1usize..600,
        dim in 1usize..7,
        size in 1usize..9,
        rank in 0usize..9,
        picks in proptest::collection::vec(0usize..1000, 0..80),
        replicated in proptest::collection::vec(0usize..1000, 0..20),
    ) {
        let rank = rank % size;
        let matrix = FeatureMatrix::U8 { data: (0..num_rows * dim).map(|i| i as u8).collect::<Vec<u8>>().into(), dim };
        let rows = |picks: &[usize]| -> Vec<u32> { picks.iter().map(|&pick| (pick % num_rows) as u32).collect() };
        let (nodes, replicated) = (rows(&picks), rows(&replicated));
        let shards = view(&matrix, rank, size, &replicated);
        let (mut gathered, mut expected) = (vec![0; nodes.len() * dim], vec![1; nodes.len() * dim]);
        let counters = shards.gather(&nodes, &mut gathered).expect("all parts are there");
        matrix.gather_rows(&nodes, &mut expected);
        prop_assert_eq!(gathered, expected);
        let count = |name: &str| counters.iter().find(|(n, _)| *n == name).map_or(0, |(_, count)| count) as usize;
        let is_own = |node: &&u32| Layout { num_rows, size }.locate(**node).0 == rank;
        prop_assert_eq!(count("shard_own_rows"), nodes.iter().filter(is_own).count());
        let copied = nodes.iter().filter(|node| !is_own(node) && replicated.contains(node)).count();
        prop_assert_eq!(count("shard_replicated_rows"), copied);
        prop_assert_eq!(count("shard_read_rows"), nodes.len() - copied - count("shard_own_rows"));
        prop_assert_eq!(count("shard_read_bytes"), count("shard_read_rows") * dim);
    }

    /// Every row has one owner.
    #[test]
    fn parts_are_the_whole(num_rows in 0usize..1000, size in 1usize..12) {
        let layout = Layout { num_rows, size };
        let mut all = Vec::new();
        for rank in 0..size {
            let rows: Vec<u32> = layout.part(rank).flatten().map(|row| row as u32).collect();
            for (at, &row) in rows.iter().enumerate() {
                prop_assert_eq!(layout.locate(row), (rank, at as u32));
            }
            all.extend(rows);
        }
        all.sort_unstable();
        prop_assert_eq!(all, (0..num_rows as u32).collect::<Vec<_>>());
    }
}

fn batching(dataset: &Arc<Dataset>, gather: bool) -> CpuNeighbor {
    let fanouts: Fanouts = "4,3".parse().expect("fanouts");
    CpuNeighbor::new(&BatchingContext {
        dataset: Arc::clone(dataset),
        seeds: SeedSet::new("train split", &dataset.splits.train, dataset.num_nodes()).expect("distinct nodes"),
        settings: SamplerSettings { batch_size: 32, seed: 5, ..fanouts.into() },
        gather,
        place: Place::Host,
        options: Value::Null,
    })
    .expect("settings for this dataset")
}

/// Mini-batches are those of the operator that has all rows, buffers used again or not.
#[test]
fn mini_batches_have_their_features() {
    let graph = SbmConfig { nodes: 300, classes: 3, dim: 8, degree: 6.0, ..SbmConfig::default() };
    let dataset = Arc::new(sbm(&graph).expect("a graph"));
    let matrix = dataset.features.as_ref().expect("features");
    let shards = Arc::new(view(matrix, 1, 3, &[0, 5, 200]));
    let whole = batching(&dataset, true);
    let divided = ShardedBatching { inner: Box::new(batching(&dataset, false)), shards };
    let (mut expected, mut worker) = (whole.worker(1).expect("a worker"), divided.worker(1).expect("a worker"));
    let mut recycled: Option<MiniBatch> = None;
    for index in 0..whole.num_batches() as u32 {
        let id = BatchId { epoch: 0, index };
        let expected = expected.prepare(id, None).and_then(Handle::wait).expect("batching").0;
        let batch = worker.prepare(id, recycled.take()).and_then(Handle::wait).expect("batching").0;
        let (MiniBatch::Host(batch), MiniBatch::Host(expected)) = (batch, expected) else { panic!("on the host") };
        assert_eq!(batch, expected);
        recycled = (index % 2 == 0).then_some(MiniBatch::Host(batch));
    }
}

#[test]
fn an_owner_that_does_not_answer_is_named_with_the_mini_batch() {
    let graph = SbmConfig { nodes: 300, classes: 3, dim: 8, degree: 6.0, ..SbmConfig::default() };
    let dataset = Arc::new(sbm(&graph).expect("a graph"));
    let matrix = dataset.features.as_ref().expect("features");
    let shards = Shards::new(
        matrix,
        (0, 2),
        Layout { num_rows: matrix.num_rows(), size: 2 }.copy(matrix, 0),
        &[],
        Box::new(Silent),
    );
    let divided = ShardedBatching { inner: Box::new(batching(&dataset, false)), shards: Arc::new(shards) };
    let id = BatchId { epoch: 0, index: 2 };
    let Err(error) = divided.worker(1).expect("a worker").prepare(id, None) else { panic!("an owner has answered") };
    let error = error.to_string();
    assert!(error.contains("mini-batch 2") && error.contains("no answer from trainer 1 for 1 s"), "{error}");
}
