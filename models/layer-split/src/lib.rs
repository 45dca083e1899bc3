#![doc = include_str!("../README.md")]

mod compute;
mod hot_ratio;
mod queue;
mod split;
mod statistics;
mod super_batch;
mod trial;
mod wrap;

pub use hot_ratio::Follow;
pub use queue::HotQueue;
pub use split::{LayerSplit, Settings};
pub use statistics::{SplitStatistics, StaleRows, SuperBatchStatistics};
pub use super_batch::SuperBatches;
pub use trial::Trial;
pub use wrap::leaves_nodes_out;
