#![doc = include_str!("../README.md")]

mod allocate;
mod histogram;
mod kind;
mod prefixes;
mod slopes;

pub use allocate::{allocate, savings};
pub use kind::{CacheShare, Kind};
pub use prefixes::allocate_prefixes;
pub use slopes::{Curve, Slopes};
