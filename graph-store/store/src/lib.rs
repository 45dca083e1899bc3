#![doc = include_str!("../README.md")]

#[cfg(target_endian = "big")]
compile_error!("morphgl-graph-store maps little-endian files as they are and needs a little-endian machine");

mod array;
mod background;
mod blocks;
mod check;
mod checksum;
mod dataset;
mod directory;
mod edges;
mod error;
mod features;
mod gather;
mod isolated;
mod meta;
mod names;
mod npy;
mod npy_writer;
pub mod parallel;
mod schema;
mod shared;
mod sparse;
mod summary;
mod targets;
mod task_rows;
mod topology;
mod types;
mod visit;
mod write;
mod writeback;
mod written;

pub use array::{Dtype, Element};
pub use blocks::write_blocks;
pub use check::MAX_NODES;
pub use dataset::{Dataset, OpenOptions, Splits};
pub use directory::DatasetPath;
pub use edges::{EdgeSplits, PairTargets, check_own, negatives_per_pair};
pub use error::{Error, ErrorKind, MakeError, Position, Result, unknown_neighbor};
pub use features::{FeatureMatrix, FeatureView};
pub use isolated::IsolatedNodes;
pub use meta::{ArrayMeta, DATASET_FORMAT, DATASET_VERSION, Meta};
pub use names::NodeNames;
pub use npy::{ArrayFile, Load, MAX_NPY_HEADER, NpyFields, npy_dtype, read_npy};
pub use npy_writer::NpyWriter;
pub use schema::Schema;
pub use shared::{Access, Array};
pub use targets::TargetMatrix;
pub use task_rows::TaskRows;
pub use topology::Topology;
pub use types::{EdgeType, NodeType, Types};
pub use visit::ArrayVisitor;
pub use write::DatasetWriter;
