//! A table or figure of a paper: what it shows, how ours is made, and the statements that are checked.

use std::collections::BTreeMap;

use anyhow::Result;
use morphgl_report::LineChart;
use serde::{Deserialize, Serialize};

use super::setting::Setting;

/// How figures of ours come about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum How {
    /// Arithmetic on the paper's own figures.
    Derived,
    /// By the planner, with durations that the paper's tables give.
    Predicted,
    /// By the formulas of a described machine, on mini-batches counted on a stand-in; nothing is fitted.
    Described,
    /// Exact counts on a stand-in.
    Counted,
    /// Executed on the simulated accelerator.
    Executed,
    /// Seconds or accuracy on this machine.
    Measured,
    /// A drawing of a design, which ours has as code.
    Drawing,
    /// Not to be had here.
    Absent,
}

impl How {
    pub(crate) const ALL: [(Self, &str); 8] = [
        (Self::Derived, "arithmetic on the paper's own figures"),
        (
            Self::Predicted,
            "by the planner, from durations that the paper's tables give; the note says which are fitted to what",
        ),
        (
            Self::Described,
            "by the formulas of [machines.md](machines.md) for the paper's machine, on mini-batches counted on a stand-in; nothing is fitted",
        ),
        (Self::Counted, "exact counts on a stand-in"),
        (
            Self::Executed,
            "executed in simulated time on the simulated accelerator, by threads and mini-batches that are real: plans of predicted \
durations, each of which varies by 5% around its mean (an assumption); or trained by `--machine` on a stand-in, with figures of its own",
        ),
        (Self::Measured, "measured on this machine's CPU"),
        (Self::Drawing, "a drawing of a design, which ours has as code"),
        (Self::Absent, "not to be had here, for the reason that the note gives"),
    ];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Derived => "derived",
            Self::Predicted => "predicted",
            Self::Described => "described",
            Self::Counted => "counted",
            Self::Executed => "executed",
            Self::Measured => "measured",
            Self::Drawing => "drawing",
            Self::Absent => "absent",
        }
    }
}

/// A statement of the paper, which a run checks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Statement {
    /// What the paper says, in our words.
    pub(crate) says: &'static str,
    /// Why ours differs, where it does.
    pub(crate) differs: Option<&'static str>,
}

/// A statement that ours agrees with.
pub(crate) const fn agrees(says: &'static str) -> Statement {
    Statement { says, differs: None }
}

/// A statement that ours does not agree with, and why.
pub(crate) const fn differs(says: &'static str, why: &'static str) -> Statement {
    Statement { says, differs: Some(why) }
}

/// A table or figure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    /// Paper and number: `M:V` is Table V of MorphGL, `M:6` its Figure 6.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) how: &'static [How],
    /// The files of the mechanism.
    pub(crate) code: &'static [&'static str],
    pub(crate) statements: &'static [Statement],
    /// What is fitted or assumed, or why it cannot be had.
    pub(crate) note: &'static str,
    /// What makes ours; `None` where nothing is run.
    pub(crate) run: Option<fn(&Setting) -> Result<Shown>>,
}

impl Row {
    /// A drawing of a design, which ours has as code: nothing is run.
    pub(crate) const fn drawing(
        id: &'static str,
        title: &'static str,
        code: &'static [&'static str],
        note: &'static str,
    ) -> Self {
        Self { id, title, how: &[How::Drawing], code, statements: &[], note, run: None }
    }

    /// Letter of the paper.
    #[cfg(test)]
    pub(crate) fn paper(&self) -> &'static str {
        self.id.split(':').next().unwrap_or_default()
    }

    /// Name in the paper: `Table V`, `Figure 6`.
    pub(crate) fn name(&self) -> String {
        let number = self.id.split(':').nth(1).unwrap_or_default();
        match number.strip_prefix('T') {
            Some(table) => format!("Table {table}"),
            None if number.starts_with(['I', 'V', 'X']) => format!("Table {number}"),
            None => format!("Figure {number}"),
        }
    }

    pub(crate) fn how(&self) -> String {
        self.how.iter().map(|how| how.word()).collect::<Vec<_>>().join(", ")
    }

    /// What a run needs: nothing but the program for arithmetic and plans, else cores, and memory as the recorded run has it.
    pub(crate) fn needs(&self) -> String {
        let is_alone = |how: &How| matches!(how, How::Derived | How::Predicted);
        if self.run.is_none() || self.how.iter().all(is_alone) {
            return "nothing".into();
        }
        let cores = if self.how.contains(&How::Measured) { "CPU, idle but for it" } else { "CPU" };
        self.recorded().map_or(cores.into(), |recorded| format!("{cores}, {:.1} GB", recorded.memory_gb))
    }

    /// What a run took, and held, in the recorded run; `None` where nothing is run, or it was not recorded.
    pub(crate) fn recorded(&self) -> Option<Recorded> {
        self.run?;
        record().rows.get(self.id).copied()
    }

    /// Seconds of the recorded run, in words.
    pub(crate) fn time(&self) -> String {
        self.recorded().map_or(String::new(), |recorded| format!("{:.1} s", recorded.seconds))
    }
}

/// A run of all rows, which `morphgl reproduce --all --out DIR` writes as `DIR/record.json`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) rows: BTreeMap<String, Recorded>,
}

/// What a row took, of a process that ran it alone, but for the start of the program.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Recorded {
    pub(crate) seconds: f64,
    /// Peak memory of the process, in GB.
    pub(crate) memory_gb: f64,
}

/// The recorded run.
pub(crate) fn record() -> Record {
    serde_json::from_str(include_str!("record.json")).expect("record.json is a record")
}

/// A figure of the paper beside ours.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    /// The paper's.
    pub(crate) paper: Option<f64>,
    /// Predicted on the paper's machine.
    pub(crate) predicted: Option<f64>,
    /// Executed on the simulated accelerator.
    pub(crate) executed: Option<f64>,
    /// Counted or measured on this machine.
    pub(crate) here: Option<f64>,
}

impl Figure {
    pub(crate) fn new(name: impl Into<String>, unit: &'static str) -> Self {
        Self { name: name.into(), unit, paper: None, predicted: None, executed: None, here: None }
    }

    pub(crate) fn paper(self, figure: f64) -> Self {
        Self { paper: Some(figure), ..self }
    }

    pub(crate) fn predicted(self, figure: f64) -> Self {
        Self { predicted: Some(figure), ..self }
    }

    pub(crate) fn executed(self, figure: f64) -> Self {
        Self { executed: Some(figure), ..self }
    }

    pub(crate) fn here(self, figure: f64) -> Self {
        Self { here: Some(figure), ..self }
    }
}

/// Whether a statement holds, with our figure.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) holds: bool,
    pub(crate) ours: String,
}

impl Verdict {
    pub(crate) fn new(holds: bool, ours: impl Into<String>) -> Self {
        Self { holds, ours: ours.into() }
    }
}

/// What a row shows.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Shown {
    pub(crate) figures: Vec<Figure>,
    /// One for each of the row's statements, in their order.
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) charts: Vec<LineChart>,
}

impl Shown {
    pub(crate) fn new(figures: Vec<Figure>, verdicts: Vec<Verdict>) -> Self {
        Self { figures, verdicts, charts: Vec::new() }
    }
}
