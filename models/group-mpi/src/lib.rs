#![doc = include_str!("../README.md")]
#![cfg(feature = "mpi")]

mod exchange;
mod reason;
mod rows;
mod wire;

pub use exchange::MpiExchange;
