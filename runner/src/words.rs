//! Figures and errors in words.

use indicatif::HumanCount;
use morphgl_graph_store::Dataset;
use morphgl_plan::{Plans, Time};

/// An error and its causes on one line, without causes whose text is already there.
pub(crate) fn one_line(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string().replace('\n', " ");
        // Errors of this workspace repeat the system's message without its number.
        let message = cause.split(" (os error").next().unwrap_or_default().to_lowercase();
        if !text.to_lowercase().contains(&message) {
            text = if text.is_empty() { cause } else { format!("{text}: {cause}") };
        }
    }
    text
}

/// Bytes with one decimal, in the largest unit of which there is at least one.
pub(crate) fn bytes(n: u64) -> String {
    match (n.max(1).ilog2() / 10).min(4) {
        0 => format!("{n} B"),
        power => format!("{:.1} {}iB", n as f64 / 1024f64.powi(power as i32), char::from(b"BKMGT"[power as usize])),
    }
}

/// What is not trained by though its prediction is shorter, where that is so; `what` it is.
pub(crate) fn kept_simpler(what: &str, shorter: f64, chosen: f64) -> String {
    let (seconds, part) = (Time(shorter), 100.0 * (1.0 - shorter / chosen));
    format!(
        "not taken: {what}, {seconds} per epoch predicted, {part:.1}% shorter; several routes at once are taken where the epoch is 5% \
         shorter, because the durations of each are those without the others"
    )
}

/// The mix of routes that is predicted to be shorter than the plan that `auto` takes, where one is.
pub(crate) fn passed_over(plans: &Plans) -> Option<String> {
    let (mix, chosen) = (plans.passed_over()?, plans.chosen());
    Some(kept_simpler(&plans.describe(mix), mix.prediction.epoch_seconds, chosen.prediction.epoch_seconds))
}

/// How many features nodes have.
pub(crate) fn features(dataset: &Dataset) -> String {
    let by_type = &dataset.features_by_type;
    let with_features = by_type.iter().flatten().count();
    match with_features {
        0 => plural(dataset.feature_dim() as u64, "feature"),
        _ => format!("features of {with_features} of {} node types", by_type.len()),
    }
}

/// A count and its noun, in the plural unless it is 1.
pub(crate) fn plural(n: u64, noun: &str) -> String {
    let ending = match noun.ends_with("batch") {
        _ if n == 1 => "",
        true => "es",
        false => "s",
    };
    format!("{} {noun}{ending}", HumanCount(n))
}
