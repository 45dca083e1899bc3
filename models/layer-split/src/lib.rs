#![doc = include_str!("../README.md")]

mod compute;
mod queue;
mod rehearse;
mod split;
mod super_batch;
mod wrap;

pub use queue::HotQueue;
pub use rehearse::Rehearsal;
pub use split::{LayerSplit, Settings, SplitStatistics, SuperBatchStatistics};
pub use super_batch::SuperBatches;
pub use wrap::leaves_nodes_out;
