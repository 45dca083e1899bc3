//! Adjacency lists in a static cache.

use morphgl_graph_store::Topology;
use morphgl_hotness::{coverage, entries_within, hottest_by_byte};
use morphgl_registry::Sampling;
use morphgl_sampler_core::TYPED;

use super::Sampled;

/// The lists of a graph as `morphgl-row-cache` holds them: 4 bytes per neighbour, and 4 for where the list ends.
pub(crate) struct Lists<'a> {
    topology: &'a Topology,
    /// Number of lists with neighbours, and their bytes.
    pub(crate) len: u64,
    pub(crate) bytes: u64,
}

/// Content and hit rate of a cache of a given size.
pub(crate) struct Cached {
    /// Number of cached lists.
    pub(crate) lists: usize,
    pub(crate) bytes: u64,
    pub(crate) hit_rate: f64,
}

impl<'a> Lists<'a> {
    /// The lists of the sampled graph; `None` where blocks are not hops, so that they do not tell which lists were read.
    pub(crate) fn of(sampled: &'a Sampled) -> Option<Self> {
        let topology = &sampled.dataset.topology;
        let mut lists = Self { topology, len: 0, bytes: 0 };
        for v in 0..topology.num_nodes() as u32 {
            let bytes = lists.bytes_of(v);
            lists.len += u64::from(bytes > 0);
            lists.bytes += bytes;
        }
        let sampling = &sampled.settings.sampling;
        (matches!(sampling, Sampling::Neighbor(_)) || sampling.kind() == TYPED.name).then_some(lists)
    }

    /// Bytes of a list; lists without neighbours are not cached.
    fn bytes_of(&self, node: u32) -> u64 {
        match self.topology.degree(node) {
            0 => 0,
            degree => 4 * degree + 4,
        }
    }

    /// The order in which lists are cached, by the scores of nodes.
    pub(crate) fn order(&self, scores: &[f32]) -> Vec<u32> {
        hottest_by_byte(scores, |v| self.bytes_of(v))
    }

    /// Caches of shares of the bytes of all lists, in percent, filled in `order`.
    pub(crate) fn cached(&self, accesses: &[f32], order: &[u32], shares: &[f64]) -> Vec<Cached> {
        let budgets: Vec<u64> = shares.iter().map(|share| (self.bytes as f64 * share / 100.0).round() as u64).collect();
        let entries = entries_within(order, |v| self.bytes_of(v), &budgets);
        let rates = coverage(accesses, order, &entries);
        let cached = entries.into_iter().zip(rates).map(|(entries, hit_rate)| {
            let held = order[..entries].iter().map(|&v| self.bytes_of(v)).filter(|&bytes| bytes > 0);
            let (lists, bytes) = held.fold((0, 0), |(lists, sum), bytes| (lists + 1, sum + bytes));
            Cached { lists, bytes, hit_rate }
        });
        cached.collect()
    }
}
