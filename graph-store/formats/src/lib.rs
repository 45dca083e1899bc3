#![doc = include_str!("../README.md")]

mod archive;
mod compact;
mod csc;
mod csv_gz;
mod dense;
mod edge_blocks;
mod edges;
mod elements;
mod encode;
mod export;
mod features;
mod ingest;
mod options;
mod pickle;
mod pipeline;
mod plain;
mod progress;
mod radix;
mod random;
mod ranges;
mod raw;
mod records;
mod sort;
mod sparse;
mod spill;
mod table;
mod table_edges;
mod text;

pub mod edge_list;
pub mod metis;
pub mod mtx;
pub mod npz;
pub mod numpy;
pub mod ogb;
pub mod planetoid;

pub use edges::EdgeSink;
pub use export::export_numpy;
pub use features::FeatureSink;
pub use ingest::Ingest;
pub use options::{Options, RandomFeatures, RandomSplit, Rows};
pub use progress::{Progress, Silent};
