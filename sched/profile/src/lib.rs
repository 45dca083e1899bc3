#![doc = include_str!("../README.md")]

mod error;
mod measure;
mod pool;
mod profile;
mod settings;
mod statistics;
mod training;

pub use error::{Error, ErrorKind, Result};
pub use measure::profile;
pub use profile::{PoolSample, Profile, TrainingSample, VERSION};
pub use settings::{Operators, Progress, Settings};
pub use statistics::Statistics;
