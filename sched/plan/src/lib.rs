#![doc = include_str!("../README.md")]

mod bound;
mod curve;
mod durations;
mod plan;
mod predict;
mod schedule;
mod search;

pub use bound::bound;
pub use curve::{Curve, Point, Seconds};
pub use durations::{Durations, Invalid, PoolPoint};
pub use plan::{Bottleneck, Plan, Plans, Prediction, RouteKeys};
pub use predict::predict;
pub use schedule::{Policy, Schedule, UnknownPolicy};
pub use search::{Limits, Problem, plan};
