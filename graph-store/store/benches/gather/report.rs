//! What the bench prints: a table, or one JSON document per line.

use morphgl_graph_store::FeatureMatrix;

/// What a line is about.
pub(crate) struct Row<'a> {
    pub(crate) matrix: &'a FeatureMatrix,
    pub(crate) threads: usize,
    pub(crate) share: &'static str,
}

pub(crate) struct Report {
    json: bool,
    ratios: Vec<f64>,
}

impl Report {
    pub(crate) fn new(json: bool) -> Self {
        if !json {
            println!(
                "{:<5} {:>7} {:>9} {:>7} {:<24} {:<30} {:>7} {:>7} {:>7}  ratio to the fastest loop (min, max)",
                "type", "columns", "row bytes", "threads", "share", "what", "min", "median", "max"
            );
        }
        Self { json, ratios: Vec::new() }
    }

    /// Adds one line; with the speeds that the rounds allowed, their ratio.
    pub(crate) fn add(&mut self, row: &Row<'_>, what: &str, speeds: &[f64], limit: Option<&[f64]>) {
        let (min, median, max) = spread(speeds);
        let Row { matrix, threads, share } = row;
        let (dtype, columns, row_bytes) = (matrix.dtype(), matrix.dim(), matrix.row_bytes());
        let ratio = limit.map(|limit| spread(&speeds.iter().zip(limit).map(|(a, b)| a / b).collect::<Vec<_>>()));
        self.ratios.extend(ratio.map(|ratio| ratio.1));
        if self.json {
            let mut line = serde_json::json!({
                "what": "gather", "isa": morphgl_platform::SimdLevel::current().name(), "peer": "morphgl", "variant": what, "unit": "GB/s", "dtype": dtype.to_string(),
                "columns": columns, "row_bytes": row_bytes, "threads": threads, "share": share,
                "median": median, "min": min, "max": max, "all": speeds,
            });
            if let Some((min, median, max)) = ratio {
                line["ratio_to_limit"] = serde_json::json!({ "median": median, "min": min, "max": max });
            }
            println!("{line}");
            return;
        }
        let ratio = ratio.map_or(String::new(), |(min, median, max)| format!("{median:.2} ({min:.2}, {max:.2})"));
        println!(
            "{:<5} {columns:>7} {row_bytes:>9} {threads:>7} {share:<24} {what:<30} {min:>7.2} {median:>7.2} {max:>7.2}  {ratio}",
            dtype.to_string()
        );
    }

    /// The spread of all ratios.
    pub(crate) fn end(&self) {
        if !self.json && !self.ratios.is_empty() {
            let (min, median, max) = spread(&self.ratios);
            println!("ratios to the fastest loop: median {median:.2}, from {min:.2} to {max:.2}");
        }
    }
}

/// Minimum, median and maximum.
fn spread(values: &[f64]) -> (f64, f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    (sorted[0], sorted[sorted.len() / 2], sorted[sorted.len() - 1])
}
