#![doc = include_str!("../README.md")]

mod archive;
mod compact;
mod csv_gz;
mod dense;
mod elements;
mod encode;
mod export;
mod ingest;
mod names;
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

pub use export::export_numpy;
pub use ingest::{EdgeSink, FeatureSink, Ingest};
pub use options::{NodeColumns, NodeFiles, Options, RandomFeatures, RandomLabels, RandomSplit, Rows};
pub use progress::{Progress, Silent};
pub use text::Column;
