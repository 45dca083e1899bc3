#![doc = include_str!("../README.md")]

mod builder;
mod csc;
mod edge_blocks;
mod edge_split;
mod options;
mod radix;
mod ranges;
mod records;
mod sort;
mod spill;
mod typed;

pub use builder::CscBuilder;
pub use edge_blocks::{EdgeBlock, EdgeBlockMaker, Edges};
pub use edge_split::{DrawnEdges, EdgeShares, EdgeSplit, SplitType, split_edges, split_edges_of_types};
pub use options::{Dropped, DuplicateWeights, EdgeOptions};
pub use radix::Scratch;
pub use records::{Keyed, Narrow, Record, Records, Sorted, Weighted};
pub use sort::Sorter;
pub use typed::{TypedCscBuilder, TypedEdge, TypedOptions};
