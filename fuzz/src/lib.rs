#![doc = include_str!("../README.md")]

mod imports;
mod mutate;
mod readers;
mod sandbox;

pub use mutate::{Random, mutated};
pub use readers::{READERS, Reader};
pub use sandbox::{Outcome, Sandbox};
