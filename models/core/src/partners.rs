//! Pairs of a source with every node: the best partners, and the rank of a known one.

use std::ops::Range;

use rayon::prelude::*;

use crate::all_pairs::{Candidates, PairScore, TargetRank, rank_of_targets};
use crate::decoder::{Decoder, Scorer};

/// Sources that a task scores against the same nodes.
const SOURCES: usize = 16;
/// Nodes whose embeddings stay in the caches meanwhile.
const NODES: usize = 256;
/// Partners that are gathered before the best of them are chosen, at least.
const LEAST: usize = 32;
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
    /// The `k` candidates of the highest scores with each source, highest first, of equal ones the lowest node first: never the source
    /// itself nor its known targets. There are fewer where no more nodes are left; a score that is NaN is below all others.
    ///
    /// # Panics
    ///
    /// As [`Decoder::scores`].
    ///
    /// # Complexity
    ///
    /// O(sources · nodes · width) time on the threads of the current rayon pool, 16 bytes for each partner; for [`Decoder::Mlp`] two
    /// matrices like the embeddings besides.
    pub fn best_partners(
        self,
        (embeddings, width): (&[f32], usize),
        parameters: &[f32],
        sources: &[u32],
        k: usize,
        candidates: &Candidates<'_>,
    ) -> Vec<Vec<Partner>> {
        let Range { start, end } = candidates.nodes;
        let scorer = self.scorer((embeddings, width, 1), parameters);
        let of_sources = |sources: &[u32]| {
            let mut best = vec![Best { k, partners: Vec::new(), worst: None }; sources.len()];
            let mut scores = [0.0; NODES];
            for first in (start..end).step_by(NODES) {
                let last = end.min(first + NODES as u32);
                let scores = &mut scores[..(last - first) as usize];
                for (&source, best) in sources.iter().zip(&mut best) {
                    scorer.scores(source, first, scores);
                    best.add(source, first, scores, candidates.known(source));
                }
            }
            best.into_iter().map(Best::finish).collect::<Vec<_>>()
        };
        sources.par_chunks(SOURCES).flat_map_iter(of_sources).collect()
    }

    /// The rank of each pair's target among the candidates but the known targets of its source, as
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
        candidates: &Candidates<'_>,
    ) -> Vec<TargetRank> {
        match self {
            Decoder::Dot => rank_of_targets(embeddings, width, pairs, PairScore::Dot, candidates, PACKED),
            Decoder::DistMult => {
                rank_of_targets(embeddings, width, pairs, PairScore::DistMult(parameters), candidates, PACKED)
            }
            Decoder::Mlp => {
                let scorer = self.scorer((embeddings, width, 1), parameters);
                pairs.par_iter().map(|&pair| rank(&scorer, pair, candidates)).collect()
            }
        }
    }
}

fn rank(scorer: &Scorer<'_>, [source, target]: [u32; 2], candidates: &Candidates<'_>) -> TargetRank {
    let (own, known) = (scorer.score([source, target]), candidates.known(source));
    let candidates = candidates.nodes.clone().filter(|v| *v != target && known.binary_search(v).is_err());
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
    // Invariant: has the `k` best ones, and at most as many others.
    partners: Vec<Partner>,
    /// The score of the worst of `k` partners: nodes from now on, whose numbers are higher, have to score more.
    worst: Option<f32>,
}

impl Best {
    /// Adds the nodes from `first` on, whose scores with the source these are.
    fn add(&mut self, source: u32, first: u32, scores: &[f32], known: &[u32]) {
        for (node, &score) in (first..).zip(scores) {
            // Almost all nodes are left out here.
            if self.worst.is_some_and(|worst| score <= worst || score.is_nan()) {
                continue;
            }
            if node == source || known.binary_search(&node).is_ok() {
                continue;
            }
            self.partners.push(Partner { node, score });
            if self.partners.len() >= 2 * self.k.max(LEAST) {
                self.shrink();
            }
        }
    }

    /// Keeps the best ones alone.
    fn shrink(&mut self) {
        if self.k < self.partners.len() {
            self.partners.select_nth_unstable_by(self.k, Partner::order);
            self.partners.truncate(self.k);
        }
        let scores = self.partners.iter().map(|partner| partner.score);
        let worst = scores.min_by(|a, b| Partner::key(*a).total_cmp(&Partner::key(*b)));
        // One that is NaN is below all others.
        self.worst = worst.filter(|score| self.partners.len() == self.k && !score.is_nan());
    }

    fn finish(mut self) -> Vec<Partner> {
        self.shrink();
        self.partners.sort_unstable_by(Partner::order);
        self.partners
    }
}

impl Partner {
    /// The order of partners: by descending score, of equal ones by ascending node; one that is NaN comes last.
    pub fn order(&self, other: &Self) -> std::cmp::Ordering {
        Self::key(other.score).total_cmp(&Self::key(self.score)).then(self.node.cmp(&other.node))
    }

    fn key(score: f32) -> f32 {
        if score.is_nan() { f32::NEG_INFINITY } else { score + 0.0 }
    }
}

#[cfg(test)]
mod tests;
