#![doc = include_str!("../README.md")]

mod admission;
mod budget;
mod build;
mod checkpoint;
pub mod cli;
mod config;
mod context;
mod edges;
mod engine;
mod evaluate;
mod evaluated;
mod examples;
mod executor;
mod factored;
mod group;
mod job;
mod link_types;
mod links;
mod load;
mod memory;
mod numa;
mod observer;
mod operators;
mod paths;
mod position;
mod ranks;
mod recorder;
mod rehearsal;
mod reproduce;
mod select;
pub mod session;
mod split;
mod statistics;
mod steps;
mod stopping;
mod sufficient;
mod task;
mod threads;
mod train;
mod unified;
mod unwritten;
mod usage;
mod values;
mod watcher;
mod words;

pub use build::{OperatorBuilder, default_dataset, routes};
pub use checkpoint::Checkpoint;
pub use config::{JobConfig, OperatorChoice, default_fanouts};
pub use context::{Process, RunContext};
pub use engine::ExchangeKind;
pub use evaluate::{Evaluation, full};
pub use evaluated::Evaluated;
pub use executor::Executor;
pub use factored::{Factored, FactoredProfile, RoleCaches};
pub use group::{Group, Inferred, SharedExchange};
pub use job::Job;
pub use memory::AllocatorHooks;
pub use numa::NumaNode;
pub use observer::{Beginning, Observer, Silent};
pub use position::{PartialEpoch, Position};
pub use recorder::{Recorder, Simulated, predicted_timeline};
pub use split::{Allowed, SplitPlan};
pub(crate) use statistics::median;
pub use steps::{Partitioner, Profiler, Scheduler};
pub use stopping::{Bound, TrainOptions};
pub use train::{Best, Checkpointer, Progress, StopReason, TrainReport, Trainer};
pub use unified::{GroupProfile, LinkUse, Shares, Unified, UnifiedTrainer};

pub use morphgl_execute::{
    Activity, BatchDone, EpochReport, EpochRow, Event, Settings as ExecutorSettings, Stop, TrainingState,
};
pub use morphgl_model_core::{ModelKind, ModelSpec, OptimizerSpec, TrainingSpec};
pub use morphgl_plan::{Limits, Plan, Plans, Policy, Problem, Strategy};
pub use morphgl_profile::{MemoryLimit, Profile, Selection};

/// The Rust of the repository's README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
