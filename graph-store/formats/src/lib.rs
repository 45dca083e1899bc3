#![doc = include_str!("../README.md")]

mod archive;
mod array_edges;
mod compact;
mod csv_gz;
mod elements;
mod encode;
mod export;
mod files;
mod ingest;
mod known;
mod names;
mod npy;
mod options;
mod pickle;
mod pipeline;
mod plain;
mod progress;
mod random;
mod ranks;
mod segment;
mod sparse;
mod splits;
mod tabular;
mod text;
mod torch_file;
mod type_folders;
mod typed;

pub mod edge_list;
pub mod igb;
pub mod mag240m;
pub mod manifest;
pub mod metis;
pub mod mtx;
pub mod neo4j;
pub mod npz;
pub mod numpy;
pub mod ogb;
pub mod planetoid;
pub mod triples;

pub use export::export_numpy;
pub use ingest::{EdgeSink, FeatureSink, Ingest, is_id_column, oversampling};
pub use known::Format;
pub use morphgl_ingest::{DuplicateWeights, EdgeSplit};
pub use options::{
    FeatureNorm, LinkFiles, NodeColumns, NodeFiles, Options, RandomFeatures, RandomLabels, RandomSplit, RowContent,
    Standardise, UnknownNodes,
};
pub use progress::{Progress, Silent};
pub use text::Column;
