//! Pairs of nodes as seeds: the edges that link prediction learns from, their negatives, and what is not sampled beside them.

use std::sync::Arc;

use morphgl_graph_store::PairTargets;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The pairs of a mini-batch. Its seeds are their end nodes, each once, by first appearance: source and destination of the first
/// positive, of the second, …, then those of the negatives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BatchPairs {
    /// Number of positives, which come first.
    pub num_positives: usize,
    /// Source and destination of each pair, as local ids of seeds: the positives in order, then the negatives, of which those of
    /// positive `i` are [`BatchPairs::negatives_of`] it.
    pub ends: Vec<[u32; 2]>,
    /// Number of the edge type of each pair, a negative's that of its positive; empty where pairs have no types.
    pub edge_types: Vec<u16>,
}

impl BatchPairs {
    /// Number of negatives of each positive.
    pub fn negatives_per_positive(&self) -> usize {
        (self.ends.len() - self.num_positives).checked_div(self.num_positives).unwrap_or(0)
    }

    /// The positives, in order.
    pub fn positives(&self) -> &[[u32; 2]] {
        &self.ends[..self.num_positives]
    }

    /// The negatives of the positive at position `i`.
    ///
    /// # Panics
    ///
    /// When there is no such positive.
    pub fn negatives_of(&self, i: usize) -> &[[u32; 2]] {
        let (first, count) = (self.num_positives, self.negatives_per_positive());
        &self.ends[first + i * count..first + (i + 1) * count]
    }
}

/// What the destinations of negatives are drawn from. A negative keeps the source of its positive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NegativeDistribution {
    /// All nodes, uniformly.
    #[default]
    Uniform,
    /// All nodes, with probabilities proportional to in-degree^0.75 (word2vec; Mikolov et al., NeurIPS 2013, §2.2).
    Degree,
    /// The destinations of the other positives of the whole mini-batch, uniformly; all nodes where it has one positive.
    InBatch,
    /// The negatives that each pair comes with ([`SeedSet::of_pairs_against`](crate::SeedSet::of_pairs_against)): all of them in
    /// their order, or a choice of fewer, none twice, each equally likely.
    Given,
}

/// How mini-batches of pairs are made, besides the sampling of their end nodes' neighbourhoods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct PairSettings {
    /// Negatives per positive, at most 65,536, and of given ones at most as many as there are. Default 1; with 0 there are none.
    pub negatives: u32,
    /// What their destinations are drawn from. Default uniformly from all nodes.
    pub distribution: NegativeDistribution,
    /// Whether a negative that is an edge of the graph is drawn again, up to [`PairSettings::MAX_TRIES`] times; the last draw stands.
    /// Of pairs with edge types, an edge of its pair's type. Default false.
    pub avoid_edges: bool,
    /// Whether the positives of the whole mini-batch, their parallel edges and their reverses are left out of the graph that its
    /// neighbourhoods are sampled from, so that no prediction reads the edge it predicts. Of pairs with edge types, these are the edges
    /// of the pair's type, and back those of its [reverse](morphgl_graph_store::Types::reverse_of), where there is none by name those of
    /// any type. Default true.
    pub exclude: bool,
}

impl PairSettings {
    /// Maximum number of draws of a negative that avoids edges.
    pub const MAX_TRIES: u32 = 64;
}

impl Default for PairSettings {
    fn default() -> Self {
        Self { negatives: 1, distribution: NegativeDistribution::Uniform, avoid_edges: false, exclude: true }
    }
}

/// The pairs of a seed set ([`SeedSet::of_pairs`](crate::SeedSet::of_pairs)), and how mini-batches are made of them.
#[derive(Debug, Clone, PartialEq)]
pub struct PairSeeds {
    // Invariant: not empty, fewer than 2^32, every node below the `num_nodes` of the constructor.
    pairs: Arc<[[u32; 2]]>,
    // Invariant: as many for each pair, every node below the `num_nodes` of the constructor.
    given: Arc<[u32]>,
    settings: PairSettings,
    // Invariant: a row per pair, where there are any.
    targets: PairTargets,
    // Invariant: one per pair, or empty.
    edge_types: Arc<[u16]>,
}

impl PairSeeds {
    /// Checks the pairs, and the destinations of the negatives `given` with them; `what` names them in errors.
    pub(crate) fn new(
        what: &str,
        (pairs, given): (&[[u32; 2]], &[u32]),
        num_nodes: usize,
        settings: PairSettings,
    ) -> Result<Self> {
        if pairs.is_empty() {
            let cure = "there is no pair; give a graph with edges, or a split with edges in it";
            return Err(Error::setting(what, cure));
        }
        if u32::try_from(pairs.len()).is_err() {
            let what_is = format!("{} pairs are more than 2^32 - 1; give fewer", pairs.len());
            return Err(Error::setting(what, what_is));
        }
        if let Some([from, to]) = pairs.iter().find(|pair| pair.iter().any(|&v| v as usize >= num_nodes)) {
            let cure = "give pairs of this graph's nodes";
            let what_is =
                format!("the pair {from},{to} names a node that does not exist, there are {num_nodes}; {cure}");
            return Err(Error::setting(what, what_is));
        }
        if settings.distribution == NegativeDistribution::InBatch && settings.negatives > 0 && pairs.len() < 2 {
            let cure = "negatives within the mini-batch need two pairs at least; draw them uniformly";
            return Err(Error::setting(what, cure));
        }
        let seeds = Self {
            pairs: pairs.into(),
            given: given.into(),
            settings,
            targets: PairTargets::default(),
            edge_types: Arc::default(),
        };
        seeds.check_given(num_nodes).map_err(|what_is| Error::setting(what, what_is))?;
        Ok(seeds)
    }

    fn check_given(&self, num_nodes: usize) -> std::result::Result<(), String> {
        let Self { pairs, given, settings, .. } = self;
        if !given.len().is_multiple_of(pairs.len()) {
            let counts = format!("{} negatives of {} pairs", given.len(), pairs.len());
            return Err(format!("{counts} are not as many for each; give as many for each pair"));
        }
        if let Some(node) = given.iter().find(|&&node| node as usize >= num_nodes) {
            return Err(format!("a negative has the destination {node}, and there are {num_nodes} nodes; correct it"));
        }
        let per_pair = given.len() / pairs.len();
        match settings {
            PairSettings { distribution: NegativeDistribution::Given, avoid_edges: true, .. } => {
                Err("given negatives are not drawn again where they are edges; leave out --avoid-edges".into())
            }
            &PairSettings { distribution: NegativeDistribution::Given, negatives, .. }
                if negatives as usize > per_pair =>
            {
                let cure = "give fewer, or draw them (--negative-distribution uniform)";
                Err(match per_pair {
                    0 => "no negatives are given with them; import them (--train-negatives FILE), or draw them \
                          (--negative-distribution uniform)"
                        .into(),
                    _ => format!(
                        "{negatives} negatives per positive are more than the {per_pair} that are given; {cure}"
                    ),
                })
            }
            _ => Ok(()),
        }
    }

    /// Gives the pairs targets; `what` names them in errors.
    pub(crate) fn with_targets(self, what: &str, targets: PairTargets) -> Result<Self> {
        let num_pairs = self.pairs.len();
        if let Some(rows) = targets.num_rows().into_iter().flatten().find(|rows| *rows != num_pairs) {
            let what_is = format!("it has targets of {rows} pairs, there are {num_pairs}; give every pair its own");
            return Err(Error::setting(what, what_is));
        }
        if self.settings.negatives > 0 && !targets.is_empty() {
            let cure = "its pairs have targets, and negatives have none; draw none";
            return Err(Error::setting(what, cure));
        }
        Ok(Self { targets, ..self })
    }

    /// Gives each pair an edge type by its number; `what` names them in errors.
    pub(crate) fn with_edge_types(self, what: &str, edge_types: &[u16]) -> Result<Self> {
        let (types, num_pairs) = (edge_types.len(), self.pairs.len());
        if types != num_pairs {
            let what_is = format!("it has edge types of {types} pairs, there are {num_pairs}; give every pair its own");
            return Err(Error::setting(what, what_is));
        }
        Ok(Self { edge_types: edge_types.into(), ..self })
    }

    /// Number of the edge type of each pair, in the order of the pairs; empty where they have none.
    pub fn edge_types(&self) -> &[u16] {
        &self.edge_types
    }

    /// What is to be predicted of each pair; empty where it is whether a pair exists.
    pub fn targets(&self) -> &PairTargets {
        &self.targets
    }

    /// Source and destination of each pair, in the order given, repeats included.
    pub fn ends(&self) -> &[[u32; 2]] {
        &self.pairs
    }

    /// Number of negatives that are given with each pair.
    pub fn num_given(&self) -> usize {
        self.given.len() / self.pairs.len()
    }

    /// Destinations of the negatives that are given with the pair at position `pair`.
    ///
    /// # Panics
    ///
    /// When there is no such pair.
    pub fn given_of(&self, pair: usize) -> &[u32] {
        let count = self.num_given();
        &self.given[pair * count..(pair + 1) * count]
    }

    /// Destinations of all negatives that are given, as many for each pair, in the order of the pairs.
    pub fn given(&self) -> &[u32] {
        &self.given
    }

    /// How mini-batches are made of them.
    pub fn settings(&self) -> &PairSettings {
        &self.settings
    }
}
