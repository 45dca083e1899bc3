//! The section on the comparison of training operators.

use morphgl_plan::Time;

use crate::markup::escape;
use crate::report::{Report, TrainingCandidate};
use crate::sections::section;
use crate::table::{headings, table, two_lines};

/// The table of compared training operators; empty if there was no choice.
pub(crate) fn candidates(report: &Report) -> String {
    let names = headings(&["Operator", "Trained at", "#Mini-batch", "#From, to", "#Steps"]);
    let rows: Vec<(&str, Vec<String>)> = report.candidates.iter().map(row).collect();
    let below = "Of the operators at a place the fastest trains. A mini-batch is batched, transferred and trained, one after the \
                 other, with all cores.";
    section("", "Training operators", below, &table(&names, &rows))
}

fn row(c: &TrainingCandidate) -> (&'static str, Vec<String>) {
    let badge = if c.chosen { r#" <span class="badge chosen">chosen</span>"# } else { "" };
    let time = |seconds: f64| Time(seconds).to_string();
    let cells = vec![
        two_lines(&format!("{}{badge}", escape(&c.operator)), &c.outcome),
        escape(&c.place),
        c.seconds.map_or_else(|| "–".into(), time),
        c.range.map_or_else(|| "–".into(), |(least, most)| format!("{}, {}", time(least), time(most))),
        c.steps.to_string(),
    ];
    (if c.chosen { "chosen" } else { "" }, cells)
}
