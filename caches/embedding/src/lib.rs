#![doc = include_str!("../README.md")]

mod cache;
mod error;

pub use cache::{EmbeddingCache, SuperBatchRows};
pub use error::{Error, Result};
