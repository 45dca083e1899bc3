//! Timelines: which lane did which phase of which mini-batch, and when.

use std::fmt;

use morphgl_plan::Phase;
use serde::{Deserialize, Serialize};

/// What a bar of a timeline is: a phase of a mini-batch, or the all-reduce of its gradients over the trainers of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names of the phases, and that of the collective")]
pub enum Work {
    Batching,
    Transferring,
    Training,
    #[serde(alias = "Addition")]
    AllReduce,
}

impl Work {
    /// All of them, the phases first.
    pub const ALL: [Work; 4] = [Work::Batching, Work::Transferring, Work::Training, Work::AllReduce];

    /// Its letter in a timeline: B, T or M for a phase, as in the MorphGL paper's figures, and A for an all-reduce.
    pub(crate) fn letter(self) -> char {
        ['B', 'T', 'M', 'A'][self as usize]
    }
}

impl From<Phase> for Work {
    fn from(phase: Phase) -> Self {
        Work::ALL[phase as usize]
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(["Batching", "Transferring", "Training", "All-reduce"][*self as usize])
    }
}

/// A bar of a timeline: one phase of one mini-batch, on the lanes it occupies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    /// The phase, or the all-reduce.
    pub work: Work,
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
    /// The lanes it occupies, as indices into [`Timeline::lanes`]; several for a phase that holds several resources.
    pub lanes: Vec<usize>,
}

/// A row of the timeline: a resource, or one of the workers that share it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Lane {
    /// Label of the row, such as `CPU worker 1`.
    pub name: String,
    /// The resource it belongs to, such as `CPU`. Adjacent lanes of one resource are drawn closer to each other.
    pub resource: String,
    /// Whether the resource is simulated; it is labelled as such.
    pub simulated: bool,
}

/// A named interval that is not a phase of a mini-batch: an evaluation, an overlap, a replanning, a new epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Its label.
    pub name: String,
    /// Seconds from the timeline's start until it began.
    pub start: f64,
    /// Seconds from the timeline's start until it ended; equal to `start` for an instant.
    pub end: f64,
}

/// The activities of a run, measured or predicted.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Timeline {
    /// The rows, top to bottom.
    pub lanes: Vec<Lane>,
    /// Names of the routes, such as `CPU → DMA → SIM`.
    pub routes: Vec<String>,
    /// The activities, in any order. An activity cannot be drawn if its times are not finite (or above 10^12 s), it ends before it
    /// starts or before 0, or it names no existing lane; [`Timeline::left_out`] counts those.
    pub activities: Vec<Bar>,
    /// Evaluations, overlaps, replanning.
    pub marks: Vec<Mark>,
    /// Its length in seconds; the end of the last activity or mark if that is later.
    pub seconds: f64,
}

impl Timeline {
    /// The kinds of its bars: the phases, and the all-reduce where there is one.
    pub(crate) fn kinds(&self) -> &'static [Work] {
        let reduces = self.activities.iter().any(|bar| bar.work == Work::AllReduce);
        if reduces { &Work::ALL } else { &Work::ALL[..3] }
    }

    /// Whether any lane is simulated.
    pub(crate) fn is_simulated(&self) -> bool {
        self.lanes.iter().any(|lane| lane.simulated)
    }
}
