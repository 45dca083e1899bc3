//! The dynamic cache against models of its policies, within its budget, and under many threads.

use std::sync::atomic::{AtomicU64, Ordering};

use morphgl_row_cache::{DynamicCache, Eviction};
use proptest::prelude::*;

/// A policy written down as its paper has it: nodes from the newest to the oldest, with SIEVE's marks.
struct Model {
    eviction: Eviction,
    nodes: Vec<(u32, bool)>,
    /// SIEVE's hand: the node it stands at.
    hand: Option<u32>,
    capacity: usize,
}

impl Model {
    fn get(&mut self, node: u32) -> bool {
        let Some(at) = self.nodes.iter().position(|&(n, _)| n == node) else { return false };
        match self.eviction {
            Eviction::Sieve => self.nodes[at].1 = true,
            Eviction::Lru => {
                let entry = self.nodes.remove(at);
                self.nodes.insert(0, entry);
            }
        }
        true
    }

    /// Inserts a node that is not cached.
    fn insert(&mut self, node: u32) {
        if self.nodes.len() == self.capacity {
            let last = self.nodes.len() - 1;
            let mut at = last;
            if self.eviction == Eviction::Sieve {
                at = self.hand.map_or(last, |hand| self.nodes.iter().position(|&(n, _)| n == hand).expect("cached"));
                while self.nodes[at].1 {
                    self.nodes[at].1 = false;
                    at = if at == 0 { last } else { at - 1 };
                }
                self.hand = at.checked_sub(1).map(|newer| self.nodes[newer].0);
            }
            self.nodes.remove(at);
        }
        self.nodes.insert(0, (node, false));
    }
}

/// A row that tells node and version in every byte of every word.
fn row(node: u32, version: u32, out: &mut [u8]) {
    let mut state = u64::from(node) << 32 | u64::from(version);
    for chunk in out.chunks_mut(8) {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        chunk.copy_from_slice(&(state ^ state >> 33).to_le_bytes()[..chunk.len()]);
    }
}

/// A budget for exactly `rows` rows in one shard.
fn budget(eviction: Eviction, row_bytes: usize, rows: usize) -> u64 {
    (0..).find(|&bytes| DynamicCache::new(eviction, row_bytes, bytes, 1).max_rows() == rows).expect("some budget")
}

fn eviction() -> impl Strategy<Value = Eviction> {
    prop::sample::select(vec![Eviction::Lru, Eviction::Sieve])
}

proptest! {
    #[test]
    fn one_shard_evicts_as_the_policy_says(
        eviction in eviction(), capacity in 1usize..20, row_bytes in 0usize..20,
        nodes in prop::collection::vec(0u32..40, 0..400),
    ) {
        let cache = DynamicCache::new(eviction, row_bytes, budget(eviction, row_bytes, capacity), 1);
        let mut model = Model { eviction, nodes: Vec::new(), hand: None, capacity };
        let (mut out, mut expected) = (vec![0; row_bytes], vec![0; row_bytes]);
        for node in nodes {
            row(node, 0, &mut expected);
            let hit = cache.get_into(node, &mut out);
            prop_assert_eq!(hit, model.get(node), "node {} of {:?}", node, model.nodes);
            if hit {
                prop_assert_eq!(&out, &expected);
            } else {
                prop_assert!(cache.insert(node, &expected));
                model.insert(node);
            }
        }
    }

    #[test]
    fn the_budget_holds_and_is_used(
        eviction in eviction(), row_bytes in 0usize..700, budget in 0u64..3_000_000, shards in 1usize..40,
    ) {
        let cache = DynamicCache::new(eviction, row_bytes, budget, shards);
        prop_assert!(cache.num_bytes() <= budget, "{} of {budget} bytes: {cache:?}", cache.num_bytes());
        // What is left is less than a row in each shard, and a little for rounding.
        let left = budget - cache.num_bytes();
        prop_assert!(cache.max_rows() == 0 && left < 1000 || left <= (shards * (row_bytes + 60)) as u64, "{left} left");
    }

    #[test]
    fn a_row_that_is_inserted_again_is_replaced(eviction in eviction(), versions in prop::collection::vec(0u32..9, 1..50)) {
        let cache = DynamicCache::new(eviction, 12, 1 << 16, 4);
        let (mut out, mut expected) = ([0; 12], [0; 12]);
        for version in versions {
            row(7, version, &mut expected);
            prop_assert!(cache.insert(7, &expected) && cache.get_into(7, &mut out));
            prop_assert_eq!(out, expected);
        }
    }
}

/// Hits of `nodes`, each inserted when it is missed, in 100 rows.
fn hits(eviction: Eviction, nodes: impl Iterator<Item = u32>) -> usize {
    let cache = DynamicCache::new(eviction, 8, budget(eviction, 8, 100), 1);
    let mut out = [0; 8];
    nodes.filter(|&node| cache.get_into(node, &mut out) || !cache.insert(node, &u64::from(node).to_le_bytes())).count()
}

#[test]
fn lru_follows_a_hot_set_that_moves() {
    // 60 nodes over and over, then 60 others: only the first access of each misses.
    let moving = || (0..30_000u32).map(|i| i / 10_000 * 1000 + i % 60);
    assert_eq!(hits(Eviction::Lru, moving()), 30_000 - 3 * 60);
    assert!(hits(Eviction::Sieve, moving()) < 29_000, "SIEVE holds on to what was hit before, as its paper has it");
}

#[test]
fn the_least_budget_holds_one_row() {
    for (eviction, row_bytes) in
        [(Eviction::Lru, 1), (Eviction::Lru, 400), (Eviction::Sieve, 7), (Eviction::Sieve, 512)]
    {
        let least = DynamicCache::num_bytes_of(eviction, 1, row_bytes);
        let rows = |budget| DynamicCache::new(eviction, row_bytes, budget, 4).max_rows();
        assert_eq!((rows(least - 1), rows(least)), (0, 1), "{eviction:?}, rows of {row_bytes} bytes");
    }
}

#[test]
fn sieve_keeps_the_hot_rows_of_skewed_access() {
    let mut state = 1u64;
    let mut draw = || {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (state >> 33) as f64 / (1u64 << 31) as f64
    };
    // Rank r of 2,000 with probability in proportion to 1 / r.
    let skewed: Vec<u32> = (0..100_000).map(|_| 2000f64.powf(draw()) as u32).collect();
    let [lru, sieve] = [Eviction::Lru, Eviction::Sieve].map(|eviction| hits(eviction, skewed.iter().copied()));
    assert!(sieve > lru + 3000 && sieve < 75_000, "{sieve} hits by SIEVE, {lru} by LRU");
}

#[test]
fn eight_threads_read_whole_rows_of_the_right_node() {
    const ROW: usize = 52;
    for (eviction, rows, shards) in [(Eviction::Sieve, 40, 1), (Eviction::Lru, 40, 1), (Eviction::Sieve, 2000, 8)] {
        let cache = DynamicCache::new(eviction, ROW, budget_of_many(eviction, ROW, rows), shards);
        let hits = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let (cache, hits) = (&cache, &hits);
                scope.spawn(move || {
                    let (mut out, mut expected, mut found) = ([0; ROW], [0; ROW], 0);
                    let mut state = thread + 1;
                    for _ in 0..50_000 {
                        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
                        let node = ((state >> 40) % (2 * rows as u64)) as u32;
                        let version = (state >> 33) as u32 % 4;
                        if cache.get_into(node, &mut out) {
                            let whole = (0..4).any(|version| {
                                row(node, version, &mut expected);
                                out == expected
                            });
                            assert!(whole, "{eviction:?}: the row of node {node} is torn, or another's: {out:?}");
                            found += 1;
                        }
                        if version == 0 || state >> 63 == 0 {
                            row(node, version, &mut expected);
                            cache.insert(node, &expected);
                        }
                    }
                    hits.fetch_add(found, Ordering::Relaxed);
                });
            }
        });
        assert!(hits.into_inner() > 10_000, "{eviction:?}: rows are found");
        // No slot was lost: as many rows as ever are cached at once.
        let mut out = [0; ROW];
        (0..40 * rows as u32).for_each(|node| assert!(cache.insert(node, &out)));
        let cached = (0..40 * rows as u32).filter(|&node| cache.get_into(node, &mut out)).count();
        assert_eq!(cached, cache.max_rows(), "{cache:?}");
    }
}

fn budget_of_many(eviction: Eviction, row_bytes: usize, rows: usize) -> u64 {
    rows as u64 * (budget(eviction, row_bytes, 11) - budget(eviction, row_bytes, 10) + 2)
}
