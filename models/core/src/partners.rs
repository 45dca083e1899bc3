//! Pairs of a source with every node: the best partners, and the rank of a known one.

use rayon::prelude::*;

use crate::all_pairs::{KnownPairs, PairScore, TargetRank, rank_of_targets};
use crate::decoder::{Decoder, Scorer};

/// Sources that a task scores against the same nodes.
const SOURCES: usize = 16;
/// Nodes whose embeddings stay in the caches meanwhile.
const NODES: usize = 256;
/// Bytes of packed embeddings in [`Decoder::ranks`].
const PACKED: usize = 64 << 20;

/// A node, and the score of its pair with a source.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Partner {
    /// The node.
    pub node: u32,
    /// The score as of [`Decoder::scores`].
    pub score: f32,
}

impl Decoder {
    /// The `k` nodes of the highest scores with each source, highest first, of equal ones the lowest node first: never the source
    /// itself nor its `known` targets. There are fewer where no more nodes are left; a score that is NaN is below all others.
    ///
    /// # Panics
    ///
    /// As [`Decoder::scores`].
    ///
    /// # Complexity
    ///
    /// O(sources · nodes · width) time on the threads of the current rayon pool, 8 bytes for each partner; for [`Decoder::Mlp`] two
    /// matrices like the embeddings besides.
    pub fn best_partners(
        self,
        (embeddings, width): (&[f32], usize),
        parameters: &[f32],
        sources: &[u32],
        k: usize,
        known: Option<&KnownPairs>,
    ) -> Vec<Vec<Partner>> {
        let num_nodes = (embeddings.len() / width.max(1)) as u32;
        let scorer = self.scorer((embeddings, width, 1), parameters);
        let of_sources = |sources: &[u32]| {
            let mut best = vec![Best { k, partners: Vec::new() }; sources.len()];
            for first in (0..num_nodes).step_by(NODES) {
                let last = num_nodes.min(first + NODES as u32);
                for (&source, best) in sources.iter().zip(&mut best) {
                    best.add(&scorer, source, first..last, known.map_or(&[], |known| known.targets(source)));
                }
            }
            best.into_iter().map(Best::finish).collect::<Vec<_>>()
        };
        sources.par_chunks(SOURCES).flat_map_iter(of_sources).collect()
    }

    /// The rank of each pair's target among all nodes but the `known` targets of its source, as
    /// [`rank_of_targets`] defines it, for any decoder.
    ///
    /// # Panics
    ///
    /// As [`Decoder::scores`].
    ///
    /// # Complexity
    ///
    /// O(pairs · nodes · width) time.
    pub fn ranks(
        self,
        (embeddings, width): (&[f32], usize),
        parameters: &[f32],
        pairs: &[[u32; 2]],
        known: Option<&KnownPairs>,
    ) -> Vec<TargetRank> {
        match self {
            Decoder::Dot => rank_of_targets(embeddings, width, pairs, PairScore::Dot, known, PACKED),
            Decoder::DistMult => {
                rank_of_targets(embeddings, width, pairs, PairScore::DistMult(parameters), known, PACKED)
            }
            Decoder::Mlp => {
                let num_nodes = (embeddings.len() / width.max(1)) as u32;
                let scorer = self.scorer((embeddings, width, 1), parameters);
                let known = |source| known.map_or(&[][..], |known| known.targets(source));
                pairs.par_iter().map(|&pair| rank(&scorer, num_nodes, pair, known(pair[0]))).collect()
            }
        }
    }
}

fn rank(scorer: &Scorer<'_>, num_nodes: u32, [source, target]: [u32; 2], known: &[u32]) -> TargetRank {
    let own = scorer.score([source, target]);
    let candidates = (0..num_nodes).filter(|v| *v != target && known.binary_search(v).is_err());
    candidates.fold(TargetRank::default(), |rank, v| {
        let score = scorer.score([source, v]);
        // A target without a score is behind all candidates.
        TargetRank {
            above: rank.above + u32::from(score > own || own.is_nan()),
            equal: rank.equal + u32::from(score == own),
        }
    })
}

/// The `k` best partners of a source among the nodes so far, in any order.
#[derive(Debug, Clone)]
struct Best {
    k: usize,
    partners: Vec<Partner>,
}

impl Best {
    fn add(&mut self, scorer: &Scorer<'_>, source: u32, nodes: std::ops::Range<u32>, known: &[u32]) {
        let others = nodes.filter(|&v| v != source && known.binary_search(&v).is_err());
        self.partners.extend(others.map(|node| Partner { node, score: scorer.score([source, node]) }));
        self.shrink();
    }

    /// Keeps the best ones alone.
    fn shrink(&mut self) {
        if self.k < self.partners.len() {
            self.partners.select_nth_unstable_by(self.k, Partner::order);
            self.partners.truncate(self.k);
        }
    }

    fn finish(mut self) -> Vec<Partner> {
        self.partners.sort_unstable_by(Partner::order);
        self.partners
    }
}

impl Partner {
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        let key = |partner: &Self| if partner.score.is_nan() { f32::NEG_INFINITY } else { partner.score + 0.0 };
        key(other).total_cmp(&key(self)).then(self.node.cmp(&other.node))
    }
}

#[cfg(test)]
mod tests;
