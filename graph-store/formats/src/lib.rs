#![doc = include_str!("../README.md")]

mod archive;
mod compact;
mod csv_gz;
mod dense;
mod edge_table;
mod edges;
mod elements;
mod encode;
mod export;
mod features;
mod ingest;
mod names;
mod nodes;
mod options;
mod pickle;
mod pipeline;
mod plain;
mod progress;
mod random;
mod raw;
mod sparse;
mod table;
mod table_edges;
mod tabular;
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
pub use nodes::{NodeColumns, NodeFiles};
pub use options::{Options, RandomFeatures, RandomLabels, RandomSplit, Rows};
pub use progress::{Progress, Silent};
pub use text::Column;
