//! Time of the ranks of pairs among all nodes; `ranking.py` does the same with numpy.
//!
//! Run: `cargo bench -p morphgl-model-core --bench ranking -- [NODES|DIR [DIM [PAIRS [THREADS [ROUNDS]]]]]`; default 100,000 nodes, 64
//! values per embedding, 2,000 pairs, all threads and 5 rounds. DIR has `embeddings.npy` (f32 `[nodes, dim]`) and `pairs.npy` (u32
//! `[pairs, 2]`), of which the first PAIRS are ranked. Prints pairs per second, the median, minimum and maximum of the rounds, and the
//! mean reciprocal rank.
#![allow(clippy::print_stdout, reason = "a bench prints")]

use std::path::Path;
use std::time::Instant;

use morphgl_graph_store::{Element, Load, read_npy};
use morphgl_model_core::{Candidates, PairScore, mean_reciprocal_rank, rank_of_targets};
use morphgl_platform::{SimdLevel, splitmix64};

/// The elements of an array, and its columns.
fn read<T: Element>(path: &Path) -> (Vec<T>, usize) {
    let (array, shape) = read_npy(path, Load::Ram).unwrap_or_else(|error| panic!("{error}"));
    (array.to_vec(), shape[1] as usize)
}

fn main() {
    // Cargo adds an option.
    let given: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let option = |i: usize, default: usize| given.get(i).map_or(default, |text| text.parse().expect("a number"));
    let (num_pairs, rounds) = (option(2, 2_000), option(4, 5));
    let threads = option(3, std::thread::available_parallelism().map_or(1, usize::from));
    let dir = given.first().map(Path::new).filter(|path| path.is_dir());
    let (embeddings, dim, pairs) = if let Some(dir) = dir {
        let (embeddings, dim) = read(&dir.join("embeddings.npy"));
        let pairs: Vec<u32> = read(&dir.join("pairs.npy")).0;
        let pairs = pairs.chunks_exact(2).take(num_pairs).map(|pair| [pair[0], pair[1]]).collect();
        (embeddings, dim, pairs)
    } else {
        let (nodes, dim) = (option(0, 100_000), option(1, 64));
        let value = |i: u64| (splitmix64(i) >> 40) as f32 / (1 << 24) as f32 - 0.5;
        let node = |i: usize| (splitmix64(i as u64 + (1 << 40)) % nodes as u64) as u32;
        let embeddings: Vec<f32> = (0..(nodes * dim) as u64).map(value).collect();
        let pairs: Vec<[u32; 2]> = (0..num_pairs).map(|i| [node(2 * i), node(2 * i + 1)]).collect();
        (embeddings, dim, pairs)
    };
    let (nodes, num_pairs) = (embeddings.len() / dim, pairs.len());
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
    let candidates = Candidates { nodes: 0..nodes as u32, known: None };
    let mut mrr = 0.0;
    let mut rates: Vec<f64> = (0..=rounds)
        .map(|_| {
            let start = Instant::now();
            let ranks =
                pool.install(|| rank_of_targets(&embeddings, dim, &pairs, PairScore::Dot, &candidates, 256 << 20));
            mrr = mean_reciprocal_rank(ranks.into_iter().map(|rank| rank.rank()));
            num_pairs as f64 / start.elapsed().as_secs_f64()
        })
        .skip(1)
        .collect();
    rates.sort_by(f64::total_cmp);
    let [low, median, high] = [0, rates.len() / 2, rates.len() - 1].map(|i| rates[i]);
    let gflops = median * 2.0 * (nodes * dim) as f64 / 1e9;
    let level = SimdLevel::current();
    println!("{nodes} nodes of {dim}, {num_pairs} pairs, {threads} threads, {level}");
    println!("{median:.0} pairs/s ({low:.0} to {high:.0}), {gflops:.1} GFLOP/s of all products, MRR {mrr:.9}");
}
