//! Figures and errors in words.

use indicatif::HumanCount;
use morphgl_graph_store::Dataset;

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
