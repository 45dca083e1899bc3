//! What a measurement comes to: one row a unit for people, one document for programs.

use morphgl_platform::SimdLevel;
use serde_json::{Map, Value, json};

use super::load::Measured;
use crate::cli::{Outcome, show};

/// One measurement.
#[derive(Debug)]
pub(super) struct Report {
    /// What was measured: the name of the command.
    pub(super) what: &'static str,
    /// The dataset, or the file.
    pub(super) data: String,
    pub(super) threads: usize,
    /// Unit of `all`.
    pub(super) unit: &'static str,
    /// One value a repeat, or a step.
    pub(super) all: Vec<f64>,
    /// The same in other units, for people.
    pub(super) more: Vec<(&'static str, Vec<f64>)>,
    /// What it was measured with, for people.
    pub(super) with: String,
    pub(super) load: Measured,
    /// Further fields of the document.
    pub(super) fields: Map<String, Value>,
}

/// The middle value, or the mean of the two in the middle; NaN of none.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.get(sorted.len().wrapping_sub(1) / 2), sorted.get(sorted.len() / 2)) {
        (Some(low), Some(high)) => (low + high) / 2.0,
        _ => f64::NAN,
    }
}

/// The least and the most.
fn ends(values: &[f64]) -> (f64, f64) {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    (least, values.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}

/// A number with as many digits as a measurement has.
fn digits(x: f64) -> String {
    match x.abs() {
        a if a >= 10_000.0 => show::number(x.round() as u64),
        a if a >= 100.0 => format!("{x:.0}"),
        a if a >= 10.0 => format!("{x:.1}"),
        a if a >= 0.1 => format!("{x:.2}"),
        _ => format!("{x:.4}"),
    }
}

impl Report {
    fn text(&self) -> String {
        let row = |(unit, values): (&str, &[f64])| {
            let (least, most) = ends(values);
            let spread = format!("{:.0}%", 100.0 * (most - least) / median(values));
            vec![unit.to_string(), digits(median(values)), digits(least), digits(most), spread]
        };
        let series = self.more.iter().map(|(unit, values)| (*unit, values.as_slice()));
        let rows: Vec<_> = std::iter::once((self.unit, self.all.as_slice())).chain(series).map(row).collect();
        let threads = if self.threads == 1 { "1 thread".to_string() } else { format!("{} threads", self.threads) };
        let cores = |c: Option<f64>| c.map_or("an unknown number of".to_string(), |c| format!("{c:.1}"));
        let level = SimdLevel::current();
        let mut text = format!("{} of {}, {threads}, {level}; {}\n", self.what, self.data, self.with);
        text += &show::table(&["unit", "median", "least", "most", "spread"], &rows, &[0]);
        let (own, others) = (cores(self.load.own), cores(self.load.others));
        text += &format!("{} values; this kept {own} cores busy, other programs {others}\n", self.all.len());
        text
    }

    /// For people and for programs.
    pub(super) fn outcome(self) -> Outcome {
        let text = self.text();
        let (least, most) = ends(&self.all);
        let load1 = std::fs::read_to_string("/proc/loadavg").ok();
        let load1 = load1.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
        let mut json = json!({
            "what": self.what, "peer": "morphgl", "data": self.data, "threads": self.threads, "isa": SimdLevel::current().name(), "unit": self.unit,
            "median": median(&self.all), "min": least, "max": most, "all": self.all,
            "cores_own": self.load.own, "cores_others": self.load.others, "load1": load1,
            "rss_peak_gb": crate::peak_rss_bytes() as f64 / 1e9,
            "versions": { "morphgl": env!("CARGO_PKG_VERSION") },
        });
        if let Value::Object(document) = &mut json {
            document.extend(self.fields);
        }
        Outcome::new(text, json)
    }
}

/// The fields of a JSON object.
pub(super) fn fields(object: Value) -> Map<String, Value> {
    match object {
        Value::Object(fields) => fields,
        other => unreachable!("not an object: {other}"),
    }
}

#[cfg(test)]
mod tests;
