#![doc = include_str!("../README.md")]

pub mod cli;
mod config;
mod evaluate;
mod facade;
mod job;
mod memory;
mod operators;
mod train;

pub use config::{JobConfig, Operators, default_fanouts};
pub use evaluate::{Evaluation, Sampled, Scores, full};
pub use facade::{Executor, Partitioner, Profiler, Scheduler};
pub use job::{Job, build_training, build_transferring, default_dataset, registry, routes};
pub use memory::peak_rss_bytes;
pub use train::{Best, EpochRow, Event, TrainOptions, TrainReport, Trainer, Why};

pub use morphgl_execute::{BatchDone, EpochReport, Stop};
pub use morphgl_model_spec::{ModelKind, ModelSpec, OptimizerSpec, TrainingSpec};
pub use morphgl_plan::{Plan, Plans, Policy, Problem};
pub use morphgl_profile::Profile;
