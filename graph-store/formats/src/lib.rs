#![doc = include_str!("../README.md")]

mod features;
mod ingest;
mod options;
mod progress;
mod sort;

pub mod npz;
pub mod ogb;
pub mod planetoid;

pub use features::FeatureSink;
pub use ingest::{EdgeSink, Ingest};
pub use options::{Options, RandomFeatures, RandomSplit, Rows};
pub use progress::{Progress, Silent};
