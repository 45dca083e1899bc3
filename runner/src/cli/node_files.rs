//! The options of `morphgl import` for node data in files of their own.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use morphgl_formats::{Column, NodeColumns, NodeFiles, UnknownNodes};

use crate::usage::Usage;
use crate::values::column;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Nodes, in files of their own (.npy, csv, tsv; Parquet, Feather with --features arrow)")]
pub(crate) struct NodeArgs {
    /// A table with named columns: ids, labels, splits, features, targets
    #[arg(long, value_name = "FILE")]
    nodes: Option<PathBuf>,
    /// Features: [nodes, values], or a table whose columns are all features but for that of ids
    #[arg(long, value_name = "FILE")]
    features: Option<PathBuf>,
    /// Labels: class numbers or names of classes
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
    /// Real-valued targets: [nodes] or [nodes, K], or a table whose columns are all targets but for that of ids; NaN or an empty field
    /// is an unknown one
    #[arg(long, value_name = "FILE")]
    targets: Option<PathBuf>,
    /// Training nodes: ids, or a mask of all nodes (0 and 1, or booleans)
    #[arg(long, value_name = "FILE")]
    train: Option<PathBuf>,
    /// Validation nodes
    #[arg(long, value_name = "FILE")]
    valid: Option<PathBuf>,
    /// Test nodes
    #[arg(long, value_name = "FILE")]
    test: Option<PathBuf>,
    /// The tables' column of ids, by name or number from 1 [default: id, node, node_id or name]
    #[arg(long, value_name = "COLUMN", value_parser = column)]
    id_column: Option<Column>,
    /// The column of labels [default: label, class, y, target or category]; of an array [nodes, K] its number
    #[arg(long, value_name = "COLUMN", value_parser = column)]
    label_column: Option<Column>,
    /// The column of splits: train, valid or test [default: split, fold or set, or three masks]; of masks [nodes, K] its
    /// number
    #[arg(long, value_name = "COLUMN", value_parser = column)]
    split_column: Option<Column>,
    /// The columns of features: names, numbers, ranges of numbers (2-1434), patterns (f*) [default of --nodes: f0, f1, …,
    /// or another word with numbers, but for words of ids, labels, splits, masks, weights and times]
    #[arg(long, value_name = "COLUMN,COLUMN,…", value_parser = column, value_delimiter = ',')]
    feature_columns: Option<Vec<Column>>,
    /// The columns of targets, of --targets or else of --nodes, named as those of features; of an array [nodes, K] their numbers
    /// [default: all of --targets]
    #[arg(long, value_name = "COLUMN,COLUMN,…", value_parser = column, value_delimiter = ',')]
    target_columns: Option<Vec<Column>>,
    /// Edges with an end that the file with ids (of features, else --nodes, --labels or --targets) does not list [default: refuse
    /// where nodes have features; else such nodes have no label]
    #[arg(long, value_enum, value_name = "refuse|drop", hide_possible_values = true)]
    unknown_nodes: Option<UnknownChoice>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum UnknownChoice {
    Refuse,
    Drop,
}

impl NodeArgs {
    pub(crate) fn files(&self) -> NodeFiles {
        let Self { nodes, features, labels, targets, train, valid, test, .. } = self.clone();
        let columns = NodeColumns {
            id: self.id_column.clone(),
            label: self.label_column.clone(),
            split: self.split_column.clone(),
            features: self.feature_columns.clone(),
            targets: self.target_columns.clone(),
        };
        let unknown_nodes = self.unknown_nodes.map(|choice| match choice {
            UnknownChoice::Refuse => UnknownNodes::Refuse,
            UnknownChoice::Drop => UnknownNodes::Drop,
        });
        NodeFiles { table: nodes, features, labels, targets, splits: [train, valid, test], columns, unknown_nodes }
    }

    /// Whether any of the files has features.
    pub(crate) fn may_have_features(&self) -> bool {
        self.features.is_some() || self.nodes.is_some()
    }

    pub(crate) fn are_unknown_nodes_treated(&self) -> bool {
        self.unknown_nodes.is_some()
    }

    /// Refuses columns without a file; `arrays` says that the graph's own arrays have columns of labels, targets and splits.
    pub(crate) fn refuse_unread(&self, arrays: bool) -> anyhow::Result<()> {
        let (table, features, labels) = (self.nodes.is_some(), self.features.is_some(), self.labels.is_some());
        let targets = self.targets.is_some();
        let splits = self.train.is_some() || self.valid.is_some() || self.test.is_some();
        let any = "--nodes, --features, --labels, --targets, --train, --valid or --test";
        let (id, label) = (self.id_column.is_some(), self.label_column.is_some());
        let (split, feature) = (self.split_column.is_some(), self.feature_columns.is_some());
        if self.unknown_nodes.is_some() && !(table || features || labels || targets) {
            let what = "it is about nodes that a file of nodes does not list; name one by --nodes, --features, --labels or --targets";
            return Err(Usage::error(format!("--unknown-nodes: {what}")));
        }
        for (option, given, read, by) in [
            ("--id-column", id, table || splits || features || labels || targets, any),
            ("--label-column", label, table || arrays || labels, "--nodes or --labels"),
            ("--split-column", split, table || arrays || splits, "--nodes, --train, --valid or --test"),
            ("--target-columns", self.target_columns.is_some(), table || arrays || targets, "--targets or --nodes"),
            ("--feature-columns", feature, table || features, "--nodes or --features"),
        ] {
            if given && !read {
                return Err(Usage::error(format!("{option}: it is a column of {by}; name a file by one of them")));
            }
        }
        Ok(())
    }
}
