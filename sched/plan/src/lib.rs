#![doc = include_str!("../README.md")]

mod assemble;
mod bound;
mod curve;
mod durations;
mod error;
mod lp;
mod memory;
mod mixes;
mod order;
mod paper;
mod plan;
mod policy;
mod problem;
mod replan;
mod runs;
mod schedule;
mod search;
mod simulate;
mod state;
mod time;
mod whatif;

pub use bound::bound;
pub use curve::{Curve, Point, Seconds};
pub use durations::{Contention, Durations, InterferencePoint, PoolPoint};
pub use error::Invalid;
pub use memory::{DoesNotFit, Memory, memory};
pub use order::{Begun, Order, Replay};
pub use plan::{Bottleneck, Plan, Plans, Prediction, Strategy, Utilisation, predict};
pub use problem::{Bytes, Candidate, Hardware, Limits, Problem, Resource, RouteKeys};
pub use replan::{Changed, Drift, Replanned, Replanner};
pub use schedule::{Policy, Schedule, Share, UnknownPolicy};
pub use search::plan;
pub use simulate::{Activity, Noise, Simulation, replay, simulate, timeline};
pub use state::{Phase, Step};
pub use time::Time;
pub use whatif::WhatIf;
