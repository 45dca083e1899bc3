#![doc = include_str!("../README.md")]

mod checked;
mod import;
mod properties;

pub use import::import;
