#![doc = include_str!("../README.md")]

mod cache;
mod map;

pub use cache::{FeatureCache, Hits};
pub use map::NodeMap;
