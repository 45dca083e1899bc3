//! Pairs of nodes that link prediction, and tasks on edges, train on and are scored by.

use std::borrow::Cow;

use rayon::prelude::*;

use crate::check::{self, Fault};
use crate::{Array, TargetMatrix, Topology, Types};

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
    /// Pairs that do not exist, to train against: as many for each training pair, in their order and of its source
    /// ([`negatives_per_pair`]); `None` where they are drawn.
    pub train_negatives: Option<Array<u32>>,
    /// Pairs that do not exist, which the validation pairs are ranked against; `None` where they are to be drawn.
    pub valid_negatives: Option<Array<u32>>,
    /// Pairs that do not exist, which the test pairs are ranked against; `None` where they are to be drawn.
    pub test_negatives: Option<Array<u32>>,
    /// What is to be predicted of the training, validation and test pairs, where edges are labelled.
    pub targets: [PairTargets; 3],
    /// Number of the edge type of each training, validation and test pair; `None` where links are learned whatever their type. Negatives
    /// are of the type of their pair.
    pub types: [Option<Array<u16>>; 3],
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
        let (train_negatives, valid_negatives, test_negatives) = (None, None, None);
        let (targets, types) = Default::default();
        Self {
            train: None,
            valid: none(),
            test: none(),
            train_negatives,
            valid_negatives,
            test_negatives,
            targets,
            types,
        }
    }
}

impl EdgeSplits {
    /// Names of the arrays of a dataset, in the order of [`EdgeSplits::arrays`].
    pub const ARRAYS: [&str; 6] = [
        "train_edges",
        "valid_edges",
        "test_edges",
        "train_edges_negatives",
        "valid_edges_negatives",
        "test_edges_negatives",
    ];

    /// The arrays of pairs that exist, each with that of its negatives.
    pub const NEGATIVES: [(&str, &str); 3] =
        [(Self::ARRAYS[0], Self::ARRAYS[3]), (Self::ARRAYS[1], Self::ARRAYS[4]), (Self::ARRAYS[2], Self::ARRAYS[5])];

    /// Names of the arrays of classes and of values of the pairs of [`EdgeSplits::ARRAYS`]' first three, of each.
    pub const TARGET_ARRAYS: [[&str; 2]; 3] = [
        ["train_edges_labels", "train_edges_targets"],
        ["valid_edges_labels", "valid_edges_targets"],
        ["test_edges_labels", "test_edges_targets"],
    ];

    /// Names of the arrays of edge types of the pairs of [`EdgeSplits::ARRAYS`]' first three.
    pub const TYPE_ARRAYS: [&str; 3] = ["train_edges_types", "valid_edges_types", "test_edges_types"];

    /// The arrays as a dataset stores them; `None` for those that it does not have.
    pub fn arrays(&self) -> [Option<&Array<u32>>; Self::ARRAYS.len()] {
        let present = |pairs| Some(pairs).filter(|pairs: &&Array<u32>| !pairs.is_empty());
        let Self { train, valid, test, train_negatives, valid_negatives, test_negatives, .. } = self;
        let negatives = [train_negatives, valid_negatives, test_negatives].map(Option::as_ref);
        [train.as_ref(), present(valid), present(test), negatives[0], negatives[1], negatives[2]]
    }

    /// The splits of the arrays of [`EdgeSplits::arrays`], whose pairs have these targets, and no types.
    pub fn of_arrays(arrays: [Option<Array<u32>>; Self::ARRAYS.len()], targets: [PairTargets; 3]) -> Self {
        let [train, valid, test, train_negatives, valid_negatives, test_negatives] = arrays;
        let or_none = |pairs: Option<Array<u32>>| pairs.unwrap_or_else(|| Vec::new().into());
        let (valid, test, types) = (or_none(valid), or_none(test), Default::default());
        Self { train, valid, test, train_negatives, valid_negatives, test_negatives, targets, types }
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

    /// Negatives of the training pairs; none where they are to be drawn.
    pub fn train_negative_pairs(&self) -> &[[u32; 2]] {
        self.train_negatives.as_deref().map_or(&[], pairs)
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
        Cow::Owned(train_edges(topology, |pair, _| pair))
    }

    /// Number of the edge type of each of [`EdgeSplits::train_pairs`]; `None` where pairs have no types: those given have none, or the
    /// graph's edges, or the pairs to validate or test on.
    ///
    /// # Complexity
    ///
    /// As [`EdgeSplits::train_pairs`].
    pub fn train_pair_types<'a>(&'a self, topology: &Topology) -> Option<Cow<'a, [u16]>> {
        if !self.have_types(topology) {
            return None;
        }
        let of_edges = || topology.edge_types().map(|types| Cow::Owned(train_edges(topology, |_, at| types[at])));
        self.types[0].as_deref().map(Cow::Borrowed).or_else(of_edges)
    }

    /// Whether pairs have edge types: those given, and the graph's edges where these are trained on.
    pub fn have_types(&self, topology: &Topology) -> bool {
        let [train, others @ ..] = &self.types;
        if self.train.is_some() {
            return train.is_some();
        }
        let are_typed = |(pairs, types): (&Array<u32>, &Option<_>)| pairs.is_empty() || types.is_some();
        topology.edge_types().is_some() && [&self.valid, &self.test].into_iter().zip(others).all(are_typed)
    }

    /// Checks the pairs of a graph of `num_nodes` nodes, as [`Dataset::open`](crate::Dataset::open) does.
    ///
    /// # Errors
    ///
    /// A description of the first node that does not exist or has no partner, of negatives without positives, of negatives to train
    /// against that do not belong to one pair each, or of targets that do not fit the pairs or one another.
    pub fn check(&self, num_nodes: usize) -> Result<(), String> {
        self.check_arrays(num_nodes).map_err(Fault::describe)
    }

    /// Checks the edge types of pairs, as [`Dataset::open`](crate::Dataset::open) does; of a graph of these `types`.
    ///
    /// # Errors
    ///
    /// A description of the first type that does not exist or leads between other nodes than its pair; types of some pairs alone, or of
    /// a graph without types; negatives to be ranked against that do not belong to one pair each.
    pub fn check_types(&self, types: Option<&Types>) -> Result<(), String> {
        self.check_type_arrays(types).map_err(Fault::describe)
    }

    pub(crate) fn check_type_arrays(&self, types: Option<&Types>) -> Result<(), Fault> {
        let of_split =
            [self.train.as_ref(), Some(&self.valid), Some(&self.test)].map(|all| all.map_or(&[][..], |all| &**all));
        let negatives = [None, self.valid_negatives.as_ref(), self.test_negatives.as_ref()];
        let is_typed = self.types.iter().any(Option::is_some);
        for (at, of_pairs) in self.types.iter().enumerate() {
            let (name, pairs) = (Self::TYPE_ARRAYS[at], pairs(of_split[at]));
            let fault = |element, what| Err(Fault::new(name, element, what));
            let Some(of_pairs) = of_pairs else {
                if is_typed && !pairs.is_empty() {
                    let what =
                        format!("the pairs of {} have no types, and those of another split have", Self::ARRAYS[at]);
                    return Err(Fault::new(Self::ARRAYS[at], 0, what));
                }
                continue;
            };
            let Some(types) = types else { return fault(0, "types of pairs of a graph without edge types".into()) };
            if of_pairs.len() != pairs.len() {
                return fault(0, format!("it has {} elements, and there are {} pairs", of_pairs.len(), pairs.len()));
            }
            for (pair, (&of, ends)) in of_pairs.iter().zip(pairs).enumerate() {
                let Some(edge_type) = types.edge_types().get(usize::from(of)) else {
                    let count = types.edge_types().len();
                    return fault(pair, format!("the edge type {of} does not exist, there are {count}"));
                };
                if types.ends(of.into()) != ends.map(|node| types.node_type(node)) {
                    let [source, target] = ends;
                    return fault(
                        pair,
                        format!("the pair {source},{target} has the type {edge_type}, which leads between other nodes"),
                    );
                }
            }
            if let Some(negatives) = negatives[at]
                && negatives_per_pair(pairs, self::pairs(negatives)).is_none()
            {
                let what = "negatives of pairs with types do not belong to one pair each, and so have none";
                return Err(Fault::new(Self::NEGATIVES[at].1, 0, what.into()));
            }
        }
        Ok(())
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
        let [train, valid, test, negatives @ ..] = self.arrays();
        let orphan = |(positives, negatives): (Option<&Array<u32>>, Option<&Array<u32>>)| {
            positives.is_none_or(|pairs| pairs.is_empty()) && negatives.is_some()
        };
        if let Some(at) = [train, valid, test].into_iter().zip(negatives).position(orphan) {
            return Err(Fault::new(Self::NEGATIVES[at].1, 0, "negatives of no pairs".into()));
        }
        let (Some(train), Some(negatives)) = (&self.train, &self.train_negatives) else { return Ok(()) };
        check_own(pairs(train), pairs(negatives))
            .map_err(|(negative, what)| Fault::new(Self::NEGATIVES[0].1, 2 * negative, what))
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

/// Checks that negatives belong to one pair each, as [`negatives_per_pair`] counts them.
///
/// # Errors
///
/// The position of the first negative of another source than its pair's, and what is wrong with it.
pub fn check_own(pairs: &[[u32; 2]], negatives: &[[u32; 2]]) -> Result<(), (usize, String)> {
    if negatives_per_pair(pairs, negatives).is_some() {
        return Ok(());
    }
    let Some(count) = negatives.len().checked_div(pairs.len()).filter(|count| count * pairs.len() == negatives.len())
    else {
        let counts = format!("{} negatives of {} pairs", negatives.len(), pairs.len());
        return Err((0, format!("{counts} are not as many for each")));
    };
    let other = |(at, negative): &(usize, &[u32; 2])| negative[0] != pairs[at / count][0];
    match negatives.iter().enumerate().find(other) {
        None => Err((0, "there are none".into())),
        Some((at, [source, _])) => {
            let [of, to] = pairs[at / count];
            Err((at, format!("a negative of the pair {of},{to} has the source {source}, not {of}")))
        }
    }
}

/// What `of` makes of each edge that is trained on where no pairs are given, by its ends and its position in the graph's indices; as
/// [`EdgeSplits::train_pairs`] lists them.
fn train_edges<T: Send>(topology: &Topology, of: impl Fn([u32; 2], usize) -> T + Sync) -> Vec<T> {
    let symmetric = topology.is_symmetric();
    let of_key = topology.draw_keys().map(|keys| {
        let mut of_key = vec![0u32; keys.len()];
        (0u32..).zip(keys.iter()).for_each(|(node, &key)| of_key[key as usize] = node);
        of_key
    });
    let (of, indices) = (&of, topology.indices());
    let row = |key: usize| {
        let target = of_key.as_ref().map_or(key as u32, |of_key| of_key[key]);
        let taken = move |&at: &usize| {
            let source = indices[at];
            source != target && (!symmetric || topology.draw_key(source) < topology.draw_key(target))
        };
        topology.edge_range(target).filter(taken).map(move |at| of([indices[at], target], at))
    };
    (0..topology.num_nodes()).into_par_iter().with_min_len(1 << 10).flat_map_iter(row).collect()
}

/// The pairs of a flat array.
fn pairs(nodes: &[u32]) -> &[[u32; 2]] {
    bytemuck::cast_slice(nodes)
}

#[cfg(test)]
mod tests;
