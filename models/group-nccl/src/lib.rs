#![doc = include_str!("../README.md")]

mod addition;
mod exchange;

pub use exchange::NcclExchange;
