#![doc = include_str!("../README.md")]

mod graph;
mod inclusion;
mod policy;
mod presample;

pub use graph::Graph;
pub use inclusion::Inclusion;
pub use policy::{Degree, Hotness, Policy};
pub use presample::PreSample;
