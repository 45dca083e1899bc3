#![doc = include_str!("../README.md")]

mod batch;
mod config;
mod device;
mod digest;
mod memory;
mod resources;
mod source;
mod stream;
mod text;

pub use batch::{SimBatch, gather_features};
pub use config::{Config, Fault, FaultKind, Slow, Work};
pub use device::{Device, Operation};
pub use digest::digest;
pub use resources::{SIM, Statistics, Use};
pub use source::{OPTIONS, VARIABLE, accelerators, available, device, found, probe};
pub use stream::Stream;
