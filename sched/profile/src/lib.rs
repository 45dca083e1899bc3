#![doc = include_str!("../README.md")]

mod budget;
mod compare;
mod error;
mod links;
mod measure;
mod memory;
mod overlap;
mod points;
mod pool;
mod problem;
mod profile;
mod select;
mod selection;
mod settings;
mod splits;
mod statistics;
mod training;
mod transfer;

pub use error::{Error, ErrorKind, Result};
pub use links::links;
pub use measure::profile;
pub use problem::link_of;
pub use profile::{
    InterferenceSample, LinkProfile, LinkShare, PoolSample, Profile, RouteProfile, TrainingSample, VERSION,
};
pub use select::select;
pub use selection::{CandidateProfile, Outcome, Selection};
pub use settings::{MemoryLimit, Progress, Settings, Watch};
pub use statistics::Statistics;
pub use transfer::PeakBytes;
