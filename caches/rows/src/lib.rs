#![doc = include_str!("../README.md")]

mod adjacency;
mod cache;
mod dynamic;
mod map;
mod matrices;
mod sync;

pub use adjacency::AdjacencyCache;
pub use cache::FeatureCache;
pub use dynamic::{DynamicCache, Eviction};
pub use map::NodeMap;
pub use matrices::{MatricesCache, NodeMatrix};
