//! What is said about a run: its length, how it ended, its scores.

use std::collections::BTreeMap;

use indicatif::HumanCount;
use morphgl_execute::CountersByOperator;
use morphgl_model_core::{ScoreKind, Task};
use morphgl_plan::Time;
use morphgl_registry::{CACHE_HITS, CACHE_REQUESTS};
use serde_json::{Value, json};

use super::RunResult;
use crate::{Evaluated, JobConfig, Plan, StopReason, TrainOptions, TrainReport, words};

/// A number of epochs in words, with the optimizer steps that they take: `3 epochs (30 steps)`.
fn epochs_and_steps(epochs: u32, steps_per_epoch: usize) -> String {
    let epochs = u64::from(epochs);
    format!("{} ({})", words::plural(epochs, "epoch"), words::plural(epochs * steps_per_epoch as u64, "step"))
}

/// The length of a run without `--epochs`, in words.
pub(super) fn length(options: &TrainOptions, steps_per_epoch: usize) -> String {
    let max = epochs_and_steps(options.epochs, steps_per_epoch);
    let Some(patience) = options.patience else {
        return format!("trains {max}, as nothing is validated; set --epochs for another number");
    };
    let patience = epochs_and_steps(patience, steps_per_epoch);
    let every = match options.evaluate_every {
        1 => "epoch".to_string(),
        every => format!("{every} epochs"),
    };
    format!("trains until validation has not improved for {patience}, at most {max}; evaluates every {every}")
}

/// The stop reason, in words; `open` where the number of epochs was not given.
pub(super) fn stop_reason(open: bool, report: &TrainReport, options: &TrainOptions, steps_per_epoch: usize) -> String {
    match report.stop_reason {
        StopReason::Interrupted => "interrupted".to_string(),
        StopReason::Requested => "stopped after an epoch by what watches the run".to_string(),
        StopReason::Patience => {
            let best = report.best.as_ref().map_or(0, |best| best.epoch);
            let since = report.epochs.last().map_or(0, |last| last.epoch - best);
            format!("stopped early: validation has not improved for {}", epochs_and_steps(since, steps_per_epoch))
        }
        StopReason::Epochs if open && options.patience.is_some() => {
            let bound = epochs_and_steps(options.epochs, steps_per_epoch);
            format!("stopped at the bound of {bound}; --epochs trains longer")
        }
        StopReason::Epochs => "all epochs done".to_string(),
    }
}

/// The configuration as a flat list of names and values.
pub(super) fn configuration(config: &JobConfig, options: &TrainOptions) -> Vec<(String, String)> {
    fn flatten(prefix: &str, value: &Value, rows: &mut Vec<(String, String)>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let name = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                    flatten(&name, value, rows);
                }
            }
            Value::String(text) => rows.push((prefix.to_string(), text.clone())),
            other => rows.push((prefix.to_string(), other.to_string())),
        }
    }
    let mut rows = Vec::new();
    for value in [serde_json::to_value(config), serde_json::to_value(options)].into_iter().flatten() {
        flatten("", &value, &mut rows);
    }
    rows
}

/// Counters of all epochs, one line per operator.
fn counter_lines(counters: &CountersByOperator) -> String {
    let line = |(operator, counters): (&String, &BTreeMap<String, u64>)| {
        let text = |(name, &n): (&String, &u64)| match name.ends_with("_bytes") {
            true => format!("{name} {}", words::bytes(n)),
            false => format!("{name} {}", HumanCount(n)),
        };
        let mut all: Vec<String> = counters.iter().map(text).collect();
        if let (Some(&hits), Some(&requests)) = (counters.get(CACHE_HITS.name), counters.get(CACHE_REQUESTS.name))
            && requests > 0
        {
            all.push(format!("cache hit rate {:.1}%", 100.0 * hits as f64 / requests as f64));
        }
        format!("{operator}: {}\n", all.join(", "))
    };
    counters.iter().map(line).collect()
}

/// Scores, times, counters and the stop reason of a run, and the process's `peak` memory in bytes.
pub(super) fn summary(
    report: &TrainReport,
    (kind, task): (ScoreKind, Task),
    plan: &Plan,
    stop_reason: &str,
    peak: u64,
) -> RunResult {
    let accuracy = |evaluated: &Evaluated| (task != Task::Regress).then(|| evaluated.sums.accuracy());
    let score = |which: &str, evaluated: &Evaluated| {
        let Some(accuracy) = accuracy(evaluated) else {
            return format!("{which} {kind} {}", kind.words(evaluated.score(kind)));
        };
        let accuracy = format!("accuracy {}", ScoreKind::Accuracy.words(accuracy));
        match kind {
            ScoreKind::Accuracy => format!("{which} {accuracy}"),
            kind => format!("{which} {kind} {} ({accuracy})", kind.words(evaluated.score(kind))),
        }
    };
    let best = report.best.as_ref();
    let test = report.test;
    let valid = best.map(|b| format!("{} in epoch {}", score("best validation", &b.valid), b.epoch));
    let tested = test.map(|t| score("test", &t));
    let scores: Vec<String> = valid.into_iter().chain(tested).collect();
    let mut text = scores.join("; ");
    text.extend((!text.is_empty()).then_some('\n'));
    let predicted = plan.prediction.epoch_seconds;
    let measured = report.median_epoch_seconds();
    if let Some(measured) = measured {
        let off = 100.0 * (measured / predicted - 1.0);
        let (predicted, measured) = (Time(predicted), Time(measured));
        text += &format!("epoch: predicted {predicted}, measured {measured} (median, {off:+.0}%)\n");
    }
    let counters = report.counters();
    text += &counter_lines(&counters);
    text += &format!("{stop_reason}; peak memory {}\n", words::bytes(peak));
    let json = json!({
        "score": kind,
        "test_score": test.map(|t| t.score(kind)),
        "best_valid_score": best.map(|b| b.valid.score(kind)),
        "test_accuracy": test.as_ref().and_then(accuracy),
        "test_loss": test.map(|t| t.sums.loss()),
        "best_valid_accuracy": best.and_then(|b| accuracy(&b.valid)),
        "best_epoch": best.map(|b| b.epoch),
        "epochs": report.epochs,
        "predicted_epoch_seconds": predicted,
        "measured_epoch_seconds": measured,
        "counters": counters,
        "plan": plan,
        "ended": report.stop_reason,
        "peak_rss_bytes": peak,
    });
    RunResult { report: report.clone(), text, json, unwritten: None }
}
