//! The destinations of negatives.

use morphgl_graph_store::Topology;
use morphgl_registry::{BatchId, Error, NegativeDistribution, PairSettings, Result};

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
    /// The node of each draw key, in a reordered graph.
    of_key: Option<Vec<u32>>,
    by_degree: Option<ByDegree>,
}

impl Negatives {
    pub(crate) fn new(topology: &Topology, settings: &PairSettings, seed: u64) -> Result<Self> {
        let PairSettings { negatives, distribution, .. } = *settings;
        if negatives > MAX_FANOUT {
            let what = format!("{negatives} per positive are more than {MAX_FANOUT}; give fewer");
            return Err(Error::setting("negatives", what));
        }
        let of_key = topology.draw_keys().filter(|_| negatives > 0).map(|keys| {
            let mut of_key = vec![0; keys.len()];
            (0u32..).zip(keys.iter()).for_each(|(node, &key)| of_key[key as usize] = node);
            of_key
        });
        let by_degree = match distribution {
            NegativeDistribution::Degree if negatives > 0 => Some(ByDegree::new(topology, of_key.as_deref())?),
            _ => None,
        };
        Ok(Self { seed, num_nodes: topology.num_nodes() as u32, distribution, of_key, by_degree })
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
        if let Some(by_degree) = &self.by_degree {
            let words = row.block(Stream::Negative, number / 2);
            let first = 2 * (number as usize % 2);
            return self.node(by_degree.key(u64::from(words[first]) | u64::from(words[first + 1]) << 32));
        }
        let word = row.block(Stream::Negative, number / 4)[number as usize % 4];
        let retry = |r: u32| row.block(Stream::NegativeRetry, RETRY_BLOCKS * number + r / 4)[r as usize % 4];
        if self.distribution == NegativeDistribution::InBatch && positives.len() > 1 {
            let other = bounded(positives.len() as u32 - 1, word, retry) as usize;
            return positives[other + usize::from(other >= positive)][1];
        }
        self.node(bounded(self.num_nodes, word, retry))
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

    /// The key at `word / 2^64` of the sum of weights.
    fn key(&self, word: u64) -> u32 {
        let (total, parts) = (self.sums[self.guide.len()], self.guide.len());
        let at = scaled(word, total);
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
