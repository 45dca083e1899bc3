#![doc = include_str!("../README.md")]

mod bound;
mod curve;
mod durations;
mod lp;
mod memory;
mod mixes;
mod paper;
mod plan;
mod policy;
mod problem;
mod replan;
mod runs;
mod schedule;
mod search;
mod simulate;
mod time;
mod whatif;

pub use bound::bound;
pub use curve::{Curve, Point, Seconds};
pub use durations::{Durations, Invalid, PoolPoint, Together};
pub use memory::{DoesNotFit, Memory, memory};
pub use plan::{Bottleneck, Plan, Plans, Prediction, Strategy, Utilisation, predict};
pub use problem::{Bytes, Candidate, Hardware, Limits, Problem, Resource, RouteKeys};
pub use replan::{Changed, Drift, Replanned, Replanner};
pub use schedule::{Contention, Policy, Schedule, Share, UnknownPolicy};
pub use search::plan;
pub use simulate::{Activity, Begun, Noise, Order, Phase, Replay, Simulation, Step, replay, simulate, timeline};
pub use time::Time;
pub use whatif::WhatIf;
