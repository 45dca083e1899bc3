#![doc = include_str!("../README.md")]

mod cache;

pub use cache::AdjacencyCache;
