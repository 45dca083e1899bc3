//! Look-ups per second of the dynamic caches beside the crates `moka` and `quick_cache`:
//! `cargo bench -p morphgl-row-cache -- [--rows N] [--row-bytes N] [--share F] [--skew F] [--lookups N] [--rounds N]
//! [--threads N,…] [--json]`; a look-up copies the row out, and a miss inserts it.
//! `--stress N` instead lets 8 threads do N look-ups and insertions each, and verifies every row.
#![allow(clippy::print_stdout, reason = "a bench prints its table")]

use std::hint::black_box;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use morphgl_row_cache::{DynamicCache, Eviction};

fn argument<T: FromStr>(name: &str, default: &str) -> T {
    let arguments: Vec<String> = std::env::args().collect();
    let at = arguments.iter().position(|a| a == name);
    let text = at.and_then(|i| arguments.get(i + 1)).map_or(default, String::as_str);
    text.parse().unwrap_or_else(|_| panic!("{name} {text}: not what it takes"))
}

/// A cache of rows, as the bench uses all of them.
trait Cache: Sync {
    /// Copies the row of `node` to `out`, and returns whether it was cached; a row that was not is copied from `rows` and
    /// cached.
    fn look_up(&self, node: u32, rows: &[u8], out: &mut [u8]) -> bool;
}

fn of(node: u32, rows: &[u8], row_bytes: usize) -> &[u8] {
    &rows[node as usize * row_bytes..][..row_bytes]
}

impl Cache for DynamicCache {
    fn look_up(&self, node: u32, rows: &[u8], out: &mut [u8]) -> bool {
        let hit = self.get_into(node, out);
        if !hit {
            let row = of(node, rows, out.len());
            self.insert(node, row);
            out.copy_from_slice(row);
        }
        hit
    }
}

impl Cache for moka::sync::Cache<u32, Arc<[u8]>> {
    fn look_up(&self, node: u32, rows: &[u8], out: &mut [u8]) -> bool {
        let cached = self.get(&node);
        let hit = cached.is_some();
        let row = cached.unwrap_or_else(|| {
            let row: Arc<[u8]> = of(node, rows, out.len()).into();
            self.insert(node, Arc::clone(&row));
            row
        });
        out.copy_from_slice(&row);
        hit
    }
}

impl Cache for quick_cache::sync::Cache<u32, Arc<[u8]>> {
    fn look_up(&self, node: u32, rows: &[u8], out: &mut [u8]) -> bool {
        let cached = self.get(&node);
        let hit = cached.is_some();
        let row = cached.unwrap_or_else(|| {
            let row: Arc<[u8]> = of(node, rows, out.len()).into();
            self.insert(node, Arc::clone(&row));
            row
        });
        out.copy_from_slice(&row);
        hit
    }
}

/// `len` nodes with probability by rank^-skew; ranks are spread over all ids.
fn zipf(num_rows: usize, skew: f64, len: usize, seed: u64) -> Vec<u32> {
    let mut sum = 0.0;
    let cumulated: Vec<f64> = (1..=num_rows)
        .map(|rank| {
            sum += (rank as f64).powf(-skew);
            sum
        })
        .collect();
    let mut state = seed;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            let mixed = state ^ state >> 29;
            let draw = (mixed >> 11) as f64 / (1u64 << 53) as f64 * sum;
            let rank = cumulated.partition_point(|&c| c < draw).min(num_rows - 1);
            ((rank as u64 * 0x9E37_79B1) % num_rows as u64) as u32
        })
        .collect()
}

/// Look-ups per second of each round after the first, and the share of hits; each round has `lookups` nodes of `trace`
/// for its own, divided among the threads.
fn measure(
    cache: &dyn Cache,
    trace: &[u32],
    lookups: usize,
    threads: usize,
    rows: &[u8],
    row_bytes: usize,
) -> (Vec<f64>, f64) {
    let (mut found, mut all) = (0, Vec::new());
    for (round, trace) in trace.chunks_exact(lookups).enumerate() {
        let counted = AtomicU64::new(0);
        let start = Instant::now();
        std::thread::scope(|scope| {
            for trace in trace.chunks(lookups.div_ceil(threads)) {
                let counted = &counted;
                scope.spawn(move || {
                    let mut out = vec![0; row_bytes];
                    let mut hits = 0;
                    for &node in trace {
                        hits += u64::from(cache.look_up(node, rows, &mut out));
                        black_box(&mut out);
                    }
                    counted.fetch_add(hits, Ordering::Relaxed);
                });
            }
        });
        // The first round fills the cache.
        if round > 0 {
            all.push(lookups as f64 / start.elapsed().as_secs_f64());
            found += counted.into_inner();
        }
    }
    let hits = found as f64 / (all.len() * lookups) as f64;
    (all, hits)
}

fn main() {
    let stress: u64 = argument("--stress", "0");
    if stress > 0 {
        [Eviction::Sieve, Eviction::Lru].into_iter().for_each(|eviction| run_stress(eviction, stress));
        return;
    }
    let json = std::env::args().any(|a| a == "--json");
    let (num_rows, row_bytes): (usize, usize) = (argument("--rows", "1000000"), argument("--row-bytes", "256"));
    let (share, skew): (f64, f64) = (argument("--share", "0.2"), argument("--skew", "1"));
    let (lookups, rounds): (usize, usize) = (argument("--lookups", "4000000"), argument("--rounds", "5"));
    let threads: String = argument("--threads", "1,2,8");
    let rows: Vec<u8> = (0..num_rows * row_bytes).map(|i| (i / row_bytes) as u8).collect();
    let capacity = (num_rows as f64 * share) as usize;
    let trace = zipf(num_rows, skew, lookups * (rounds + 1), 1);
    if !json {
        println!("{num_rows} rows of {row_bytes} bytes, {capacity} cached, rank^-{skew}: million look-ups per second");
    }
    for threads in threads.split(',').map(|t| t.parse::<usize>().expect("threads are numbers")) {
        // As many rows as the other crates hold: their budgets are rows, ours bytes.
        let bytes_per_row = DynamicCache::new(Eviction::Sieve, row_bytes, 1 << 30, 1);
        let budget = capacity as u64 * bytes_per_row.num_bytes() / bytes_per_row.max_rows() as u64;
        drop(bytes_per_row);
        let caches: [(&str, Box<dyn Cache>); 4] = [
            ("sieve", Box::new(DynamicCache::new(Eviction::Sieve, row_bytes, budget, 16))),
            ("lru", Box::new(DynamicCache::new(Eviction::Lru, row_bytes, budget, 16))),
            ("quick_cache", Box::new(quick_cache::sync::Cache::<u32, Arc<[u8]>>::new(capacity))),
            ("moka", Box::new(moka::sync::Cache::<u32, Arc<[u8]>>::new(capacity as u64))),
        ];
        let mut first = None;
        for (name, cache) in &caches {
            let (mut all, hits) = measure(cache.as_ref(), &trace, lookups, threads, &rows, row_bytes);
            all.sort_by(f64::total_cmp);
            let median = all[all.len() / 2];
            let ratio = *first.get_or_insert(median) / median;
            if json {
                println!(
                    r#"{{"what":"look-ups","unit":"look-ups/s","cache":"{name}","threads":{threads},"median":{median},"all":{all:?},"hits":{hits},"sieve_over_this":{ratio}}}"#
                );
            } else {
                println!(
                    "{threads} threads {name:>12}: {:>6.1} ({:.1}–{:.1}), {:.1}% hits; sieve / this {ratio:.2}",
                    median / 1e6,
                    all[0] / 1e6,
                    all[all.len() - 1] / 1e6,
                    100.0 * hits
                );
            }
        }
    }
}

/// A row all of whose words tell node and version.
fn fill(node: u32, version: u32, row: &mut [u64]) {
    let mut state = u64::from(node) << 32 | u64::from(version);
    for word in row {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        *word = state;
    }
}

/// 8 threads look up and insert rows of few nodes, so that they meet; each row read is verified.
fn run_stress(eviction: Eviction, operations: u64) {
    const WORDS: usize = 8;
    let cache = DynamicCache::new(eviction, 8 * WORDS, 4096 * 100, 4);
    let nodes = cache.max_rows() as u64 * 3 / 2;
    let (found, inserted) = (AtomicU64::new(0), AtomicU64::new(0));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let (cache, found, inserted) = (&cache, &found, &inserted);
            scope.spawn(move || {
                let (mut row, mut out) = ([0u64; WORDS], [0u8; 8 * WORDS]);
                let (mut state, mut hits, mut written) = (thread + 1, 0u64, 0u64);
                for _ in 0..operations {
                    state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
                    // The square of a draw: low nodes are hot.
                    let draw = ((state >> 32) * nodes) >> 32;
                    let node = (draw * draw / nodes) as u32;
                    let version = (state >> 20) as u32 % 3;
                    if state >> 29 & 7 == 0 || !cache.get_into(node, &mut out) {
                        fill(node, version, &mut row);
                        row.iter().zip(out.chunks_mut(8)).for_each(|(w, to)| to.copy_from_slice(&w.to_le_bytes()));
                        written += u64::from(cache.insert(node, &out));
                        continue;
                    }
                    hits += 1;
                    let whole = (0..3).any(|version| {
                        fill(node, version, &mut row);
                        row.iter().zip(out.chunks(8)).all(|(w, from)| w.to_le_bytes() == from)
                    });
                    assert!(whole, "{eviction:?}: the row of node {node} is torn, or another's: {out:?}");
                }
                found.fetch_add(hits, Ordering::Relaxed);
                inserted.fetch_add(written, Ordering::Relaxed);
            });
        }
    });
    println!(
        "{cache:?}: 8 × {operations} operations, {} rows verified, {} inserted, in {:.0} s",
        found.into_inner(),
        inserted.into_inner(),
        start.elapsed().as_secs_f64()
    );
}
