#![doc = include_str!("../README.md")]

mod buffers;
mod clock;
mod epoch_loop;
mod error;
mod executor;
mod lane;
mod lanes;
mod loader;
mod matching;
mod operators;
mod pool;
mod position;
mod prepare;
mod report;
mod roles;
mod settings;
mod stop;
mod tally;
mod window;
mod worker;

pub use error::{Error, ErrorKind, Result};
pub use executor::Executor;
pub use loader::Loader;
pub use morphgl_plan::{Activity, Span};
pub use pool::Pool;
pub use position::TrainingState;
pub use prepare::prepare;
pub use report::{
    BatchDone, Control, CountersByOperator, EpochReport, EpochRow, Event, PhaseSeconds, Prepared, ResourceSeconds,
    ShareReport, TrainerReport, add_counters, add_trainers,
};
pub use roles::{RolesDevice, RolesExecutor, ShareOf};
pub use settings::{PoolSettings, Settings};
pub use stop::Stop;
