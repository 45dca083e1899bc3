//! The options of `morphgl import` for pairs of link prediction in files of their own.

use std::path::PathBuf;

use clap::Args;
use morphgl_formats::LinkFiles;

#[derive(Debug, Clone, Args)]
#[command(
    next_help_heading = "Pairs of link prediction, in files of their own (.npy [pairs, 2], or tables as of the edges)"
)]
pub(crate) struct LinkArgs {
    /// Pairs to train on [default: the graph's edges]
    #[arg(long, value_name = "FILE")]
    train_edges: Option<PathBuf>,
    /// Pairs to validate on, with the ids of the edges
    #[arg(long, value_name = "FILE")]
    valid_edges: Option<PathBuf>,
    /// Pairs to test on
    #[arg(long, value_name = "FILE")]
    test_edges: Option<PathBuf>,
    /// Pairs that do not exist, to train against (train --negative-distribution given): as many for each pair of --train-edges, in
    /// their order and of its source
    #[arg(long, value_name = "FILE")]
    train_negatives: Option<PathBuf>,
    /// Pairs that do not exist, which those to validate on are ranked against: one list for all, or as many for each in their order
    #[arg(long, value_name = "FILE")]
    valid_negatives: Option<PathBuf>,
    /// Pairs that do not exist, which those to test on are ranked against
    #[arg(long, value_name = "FILE")]
    test_negatives: Option<PathBuf>,
}

impl LinkArgs {
    pub(crate) fn files(&self) -> LinkFiles {
        let Self { train_edges: train, valid_edges: valid, test_edges: test, .. } = self.clone();
        let Self { train_negatives, valid_negatives, test_negatives, .. } = self.clone();
        LinkFiles { train, valid, test, train_negatives, valid_negatives, test_negatives }
    }
}
