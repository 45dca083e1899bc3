//! Pairs of nodes that link prediction trains on and is scored by.

use std::borrow::Cow;

use rayon::prelude::*;

use crate::check::{self, Fault};
use crate::{Array, Topology};

/// Pairs of link prediction: [source, target] one after another, as numbers of nodes.
///
/// The graph itself is what messages pass along. Pairs to validate and test on are usually not among its edges.
#[derive(Debug, Clone, PartialEq)]
pub struct EdgeSplits {
    /// Pairs to train on; `None`: those of [`EdgeSplits::train_pairs`], which are the graph's edges.
    pub train: Option<Array<u32>>,
    /// Pairs to validate on: links that exist.
    pub valid: Array<u32>,
    /// Pairs to test on: links that exist.
    pub test: Array<u32>,
    /// Pairs that do not exist, which the validation pairs are ranked against; `None` where they are to be drawn.
    pub valid_negatives: Option<Array<u32>>,
    /// Pairs that do not exist, which the test pairs are ranked against; `None` where they are to be drawn.
    pub test_negatives: Option<Array<u32>>,
}

impl Default for EdgeSplits {
    /// Every edge of the graph to train on, and none else.
    fn default() -> Self {
        let none = || Vec::new().into();
        Self { train: None, valid: none(), test: none(), valid_negatives: None, test_negatives: None }
    }
}

impl EdgeSplits {
    /// Names of the arrays of a dataset, in the order of [`EdgeSplits::arrays`].
    pub const ARRAYS: [&str; 5] =
        ["train_edges", "valid_edges", "test_edges", "valid_edges_negatives", "test_edges_negatives"];

    /// The arrays as a dataset stores them; `None` for those that it does not have.
    pub fn arrays(&self) -> [Option<&Array<u32>>; 5] {
        let present = |pairs| Some(pairs).filter(|pairs: &&Array<u32>| !pairs.is_empty());
        let Self { train, valid, test, valid_negatives, test_negatives } = self;
        [train.as_ref(), present(valid), present(test), valid_negatives.as_ref(), test_negatives.as_ref()]
    }

    /// The splits of the arrays of [`EdgeSplits::arrays`].
    pub(crate) fn of_arrays([train, valid, test, valid_negatives, test_negatives]: [Option<Array<u32>>; 5]) -> Self {
        let or_none = |pairs: Option<Array<u32>>| pairs.unwrap_or_else(|| Vec::new().into());
        Self { train, valid: or_none(valid), test: or_none(test), valid_negatives, test_negatives }
    }

    /// Whether the dataset names no pairs: there is nothing to validate and test on.
    pub fn is_empty(&self) -> bool {
        self.arrays().iter().all(Option::is_none)
    }

    /// Validation pairs.
    ///
    /// # Panics
    ///
    /// When a node has no partner, which [`EdgeSplits::check`] refuses. So do the other accessors.
    pub fn valid_pairs(&self) -> &[[u32; 2]] {
        pairs(&self.valid)
    }

    /// Test pairs.
    pub fn test_pairs(&self) -> &[[u32; 2]] {
        pairs(&self.test)
    }

    /// Negatives of the validation pairs; none where they are to be drawn.
    pub fn valid_negative_pairs(&self) -> &[[u32; 2]] {
        self.valid_negatives.as_deref().map_or(&[], pairs)
    }

    /// Negatives of the test pairs; none where they are to be drawn.
    pub fn test_negative_pairs(&self) -> &[[u32; 2]] {
        self.test_negatives.as_deref().map_or(&[], pairs)
    }

    /// Pairs to train on: those given, or else every edge of `topology` but its self-loops. Of a symmetric graph
    /// ([`Topology::is_symmetric`]) each undirected edge is taken once, with source < target.
    ///
    /// The order is that of targets, and of the row within a target; both, and "source < target", go by the draw keys, so that a
    /// reordered graph has the same pairs at the same positions.
    ///
    /// # Complexity
    ///
    /// O(1) where pairs are given; else O(nodes + edges) time on the threads of the current rayon pool, and 16 bytes of memory per
    /// edge, of which 8 per pair remain.
    pub fn train_pairs<'a>(&'a self, topology: &Topology) -> Cow<'a, [[u32; 2]]> {
        if let Some(train) = &self.train {
            return Cow::Borrowed(pairs(train));
        }
        let symmetric = topology.is_symmetric();
        let of_key = topology.draw_keys().map(|keys| {
            let mut of_key = vec![0u32; keys.len()];
            (0u32..).zip(keys.iter()).for_each(|(node, &key)| of_key[key as usize] = node);
            of_key
        });
        let row = |key: usize| {
            let target = of_key.as_ref().map_or(key as u32, |of_key| of_key[key]);
            let sources = topology.neighbors(target).iter().copied();
            let taken = move |&source: &u32| {
                source != target && (!symmetric || topology.draw_key(source) < topology.draw_key(target))
            };
            sources.filter(taken).map(move |source| [source, target])
        };
        Cow::Owned((0..topology.num_nodes()).into_par_iter().with_min_len(1 << 10).flat_map_iter(row).collect())
    }

    /// Checks the pairs of a graph of `num_nodes` nodes, as [`Dataset::open`](crate::Dataset::open) does.
    ///
    /// # Errors
    ///
    /// A description of the first node that does not exist or has no partner, or of negatives without positives.
    pub fn check(&self, num_nodes: usize) -> Result<(), String> {
        self.check_arrays(num_nodes).map_err(Fault::describe)
    }

    pub(crate) fn check_arrays(&self, num_nodes: usize) -> Result<(), Fault> {
        let arrays = Self::ARRAYS.into_iter().zip(self.arrays());
        arrays.filter_map(|(name, nodes)| nodes.map(|nodes| (name, nodes))).try_for_each(|(name, nodes)| {
            if !nodes.len().is_multiple_of(2) {
                return Err(Fault::new(name, nodes.len() - 1, "the last node has no partner".into()));
            }
            check::exist(name, nodes, num_nodes)
        })?;
        let orphans = [(&self.valid, &self.valid_negatives), (&self.test, &self.test_negatives)];
        match orphans
            .into_iter()
            .zip(3..)
            .find(|((positives, negatives), _)| positives.is_empty() && negatives.is_some())
        {
            None => Ok(()),
            Some((_, array)) => Err(Fault::new(Self::ARRAYS[array], 0, "negatives of no pairs".into())),
        }
    }
}

/// Number of negatives of each pair, where the negatives belong to one pair each, as those of ogbl-citation2 do: as many for every
/// pair, in the order of `pairs`, and of its source. `None` for a list that all pairs share, as that of ogbl-collab.
///
/// O(negatives) time.
pub fn negatives_per_pair(pairs: &[[u32; 2]], negatives: &[[u32; 2]]) -> Option<usize> {
    if pairs.is_empty() || negatives.is_empty() || !negatives.len().is_multiple_of(pairs.len()) {
        return None;
    }
    let count = negatives.len() / pairs.len();
    let own = |(pair, of_pair): (&[u32; 2], &[[u32; 2]])| of_pair.iter().all(|negative| negative[0] == pair[0]);
    pairs.iter().zip(negatives.chunks(count)).all(own).then_some(count)
}

/// The pairs of a flat array.
fn pairs(nodes: &[u32]) -> &[[u32; 2]] {
    bytemuck::cast_slice(nodes)
}

#[cfg(test)]
mod tests;
