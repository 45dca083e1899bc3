#![doc = include_str!("../README.md")]

mod cache_policy;
mod counts;
mod degree;
mod file;
mod graph;
mod inclusion;
mod kind;
mod order;
mod page_rank;
mod policy;
mod presample;
mod random;
mod scatter;
mod smoothed;

pub use cache_policy::CachePolicy;
pub use degree::{InDegree, OutDegree};
pub use graph::{Graph, SubRow};
pub use inclusion::Inclusion;
pub use kind::PolicyKind;
pub use order::{coverage, entries_within, hottest, hottest_by_byte};
pub use page_rank::{ReversePageRank, WeightedReversePageRank};
pub use policy::{Hotness, Policy};
pub use presample::{Hindsight, PreSample};
pub use random::Random;
pub use smoothed::Smoothed;
