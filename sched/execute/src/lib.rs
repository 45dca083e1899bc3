#![doc = include_str!("../README.md")]

mod drive;
mod error;
mod executor;
mod loader;
mod pool;
mod prepare;
mod report;
mod stop;
mod window;
mod worker;

pub use error::{Error, ErrorKind, Result};
pub use executor::{Executor, Operators};
pub use loader::Loader;
pub use pool::Pool;
pub use prepare::{Transfer, prepare};
pub use report::{BatchDone, EpochReport, PhaseSeconds, Span};
pub use stop::Stop;
