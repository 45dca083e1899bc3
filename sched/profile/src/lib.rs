#![doc = include_str!("../README.md")]

mod chain;
mod compare;
mod course;
mod error;
mod measure;
mod memory;
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

pub use chain::Largest;
pub use error::{Error, ErrorKind, Result};
pub use measure::profile;
pub use profile::{PoolSample, Profile, RouteProfile, TogetherSample, TrainingSample, VERSION};
pub use select::{Candidate, select};
pub use selection::{CandidateProfile, Outcome, Selection};
pub use settings::{Memory, Operators, Progress, RouteOperators, Settings, TrainingOperator, Watch};
pub use statistics::Statistics;
