//! The destinations of negatives.

use std::ops::Range;
use std::sync::Arc;

use morphgl_graph_store::{Topology, Types};
use morphgl_registry::{BatchId, Error, NegativeDistribution, PairSeeds, PairSettings, Result};
use rayon::prelude::*;

use crate::stream::{Row, Stream};
use crate::{MAX_FANOUT, RETRIES, bounded};

/// Retry blocks of each draw.
const RETRY_BLOCKS: u32 = RETRIES / 4;

/// What the destinations of negatives are drawn from.
#[derive(Debug)]
pub(crate) struct Negatives {
    seed: u64,
    num_nodes: u32,
    distribution: NegativeDistribution,
    /// Node types, of which a negative's destination has that of its positive's.
    types: Option<Arc<Types>>,
    /// The node of each draw key, in a reordered graph.
    of_key: Option<Vec<u32>>,
    by_degree: Option<ByDegree>,
}

impl Negatives {
    pub(crate) fn new(topology: &Topology, seeds: &PairSeeds, seed: u64) -> Result<Self> {
        let PairSettings { negatives, distribution, .. } = *seeds.settings();
        if negatives > MAX_FANOUT {
            let what = format!("{negatives} per positive are more than {MAX_FANOUT}; give fewer");
            return Err(Error::setting("negatives", what));
        }
        let drawn = negatives > 0 && distribution != NegativeDistribution::Given;
        let of_key = topology.draw_keys().filter(|_| drawn).map(|keys| {
            let mut of_key = vec![0; keys.len()];
            (0u32..).zip(keys.iter()).for_each(|(node, &key)| of_key[key as usize] = node);
            of_key
        });
        let by_degree = match distribution {
            NegativeDistribution::Degree if negatives > 0 => Some(ByDegree::new(topology, of_key.as_deref())?),
            _ => None,
        };
        let types = topology.types().filter(|_| drawn).cloned();
        let negatives = Self { seed, num_nodes: topology.num_nodes() as u32, distribution, types, of_key, by_degree };
        negatives.check_types(seeds)?;
        Ok(negatives)
    }

    /// Checks that there is a destination of each type to draw.
    fn check_types(&self, seeds: &PairSeeds) -> Result<()> {
        let Some(types) = &self.types else { return Ok(()) };
        let refuse = |what: String| Err(Error::setting("negatives", what));
        let keeps = |(key, &node): (usize, &u32)| types.node_type(key as u32) == types.node_type(node);
        if !self.of_key.iter().all(|of_key| of_key.par_iter().enumerate().all(keeps)) {
            return refuse(
                "the draw keys of a node type are those of others; reorder the graph within its types".into(),
            );
        }
        let mut found: Vec<usize> = Vec::new();
        for &[_, destination] in seeds.ends() {
            let of = types.node_type(destination);
            if !found.contains(&of) {
                found.push(of);
            }
        }
        if self.distribution == NegativeDistribution::InBatch && found.len() > 1 {
            return refuse("the pairs' destinations are of several node types; draw negatives uniformly".into());
        }
        let Some(by_degree) = &self.by_degree else { return Ok(()) };
        match found.iter().find(|&&of| by_degree.total(&types.range(of)) == 0) {
            Some(&of) => {
                let name = &types.node_types()[of].name;
                refuse(format!("no node of type {name:?} has an in-edge; draw negatives uniformly"))
            }
            None => Ok(()),
        }
    }

    /// The draw keys of the nodes that may be drawn for a positive.
    fn candidates(&self, [_, destination]: [u32; 2]) -> Range<u32> {
        self.types.as_ref().map_or(0..self.num_nodes, |types| types.range(types.node_type(destination)))
    }

    pub(crate) fn num_bytes(&self) -> u64 {
        let by_degree = self.by_degree.as_ref().map_or(0, |by| 8 * by.sums.len() + 4 * by.guide.len());
        (by_degree + 4 * self.of_key.as_ref().map_or(0, Vec::len)) as u64
    }

    /// Draws negative `number` of the positive at `positive` of the whole mini-batch `batch`, which has these `positives`, for the
    /// `attempt`-th time.
    pub(crate) fn draw(
        &self,
        batch: BatchId,
        positives: &[[u32; 2]],
        positive: usize,
        number: u32,
        attempt: u32,
    ) -> u32 {
        let row = Row { seed: self.seed, batch, hop: attempt, node: positive as u32, edge_type: 0 };
        let keys = self.candidates(positives[positive]);
        if let Some(by_degree) = &self.by_degree {
            let words = row.block(Stream::Negative, number / 2);
            let first = 2 * (number as usize % 2);
            return self.node(by_degree.key(u64::from(words[first]) | u64::from(words[first + 1]) << 32, keys));
        }
        let (word, retry) = (Self::word(row, number), |r| Self::retry(row, number, r));
        if self.distribution == NegativeDistribution::InBatch && positives.len() > 1 {
            let other = bounded(positives.len() as u32 - 1, word, retry) as usize;
            return positives[other + usize::from(other >= positive)][1];
        }
        self.node(keys.start + bounded(keys.len() as u32, word, retry))
    }

    /// Sets `chosen` to the positions, ascending, of `count` of the negatives that are `given` with the positive at `positive` of the
    /// whole mini-batch `batch`: all of them without a draw, else by Floyd's method as [`pick_uniform`](crate::pick_uniform).
    ///
    /// # Panics
    ///
    /// When fewer are given.
    pub(crate) fn choose(&self, batch: BatchId, positive: usize, given: usize, count: usize, chosen: &mut Vec<u32>) {
        assert!(count <= given, "{count} negatives of {given}");
        chosen.clear();
        if count == given {
            chosen.extend(0..given as u32);
            return;
        }
        let row = Row { seed: self.seed, batch, hop: 0, node: positive as u32, edge_type: 0 };
        for (i, j) in (0u32..).zip((given - count) as u32..given as u32) {
            let drawn = bounded(j + 1, Self::word(row, i), |r| Self::retry(row, i, r));
            match chosen.binary_search(&drawn) {
                // All before `j` are below it.
                Ok(_) => chosen.push(j),
                Err(at) => chosen.insert(at, drawn),
            }
        }
    }

    fn word(row: Row, number: u32) -> u32 {
        row.block(Stream::Negative, number / 4)[number as usize % 4]
    }

    fn retry(row: Row, number: u32, retry: u32) -> u32 {
        row.block(Stream::NegativeRetry, RETRY_BLOCKS * number + retry / 4)[retry as usize % 4]
    }

    fn node(&self, key: u32) -> u32 {
        self.of_key.as_ref().map_or(key, |of_key| of_key[key as usize])
    }
}

/// Draw keys with probabilities proportional to in-degree^0.75.
///
/// Weights are whole numbers, `floor(2^16 · degree^0.75)`, so that sums of them are the same in any order and on any hardware;
/// the power is by square roots, which IEEE 754 rounds exactly. A key is found by a guide table (Chen, Asau 1974).
#[derive(Debug)]
struct ByDegree {
    // Invariant: never decreases; the first is 0, the last is positive.
    /// Sum of the weights of the keys below each, and of all.
    sums: Vec<u64>,
    /// For each of as many equal parts of the last sum as there are keys, the key in which it begins.
    guide: Vec<u32>,
}

impl ByDegree {
    fn new(topology: &Topology, of_key: Option<&[u32]>) -> Result<Self> {
        if topology.num_edges() == 0 {
            let what = "the graph has no edges, so all nodes have in-degree 0; draw negatives uniformly";
            return Err(Error::setting("negatives", what));
        }
        let num_nodes = topology.num_nodes();
        let mut sums = Vec::with_capacity(num_nodes + 1);
        let mut sum = 0;
        sums.push(sum);
        for key in 0..num_nodes as u32 {
            sum += weight(topology.degree(of_key.map_or(key, |of_key| of_key[key as usize])));
            sums.push(sum);
        }
        let mut key = 0;
        let guide = (0..num_nodes).map(|part| {
            let begin = part_begin(part, num_nodes, sum);
            while sums[key as usize + 1] <= begin {
                key += 1;
            }
            key
        });
        let guide = guide.collect();
        Ok(Self { sums, guide })
    }

    /// Sum of the weights of these keys.
    fn total(&self, keys: &Range<u32>) -> u64 {
        self.sums[keys.end as usize] - self.sums[keys.start as usize]
    }

    /// The key at `word / 2^64` of the sum of the weights of `keys`.
    fn key(&self, word: u64, keys: Range<u32>) -> u32 {
        let (total, parts) = (self.sums[self.guide.len()], self.guide.len());
        let at = self.sums[keys.start as usize] + scaled(word, self.total(&keys));
        // The part of `at`, or the one before it.
        let part = (u128::from(at) * parts as u128 / u128::from(total)) as usize;
        let mut key = self.guide[part];
        while self.sums[key as usize + 1] <= at {
            key += 1;
        }
        key
    }
}

/// Where a part of the sum begins, rounded down.
fn part_begin(part: usize, parts: usize, total: u64) -> u64 {
    (part as u128 * u128::from(total) / parts as u128) as u64
}

/// `word / 2^64` of `total`, rounded down.
fn scaled(word: u64, total: u64) -> u64 {
    ((u128::from(word) * u128::from(total)) >> 64) as u64
}

/// `floor(2^16 · degree^0.75)`.
fn weight(degree: u64) -> u64 {
    let root = (degree as f64).sqrt();
    (root * root.sqrt() * 65_536.0) as u64
}
