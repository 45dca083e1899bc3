#![doc = include_str!("../README.md")]

mod assemble;
mod bound;
mod cache;
mod check;
mod curve;
mod division;
mod durations;
mod error;
mod group;
mod layer_split;
mod linear;
mod lp;
mod memory;
mod mixes;
mod numbers;
mod order;
mod pace;
mod paper;
mod plan;
mod policy;
mod problem;
mod replan;
mod roles;
mod runs;
mod schedule;
mod search;
mod simulate;
mod sizes;
mod state;
mod time;
mod whatif;

pub use bound::bound;
pub use cache::{Cache, CacheMemory, CacheSize, hit_rate_of_share};
pub use curve::{Curve, Point, Seconds};
pub use durations::{Contention, Durations, InterferencePoint, PoolPoint};
pub use error::Invalid;
pub use group::{
    GroupPlan, GroupProblem, GroupSimulation, GroupTrainer, LinkUser, SharedLink, TrainerPlan, group, group_of,
};
pub use layer_split::{
    Embedding, GroupSplit, Split, SplitChoice, SplitPlan, SplitPoint, SplitProblem, SplitSimulation, group_split,
    layer_split, next_ratio, simulate_split, split_timeline,
};
pub use linear::Linear;
pub use memory::{DoesNotFit, Memory, memory};
pub use morphgl_registry::{CacheCurve, CachePoint, Phase};
pub use numbers::{MAX_BUFFER, MAX_BYTES, MAX_SECONDS, MAX_THREADS};
pub use order::{Begun, Order, Replay};
pub use pace::PaceHistory;
pub use plan::{Bottleneck, Plan, Plans, Prediction, Strategy, Utilisation, predict};
pub use problem::{Bytes, Candidate, Hardware, Limits, PerPhase, Problem, Resource, RouteKeys};
pub use replan::{Changed, Drift, Replanned, Replanner};
pub use roles::{
    RolesActivity, RolesPlan, RolesProblem, RolesReplay, RolesSchedule, RolesStep, RolesTimeline, RolesWork, Segment,
    roles,
};
pub use schedule::{Policy, Schedule, ScheduleShare};
pub use search::plan;
pub use simulate::{Activity, Simulation, Span, simulate, timeline};
pub use state::Step;
pub use time::Time;
pub use whatif::WhatIf;
