//! Pairs of nodes that link prediction, and tasks on edges, train on and are scored by.

use std::borrow::Cow;

use rayon::prelude::*;

use crate::check::{self, Fault};
use crate::{Array, TargetMatrix, Topology};

/// Pairs of nodes: [source, target] one after another, as numbers of nodes. They are links to be told from others, or edges whose
/// class, labels or values are to be predicted.
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
    /// What is to be predicted of the training, validation and test pairs, where edges are labelled.
    pub targets: [PairTargets; 3],
}

/// What is to be predicted of the pairs of a split, a row per pair.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PairTargets {
    /// Class of each pair, -1 for none.
    pub labels: Option<Array<i32>>,
    /// Values of each pair, or several labels as 0 and 1; NaN where unknown.
    pub values: Option<TargetMatrix>,
}

impl PairTargets {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_none() && self.values.is_none()
    }

    /// Number of values of a pair, 0 without.
    pub fn dim(&self) -> usize {
        self.values.as_ref().map_or(0, TargetMatrix::dim)
    }

    /// Number of rows of labels and of values, where there are any.
    pub fn num_rows(&self) -> [Option<usize>; 2] {
        [self.labels.as_ref().map(|labels| labels.len()), self.values.as_ref().map(TargetMatrix::num_rows)]
    }
}

impl Default for EdgeSplits {
    /// Every edge of the graph to train on, and none else.
    fn default() -> Self {
        let none = || Vec::new().into();
        let targets = Default::default();
        Self { train: None, valid: none(), test: none(), valid_negatives: None, test_negatives: None, targets }
    }
}

impl EdgeSplits {
    /// Names of the arrays of a dataset, in the order of [`EdgeSplits::arrays`].
    pub const ARRAYS: [&str; 5] =
        ["train_edges", "valid_edges", "test_edges", "valid_edges_negatives", "test_edges_negatives"];

    /// Names of the arrays of classes and of values of the pairs of [`EdgeSplits::ARRAYS`]' first three, of each.
    pub const TARGET_ARRAYS: [[&str; 2]; 3] = [
        ["train_edges_labels", "train_edges_targets"],
        ["valid_edges_labels", "valid_edges_targets"],
        ["test_edges_labels", "test_edges_targets"],
    ];

    /// The arrays as a dataset stores them; `None` for those that it does not have.
    pub fn arrays(&self) -> [Option<&Array<u32>>; 5] {
        let present = |pairs| Some(pairs).filter(|pairs: &&Array<u32>| !pairs.is_empty());
        let Self { train, valid, test, valid_negatives, test_negatives, .. } = self;
        [train.as_ref(), present(valid), present(test), valid_negatives.as_ref(), test_negatives.as_ref()]
    }

    /// The splits of the arrays of [`EdgeSplits::arrays`], whose pairs have these targets.
    pub(crate) fn of_arrays(
        [train, valid, test, valid_negatives, test_negatives]: [Option<Array<u32>>; 5],
        targets: [PairTargets; 3],
    ) -> Self {
        let or_none = |pairs: Option<Array<u32>>| pairs.unwrap_or_else(|| Vec::new().into());
        Self { train, valid: or_none(valid), test: or_none(test), valid_negatives, test_negatives, targets }
    }

    /// Number of classes of pairs: the highest of any split plus one; 0 without labels.
    pub fn num_classes(&self) -> usize {
        let labels = self.targets.iter().filter_map(|targets| targets.labels.as_ref());
        labels.flat_map(|labels| labels.iter()).max().map_or(0, |&label| (label + 1) as usize)
    }

    /// Number of values of a pair, 0 without.
    pub fn target_dim(&self) -> usize {
        self.targets.iter().map(PairTargets::dim).max().unwrap_or(0)
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
    /// A description of the first node that does not exist or has no partner, of negatives without positives, or of targets that do
    /// not fit the pairs or one another.
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
        self.check_targets()?;
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

impl EdgeSplits {
    /// Checks that every pair has as many targets, and the values of classes.
    fn check_targets(&self) -> Result<(), Fault> {
        let of_split = [self.train.as_deref().unwrap_or_default(), &self.valid, &self.test];
        let dim = self.target_dim();
        for ((targets, pairs), names) in self.targets.iter().zip(of_split).zip(Self::TARGET_ARRAYS) {
            let fault = |array, element, what| Err(Fault::new(array, element, what));
            let num_pairs = pairs.len() / 2;
            for (name, rows) in names.into_iter().zip(targets.num_rows()) {
                if let Some(rows) = rows.filter(|&rows| rows != num_pairs) {
                    return fault(name, 0, format!("it has {rows} rows, and there are {num_pairs} pairs"));
                }
            }
            if let Some(labels) = &targets.labels
                && let Some(at) = labels.iter().position(|&label| label < -1 || label == i32::MAX)
            {
                return fault(names[0], at, format!("the label is {}, neither -1 (none) nor a class", labels[at]));
            }
            if let Some(values) = &targets.values {
                if values.dim() != dim {
                    return fault(
                        names[1],
                        0,
                        format!("rows of {} targets, those of another split have {dim}", values.dim()),
                    );
                }
                check::targets(values.values()).map_err(|fault| Fault { array: names[1].to_string(), ..fault })?;
            }
        }
        Ok(())
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
