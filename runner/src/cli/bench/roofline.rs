//! The passes of training steps beside the processor's peaks, of `morphgl bench step --roofline`.

use anyhow::Result;
use morphgl_registry::{Bound, Key, MiniBatch, Pass, Roofline, Training};
use serde_json::{Value, json};

use crate::cli::show;
use crate::median;
use crate::usage::Usage;

/// The rooflines of steps of the same model.
#[derive(Debug, Default)]
pub(super) struct Rooflines {
    steps: Vec<Roofline>,
}

/// One pass over all steps.
struct Row {
    name: String,
    /// Milliseconds, and the least that the peaks allow.
    ms: f64,
    least_ms: Option<f64>,
    bound: Option<Bound>,
    /// Means of the work.
    gflop: f64,
    mb: f64,
    /// Median of the steps' shares of the roofline.
    share: Option<f64>,
}

fn word(bound: Bound) -> &'static str {
    match bound {
        Bound::Compute => "compute",
        Bound::Memory => "memory",
    }
}

impl Rooflines {
    /// Keeps the passes of the step that was taken last, over `batch`.
    ///
    /// # Errors
    ///
    /// An operator that does not time its passes.
    pub(super) fn add(&mut self, key: &Key, operator: &mut dyn Training, batch: &MiniBatch) -> Result<()> {
        let Some(roofline) = operator.roofline(batch) else {
            let what =
                format!("--roofline: {key} does not time the passes of a step; Training_CPU_Native does (--training)");
            return Err(Usage::error(what));
        };
        self.steps.push(roofline?);
        Ok(())
    }

    fn rows(&self) -> Vec<Row> {
        let passes = self.steps.first().map_or(0, |step| step.passes.len());
        (0..passes).map(|i| self.row(i)).collect()
    }

    fn row(&self, pass: usize) -> Row {
        let of = |figure: &dyn Fn(&Roofline, &Pass) -> f64| -> Vec<f64> {
            self.steps.iter().map(|step| figure(step, &step.passes[pass])).collect()
        };
        let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len() as f64;
        let least = |step: &Roofline, pass: &Pass| step.bound(pass).map_or(f64::NAN, |(seconds, _)| seconds);
        let bound = self.steps[0].bound(&self.steps[0].passes[pass]).map(|(_, bound)| bound);
        let is_bound = |value: f64| bound.map(|_| value);
        Row {
            name: self.steps[0].passes[pass].name.clone(),
            ms: median(&of(&|_, pass| 1e3 * pass.seconds)),
            least_ms: is_bound(median(&of(&|step, pass| 1e3 * least(step, pass)))),
            bound,
            gflop: mean(of(&|_, pass| pass.flops / 1e9)),
            mb: mean(of(&|_, pass| pass.bytes / 1e6)),
            share: is_bound(median(&of(&|step, pass| least(step, pass) / pass.seconds))),
        }
    }

    /// Peak GFLOP and GB per second.
    fn peaks(&self) -> [f64; 2] {
        self.steps.first().map_or([f64::NAN; 2], |step| [step.flops_per_s / 1e9, step.bytes_per_s / 1e9])
    }

    /// The table, with the whole of steps that take `ms` milliseconds.
    pub(super) fn text(&self, ms: f64) -> String {
        let rows = self.rows();
        let [gflop_per_s, gb_per_s] = self.peaks();
        let least: f64 = rows.iter().filter_map(|row| row.least_ms).sum();
        let percent = |share: f64| format!("{:.0}%", 100.0 * share);
        let none = || "-".to_string();
        let line = |row: &Row| {
            let (least, bound) = (row.least_ms.map_or_else(none, |ms| format!("{ms:.2}")), row.bound.map_or("-", word));
            let work = [row.gflop, row.mb].map(|work| if row.bound.is_some() { format!("{work:.2}") } else { none() });
            let [gflop, mb] = work;
            let share = row.share.map_or_else(none, percent);
            vec![row.name.clone(), format!("{:.2}", row.ms), gflop, mb, least, bound.to_string(), share]
        };
        let mut lines: Vec<Vec<String>> = rows.iter().map(line).collect();
        let [gflop, mb] = [|row: &Row| row.gflop, |row: &Row| row.mb].map(|of| rows.iter().map(of).sum::<f64>());
        let whole = [ms, gflop, mb, least].map(|value| format!("{value:.2}"));
        let whole = [vec!["step".to_string()], whole.to_vec(), vec![none(), percent(least / ms)]];
        lines.push(whole.concat());
        let header = ["pass", "ms", "GFLOP", "MB", "least ms", "bound by", "of the roofline"];
        let table = show::table(&header, &lines, &[0, 5]);
        format!("peaks: {gflop_per_s:.1} GFLOP/s of GEMMs, {gb_per_s:.1} GB/s of reads\n{table}")
    }

    /// The fields of the document.
    pub(super) fn json(&self) -> Value {
        let [gflop_per_s, gb_per_s] = self.peaks();
        let row = |row: Row| {
            json!({
                "pass": row.name, "ms": row.ms, "gflop": row.gflop, "mb": row.mb, "least_ms": row.least_ms,
                "bound": row.bound.map(word), "share": row.share,
            })
        };
        let passes: Vec<Value> = self.rows().into_iter().map(row).collect();
        json!({"peak_gflop_per_s": gflop_per_s, "read_gb_per_s": gb_per_s, "passes": passes})
    }
}
