//! The outcome of a measurement: a table with one row per unit for people, one document for programs.

use indicatif::HumanCount;
use morphgl_platform::SimdLevel;
use serde_json::{Value, json};

use crate::cli::{Outcome, show};
use crate::load::Cores;
use crate::median;

/// One measurement.
#[derive(Debug)]
pub(super) struct Measurement {
    /// Name of the command.
    pub(super) what: &'static str,
    /// Name of the dataset or file.
    pub(super) data: String,
    pub(super) threads: usize,
    /// Unit of `values`.
    pub(super) unit: &'static str,
    /// One value per repeat or per step.
    pub(super) values: Vec<f64>,
    /// The same in other units, for the table alone.
    pub(super) other_units: Vec<(&'static str, Vec<f64>)>,
    /// Settings in words, for the table alone.
    pub(super) settings: String,
    pub(super) load: Cores,
    /// Text behind the table.
    pub(super) details: String,
    /// Further fields of the document, as JSON objects.
    pub(super) fields: Vec<Value>,
}

/// The minimum and the maximum.
fn range(values: &[f64]) -> (f64, f64) {
    let min = values.iter().copied().fold(f64::INFINITY, f64::min);
    (min, values.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}

/// A number with as many digits as a measurement has.
fn digits(x: f64) -> String {
    match x.abs() {
        a if a >= 10_000.0 => HumanCount(x.round() as u64).to_string(),
        a if a >= 100.0 => format!("{x:.0}"),
        a if a >= 10.0 => format!("{x:.1}"),
        a if a >= 0.1 => format!("{x:.2}"),
        _ => format!("{x:.4}"),
    }
}

impl Measurement {
    fn text(&self) -> String {
        let row = |(unit, values): (&str, &Vec<f64>)| {
            let (median, (min, max)) = (median(values), range(values));
            let spread = format!("{:.0}%", 100.0 * (max - min) / median);
            vec![unit.to_string(), digits(median), digits(min), digits(max), spread]
        };
        let other_units = self.other_units.iter().map(|(unit, values)| (*unit, values));
        let rows: Vec<_> = std::iter::once((self.unit, &self.values)).chain(other_units).map(row).collect();
        let table = show::table(&["unit", "median", "least", "most", "spread"], &rows, &[0]);
        let cores = |c: Option<f64>| c.map_or("an unknown number of".to_string(), |c| format!("{c:.1}"));
        format!(
            "{} of {}, {}, {}; {}\n{table}{} values; this kept {} cores busy, other programs {}\n{}",
            self.what,
            self.data,
            show::plural(self.threads as u64, "thread"),
            SimdLevel::current(),
            self.settings,
            self.values.len(),
            cores(self.load.own),
            cores(self.load.others),
            self.details,
        )
    }

    /// The table and the document.
    pub(super) fn outcome(self, peak: u64) -> Outcome {
        let text = self.text();
        let (min, max) = range(&self.values);
        let load1 = std::fs::read_to_string("/proc/loadavg").ok();
        let load1 = load1.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
        let mut json = json!({
            "what": self.what, "peer": "morphgl", "data": self.data, "threads": self.threads,
            "isa": SimdLevel::current().name(), "unit": self.unit,
            "median": median(&self.values), "min": min, "max": max, "all": self.values,
            "cores_own": self.load.own, "cores_others": self.load.others, "load1": load1,
            "rss_peak_gb": peak as f64 / 1e9,
            "versions": { "morphgl": env!("CARGO_PKG_VERSION") },
        });
        let document = json.as_object_mut().expect("an object");
        for fields in self.fields {
            document.extend(fields.as_object().expect("an object").clone());
        }
        Outcome::new(text, json)
    }
}

#[cfg(test)]
mod tests;
