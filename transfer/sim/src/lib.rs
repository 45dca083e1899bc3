#![doc = include_str!("../README.md")]

mod batch;
mod config;
mod device;
mod digest;
mod machine;
mod memory;
mod named;
mod resources;
mod roofline;
mod sampling;
mod source;
mod stream;
mod text;

pub use batch::{SimBatch, gather_features};
pub use config::{Config, Fault, FaultKind, Slow, Work};
pub use device::{Device, Operation};
pub use digest::digest;
pub use machine::{DeviceDescription, HostDescription, LinkDescription, MachineDescription};
pub use named::{NAMED, list, table};
pub use resources::{SIM, Statistics, Use};
pub use roofline::StepWork;
pub use sampling::NeighborBatching;
pub use source::{OPTIONS, VARIABLE, accelerators, available, described_only, device, found, probe};
pub use stream::Stream;
