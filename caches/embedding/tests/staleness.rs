//! No read is staler than the bound, and rows are those of their super-batch, whatever the speeds of both sides.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use morphgl_embedding_cache::{EmbeddingCache, Error};
use morphgl_row_cache::NodeMap;
use proptest::prelude::*;

/// Nodes of the graph; those of a super-batch are the ones of its parity.
const NODES: u32 = 64;

fn map(super_batch: u64) -> NodeMap {
    NodeMap::new(NODES as usize, |node| u64::from(node) % 2 == super_batch % 2)
}

/// Rows that say their node and the version they were computed with.
fn rows(super_batch: u64, version: u64) -> Vec<f32> {
    map(super_batch).nodes().flat_map(|node| [node as f32, version as f32]).collect()
}

/// What a side does next; anything that is not possible yet is left for later.
struct Sides<'a> {
    cache: &'a EmbeddingCache,
    n: u64,
    /// The step to come.
    step: u64,
    /// The next super-batch that the computing side chooses, and the next that it publishes.
    chosen: u64,
    published: u64,
    /// Super-batches whose version is that of one super-batch too early.
    faulty: bool,
    largest: u64,
}

impl Sides<'_> {
    fn compute(&mut self) -> Result<(), Error> {
        // The nodes of the next but one are known before its parameters are.
        if self.chosen <= self.published + 1 {
            self.cache.choose(self.chosen, map(self.chosen))?;
            self.chosen += 1;
        } else if self.published == 0 || self.step > (self.published - 1) * self.n {
            let began = self.published.saturating_sub(1) * self.n;
            let version = if self.faulty { began.saturating_sub(self.n) } else { began };
            self.cache.publish(self.published, version, vec![rows(self.published, version)])?;
            self.published += 1;
        }
        Ok(())
    }

    fn train(&mut self) -> Result<(), Error> {
        let super_batch = self.step / self.n;
        // The first mini-batch of a super-batch is the parameters' snapshot for the next, and waits for its own rows.
        if super_batch >= self.published {
            return Ok(());
        }
        let nodes: Vec<u32> = self.cache.nodes(super_batch)?.nodes().collect();
        let mut read = Vec::new();
        let version = self.cache.read(super_batch, self.step, &nodes, &mut [&mut read])?;
        for (row, node) in read.chunks(2).zip(nodes) {
            assert_eq!(row, [node as f32, version as f32], "the row of node {node} in super-batch {super_batch}");
        }
        let staleness = self.step - version;
        assert!(staleness < 2 * self.n, "step {} reads version {version}, super-batches of {}", self.step, self.n);
        self.largest = self.largest.max(staleness);
        self.step += 1;
        Ok(())
    }
}

fn run(n: u64, bound: u64, faulty: bool, turns: &[bool]) -> Result<u64, Error> {
    let cache = EmbeddingCache::new(vec![2], bound);
    let mut sides = Sides { cache: &cache, n, step: 0, chosen: 0, published: 0, faulty, largest: 0 };
    for &computes in turns {
        if computes { sides.compute() } else { sides.train() }?;
    }
    Ok(sides.largest)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_interleaving_exceeds_the_bound(n in 1u64..9, turns in prop::collection::vec(any::<bool>(), 0..2000)) {
        prop_assert_eq!(run(n, 2 * n - 1, false, &turns).is_ok(), true);
    }
}

/// Both sides in turn.
fn alternating() -> Vec<bool> {
    (0..1000).map(|i| i % 2 == 0).collect()
}

#[test]
fn the_bound_is_reached() {
    assert_eq!(run(4, 7, false, &alternating()), Ok(7));
}

#[test]
fn rows_that_are_too_old_stop_the_run() {
    let stopped = run(4, 7, true, &alternating()).expect_err("rows of a super-batch too early");
    assert_eq!(stopped, Error::Stale { step: 8, version: 0, bound: 7 });
    assert!(stopped.to_string().contains("8 steps old, 7 are allowed"), "{stopped}");
}

#[test]
#[should_panic(expected = "reads version")]
fn without_the_check_the_same_run_reads_stale_rows() {
    let _ = run(4, u64::MAX, true, &alternating());
}

/// A million reads by four threads, beside one that computes; both sides are delayed at random.
#[test]
fn a_million_reads_on_threads_keep_the_bound() {
    let (n, super_batches, readers) = (8, 400, 4);
    let cache = EmbeddingCache::new(vec![2], 2 * n - 1);
    let (snapshots, received) = channel::<(u64, u64)>();
    let reads = AtomicU64::new(0);
    let delay = |at: u64| {
        // Most of the time none, else some hundreds of turns of the scheduler.
        let draw = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
        (0..draw.saturating_sub(4000) * 4).for_each(|_| thread::yield_now());
    };
    thread::scope(|scope| {
        let cache = &cache;
        scope.spawn(move || {
            let publish = |super_batch, version| {
                cache.choose(super_batch, map(super_batch)).expect("in order");
                delay(version + 7);
                cache.publish(super_batch, version, vec![rows(super_batch, version)]).expect("in order");
            };
            publish(0, 0);
            received.iter().for_each(|(super_batch, step)| publish(super_batch + 1, step));
        });
        for step in 0..super_batches * n {
            let super_batch = step / n;
            if step % n == 0 {
                snapshots.send((super_batch, step)).expect("the other side receives");
            }
            thread::scope(|scope| {
                for reader in 0..readers {
                    let reads = &reads;
                    scope.spawn(move || {
                        delay(step * readers + reader);
                        let mut row = Vec::new();
                        for i in 0..80 {
                            let node = ((reader * 80 + i) * 2 + super_batch % 2) as u32 % NODES;
                            let version =
                                cache.read(super_batch, step, &[node], &mut [&mut row]).expect("within the bound");
                            assert_eq!(row, [node as f32, version as f32]);
                            assert!(step - version < 2 * n, "step {step} reads version {version}");
                            reads.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
            });
        }
        drop(snapshots);
    });
    assert!(reads.into_inner() >= 1_000_000);
}
