//! What a timeline is: who was busy with what, and when.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One of the three phases every mini-batch goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// Sampling its blocks and, on most routes, gathering its features.
    Batching,
    /// Moving it to the place it is trained at.
    Transferring,
    /// Forward, backward and step.
    Training,
}

/// One phase of one mini-batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// The phase.
    pub phase: Phase,
    /// The mini-batch's index within its epoch.
    pub batch: u32,
    /// The epoch.
    pub epoch: u32,
    /// Its route, an index into [`Timeline::routes`].
    pub route: usize,
    /// Seconds from the timeline's start until it began.
    pub start: f64,
    /// Seconds from the timeline's start until it ended.
    pub end: f64,
    /// The lanes it occupies, indices into [`Timeline::lanes`]: a phase that needs two resources at once names both.
    pub lanes: Vec<usize>,
}

/// A row of the timeline: a resource, or one of the workers that share it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Lane {
    /// What stands beside the row, such as `CPU worker 1`.
    pub name: String,
    /// The resource it belongs to, such as `CPU`. Lanes of one resource that follow each other are drawn close together.
    pub resource: String,
    /// Whether the resource is simulated. It is labelled so wherever it shows.
    pub simulated: bool,
}

/// A named stretch of time that is no phase of a mini-batch: an evaluation, an overlap, a re-planning, a new epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// What stands above it.
    pub name: String,
    /// Seconds from the timeline's start until it began.
    pub start: f64,
    /// Seconds from the timeline's start until it ended; equal to `start` for an instant.
    pub end: f64,
}

/// What was, or is predicted to be, busy with what.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Timeline {
    /// The rows, top to bottom.
    pub lanes: Vec<Lane>,
    /// Names of the routes, such as `CPU → DMA → SIM`.
    pub routes: Vec<String>,
    /// The activities, in any order. One that has no finite times (up to 10^12 seconds), ends before it starts or before 0,
    /// or names no lane there is, cannot be drawn: [`Timeline::left_out`] counts those.
    pub activities: Vec<Activity>,
    /// Evaluations, overlaps, re-planning: all that is no mini-batch.
    pub marks: Vec<Mark>,
    /// Its length; the end of the last activity or mark where that is later.
    pub seconds: f64,
}

impl Phase {
    /// All of them, in the order a mini-batch goes through.
    pub const ALL: [Self; 3] = [Self::Batching, Self::Transferring, Self::Training];

    /// The letter morphgl's figures use.
    pub fn letter(self) -> char {
        match self {
            Self::Batching => 'B',
            Self::Transferring => 'T',
            Self::Training => 'M',
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Batching => "Batching",
            Self::Transferring => "Transferring",
            Self::Training => "Training",
        })
    }
}
