#![doc = include_str!("../README.md")]

mod cache;
mod map;

pub use cache::FeatureCache;
pub use map::NodeMap;
