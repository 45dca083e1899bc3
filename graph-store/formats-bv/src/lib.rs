#![doc = include_str!("../README.md")]

mod import;
mod properties;

pub use import::import;
