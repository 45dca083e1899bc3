//! Options of an import.

use std::path::PathBuf;

use morphgl_graph_store::{Dtype, EdgeSplits, Result};
use morphgl_ingest::{DuplicateWeights, EdgeSplit};

use crate::Column;
use crate::files::invalid;

/// Options of every import, whatever the format.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Name of the dataset; by default the source's file name without the endings of format and compression.
    pub name: Option<String>,
    /// Adds the reverse of every edge; duplicates are dropped then. Default false.
    pub symmetrise: bool,
    /// Swaps source and target of every edge. Default false.
    pub reverse: bool,
    /// Drops edges from a node to itself. Default false.
    pub drop_self_loops: bool,
    /// Keeps one of several edges between the same nodes. Default false.
    pub drop_duplicates: bool,
    /// Weight of the edge that is kept of several, `symmetrise`'s included: that of the first, or the sum. Default: the first's.
    pub duplicate_weights: DuplicateWeights,
    /// Gives every node that has no edge to itself one, of weight 1; after `drop_self_loops`. Default false.
    pub add_self_loops: bool,
    /// Ignores the weights of the source. Default false.
    pub drop_weights: bool,
    /// Whether the sources and the targets of an edge list, or the rows and columns of a MatrixMarket file, are two kinds of nodes
    /// whose ids are counted apart: the nodes of targets come after those of sources. Default: they are one, and a file
    /// that seems to have two is refused.
    pub bipartite: Option<bool>,
    /// Draws random splits instead of the source's own. Default: the source's own, where it has any.
    pub split: Option<RandomSplit>,
    /// Draws edges to validate and test on, and takes them out of the graph, instead of pairs of the source's own. Default: those,
    /// where it has any.
    pub edge_split: Option<EdgeSplit>,
    /// Pairs of link prediction in files of their own. Default: none.
    pub links: LinkFiles,
    /// Random features for a graph that has none. Default: none.
    pub random_features: Option<RandomFeatures>,
    /// Random labels for a graph that has none. Default: none.
    pub random_labels: Option<RandomLabels>,
    /// Features, labels, splits and ids in files of their own. Default: none.
    pub nodes: NodeFiles,
    /// Element type of the stored features: f32, f16, bf16, or u8 where that is exact. Default: the source's.
    pub feature_dtype: Option<Dtype>,
    /// Scales each feature row. Default: not at all.
    pub normalize_features: Option<FeatureNorm>,
    /// Standardises each column of features, after `normalize_features`. Default: not at all.
    pub standardise: Option<Standardise>,
    /// Bytes for reading and sorting, at least [`Options::LEAST_MEMORY`], besides [`Options::fixed_memory`] and arrays that are
    /// held whole. Default 2 GiB.
    pub memory: u64,
    /// Replaces an existing dataset at the target. Default false.
    pub replace: bool,
    /// Maximum bytes of an array with a row for each node, where that is more than 1024 times the source's bytes. A number that
    /// was mistyped, or that stands in a damaged header, would otherwise fill the disk. Default 1 GiB.
    pub large: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: None,
            symmetrise: false,
            reverse: false,
            drop_self_loops: false,
            drop_duplicates: false,
            duplicate_weights: DuplicateWeights::First,
            add_self_loops: false,
            drop_weights: false,
            bipartite: None,
            split: None,
            edge_split: None,
            links: LinkFiles::default(),
            random_features: None,
            random_labels: None,
            nodes: NodeFiles::default(),
            feature_dtype: None,
            normalize_features: None,
            standardise: None,
            memory: 2 << 30,
            replace: false,
            large: 1 << 30,
        }
    }
}

impl Options {
    /// The minimum of `memory`; with less, an import takes this much.
    pub const LEAST_MEMORY: u64 = 1 << 20;

    /// Bytes that an import takes besides `memory` on the threads of the current rayon pool: 16 MiB for the buffers of
    /// readers and writers, and 512 KiB per thread for stacks and the caches of an allocator.
    pub fn fixed_memory() -> u64 {
        (16 << 20) + rayon::current_num_threads() as u64 * (512 << 10)
    }

    /// Refuses options that no import can follow; errors name the option as `morphgl import` spells it.
    pub(crate) fn check(&self) -> Result<()> {
        let features = [("--dtype", self.feature_dtype), ("--random-features", self.random_features.map(|r| r.dtype))];
        for (option, dtype) in features {
            if let Some(dtype) = dtype.filter(|d| !matches!(d, Dtype::F32 | Dtype::F16 | Dtype::Bf16 | Dtype::U8)) {
                return invalid(option, format!("features cannot be {dtype}"), "use f32, f16, bf16 or u8");
            }
        }
        if self.normalize_features.is_some() && self.feature_dtype == Some(Dtype::U8) {
            let what = "normalised features are fractions, which u8 cannot hold";
            return invalid("--dtype", what, "use f32, f16 or bf16");
        }
        if self.standardise.is_some() && self.feature_dtype == Some(Dtype::U8) {
            let what = "standardised features are fractions, which u8 cannot hold";
            return invalid("--dtype", what, "use f32, f16 or bf16");
        }
        if self.random_features.is_some_and(|r| r.dim == 0) {
            return invalid("--random-features", "the features have no columns", "give a dimension of at least 1");
        }
        if self.random_labels.is_some_and(|r| r.num_classes == 0) {
            return invalid("--random-labels", "there are no classes", "give a number of at least 1");
        }
        let of_nodes = self.split.map(|split| ("--split", [split.train, split.valid, split.test]));
        let of_edges = self.edge_split.map(|split| ("--edge-split", [split.train, split.valid, split.test]));
        for (option, shares) in of_nodes.into_iter().chain(of_edges) {
            if shares.iter().any(|s| !(0.0..=1.0).contains(s)) || shares.iter().sum::<f64>() > 1.0 + 1e-9 {
                let what = format!("the shares are {}, {} and {}", shares[0], shares[1], shares[2]);
                return invalid(option, what, "give three numbers of at least 0 that sum to at most 1");
            }
        }
        if self.edge_split.is_some() && self.links != LinkFiles::default() {
            let what = "it draws the pairs that files are named for";
            return invalid("--edge-split", what, "leave it out, or the files of pairs");
        }
        Ok(())
    }

    /// The switches that change the graph or its features, as `graph.json` records them.
    pub(crate) fn changes(&self) -> [(&'static str, bool); 11] {
        [
            ("symmetrised", self.symmetrise),
            ("reversed", self.reverse),
            ("self_loops_dropped", self.drop_self_loops),
            ("duplicates_dropped", self.drop_duplicates || self.symmetrise),
            ("self_loops_added", self.add_self_loops),
            ("weights_dropped", self.drop_weights),
            ("bipartite", self.bipartite == Some(true)),
            ("features_normalized", self.normalize_features.is_some()),
            ("features_normalized_as_pyg", self.normalize_features == Some(FeatureNorm::Pyg)),
            ("duplicate_weights_added", self.duplicate_weights == DuplicateWeights::Add),
            ("unknown_nodes_dropped", self.nodes.unknown_nodes == Some(UnknownNodes::Drop)),
        ]
    }
}

/// Scaling of feature rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeatureNorm {
    /// Each row divided by the sum of its absolute values; rows of zeros stay.
    Sum,
    /// PyG's `NormalizeFeatures`: the lowest value of the whole matrix is subtracted, then each row divided by its sum, or by 1
    /// where the sum is less.
    Pyg,
}

/// Means and deviations by which columns of features become (value - mean) / deviation; a column of deviation 0 is centred alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standardise {
    /// Those over the training nodes, each once: the features of these have mean 0 and deviation 1.
    ByTraining,
    /// Those of a dataset at this path, which was imported so: for data to predict on by its model.
    As(PathBuf),
}

/// Files of nodes beside a graph. Default: none.
///
/// A file is a `.npy` array, delimited text (plain, gzip, bzip2, xz or zstd), Parquet or Arrow IPC (Feather). Rows of a
/// table with a column of ids belong to the nodes of these ids; else row `i` belongs to the node of the `i`-th lowest id.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeFiles {
    /// A table with any of columns of ids, labels, splits, features and targets.
    pub table: Option<PathBuf>,
    /// `[nodes, values]`, or a table whose columns are all features, except that of ids.
    pub features: Option<PathBuf>,
    /// `[nodes]`, or a table with a column of labels: class numbers, or names, which are numbered in their order.
    pub labels: Option<PathBuf>,
    /// Real-valued targets: `[nodes]` or `[nodes, K]`, or a table whose columns are all targets, except that of ids. NaN or an empty
    /// field is an unknown one, as are those of nodes without a row.
    pub targets: Option<PathBuf>,
    /// Ids, or a mask of all nodes, which is known by its values: of training, validation and test nodes.
    pub splits: [Option<PathBuf>; 3],
    /// The columns of the tables.
    pub columns: NodeColumns,
    /// Treatment of ids that edges name and the node table does not list: the table of features, where that has ids; else `table`,
    /// else `labels`, else `targets`. Default: refused where the nodes have features; else such nodes have no label.
    pub unknown_nodes: Option<UnknownNodes>,
}

/// Treatment of the ids of an edge list that the node table does not list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownNodes {
    /// The import is refused.
    Refuse,
    /// Edges with such an end are left out, and counted in a note; so are rows of other node files.
    Drop,
}

/// Files of pairs of link prediction beside a graph. Default: none.
///
/// A file is a table of sources and targets, as of the edges, with their ids, or a `.npy` array `[pairs, 2]`; negatives of one
/// pair each may be `[pairs, negatives, 2]`. Pairs are held whole: 8 bytes each, and 16 more while they are read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LinkFiles {
    /// Pairs to train on. Default: the graph's edges.
    pub train: Option<PathBuf>,
    /// Pairs to validate on.
    pub valid: Option<PathBuf>,
    /// Pairs to test on.
    pub test: Option<PathBuf>,
    /// Pairs that do not exist, to train against: as many for each of those to train on, in their order and of its source.
    pub train_negatives: Option<PathBuf>,
    /// Pairs that do not exist, which those to validate on are ranked against.
    pub valid_negatives: Option<PathBuf>,
    /// Pairs that do not exist, which those to test on are ranked against.
    pub test_negatives: Option<PathBuf>,
}

impl LinkFiles {
    /// The files in the order of [`EdgeSplits::ARRAYS`].
    pub(crate) fn files(&self) -> [Option<&PathBuf>; EdgeSplits::ARRAYS.len()] {
        let Self { train, valid, test, train_negatives, valid_negatives, test_negatives } = self;
        [train, valid, test, train_negatives, valid_negatives, test_negatives].map(Option::as_ref)
    }
}

/// The columns of node files that are read. Default: by their names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeColumns {
    /// Ids: `id`, `node`, `node_id`, `name`, or the nameless one that pandas writes.
    pub id: Option<Column>,
    /// Labels: `label`, `class`, `y`, `target` or `category`. Of a numpy array `[nodes, K]` the number of the column.
    pub label: Option<Column>,
    /// Splits: `split`, `fold` or `set` with `train`, `valid` or `val`, `test`; or three masks. Of numpy masks `[nodes, K]`
    /// the number of the column.
    pub split: Option<Column>,
    /// Features: names of one word and a number, such as `f0` and `feat_12`, but for words of ids, labels, splits, masks,
    /// weights and times (`label_2`). A name may be a range of numbers, `2-1434`, or a pattern, `f*`.
    pub features: Option<Vec<Column>>,
    /// Targets, named as features are: of `NodeFiles::targets`, or else of `NodeFiles::table`; of a numpy array `[nodes, K]` their
    /// numbers.
    pub targets: Option<Vec<Column>>,
}

/// A seeded, uniform split of the nodes with a label or a known target (of all nodes where there are neither).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RandomSplit {
    /// Share of training nodes.
    pub train: f64,
    /// Share of validation nodes.
    pub valid: f64,
    /// Share of test nodes; the three sum to at most 1.
    pub test: f64,
    /// Seed of the permutation.
    pub seed: u64,
}

/// Random features: zero mean and unit variance (u8: uniform bytes), a function of seed, node and column alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RandomFeatures {
    /// Values a row has.
    pub dim: usize,
    /// Element type: f32, f16, bf16 or u8.
    pub dtype: Dtype,
    /// Seed of the values.
    pub seed: u64,
}

/// Random labels, uniform over the classes: a function of seed and node alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RandomLabels {
    /// Number of classes.
    pub num_classes: usize,
    /// Seed of the labels.
    pub seed: u64,
}

/// Content of row `v` of a row-wise source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowContent {
    /// The source nodes of the edges into `v` (CSC, in-neighbours): rows are stored as they are.
    Sources,
    /// The target nodes of the edges out of `v` (CSR, successors): the dataset stores the transpose.
    Targets,
}
