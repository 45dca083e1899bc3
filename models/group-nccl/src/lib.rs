#![doc = include_str!("../README.md")]

mod all_reduce;
mod exchange;

pub use exchange::NcclExchange;
