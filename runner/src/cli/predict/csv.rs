//! Predictions as csv.

use std::io::Write;

use morphgl_model_core::Task;
use serde_json::Value;

use crate::session::Predictions;
use crate::{RunContext, words};

/// Writes a node's id, or its name as a cell.
pub(super) fn write_node(out: &mut (impl Write + ?Sized), node: &Value, quotes: bool) -> std::io::Result<()> {
    match node.as_str() {
        Some(name) => cell(out, name, quotes),
        None => write!(out, "{node}"),
    }
}

fn cell(out: &mut (impl Write + ?Sized), text: &str, quotes: bool) -> std::io::Result<()> {
    let apostrophe = if quotes && is_formula(text) { "'" } else { "" };
    if text.contains([',', '"', '\n', '\r']) {
        // Quotes within a quoted field are doubled.
        write!(out, "\"{apostrophe}{}\"", text.replace('"', "\"\""))
    } else {
        write!(out, "{apostrophe}{text}")
    }
}

/// Predictions as csv.
pub(super) struct Csv<'a> {
    pub(super) predictions: &'a Predictions,
    /// Whether every class has a column, as labels and values do.
    pub(super) all: bool,
    /// Whether an apostrophe is put before what spreadsheets take for a formula.
    pub(super) quotes: bool,
}

impl Csv<'_> {
    pub(super) fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        let Predictions { of, classes, probabilities, class_names, outputs, width, task, .. } = self.predictions;
        let classify = *task == Task::Classify;
        out.write_all(of.names().1.as_bytes())?;
        out.write_all(if classify { b",class,probability" } else { b"" })?;
        for column in self.predictions.columns().iter().filter(|_| self.all) {
            out.write_all(b",")?;
            cell(out, column, self.quotes)?;
        }
        out.write_all(b"\n")?;
        for i in 0..of.len() {
            for (end, node) in of.row(i).iter().enumerate() {
                out.write_all(if end > 0 { b"," } else { b"" })?;
                write_node(out, node, self.quotes)?;
            }
            if classify {
                out.write_all(b",")?;
                match class_names {
                    Some(names) => cell(out, &names[classes[i] as usize], self.quotes)?,
                    None => write!(out, "{}", classes[i])?,
                }
                write!(out, ",{:.6}", probabilities[i])?;
            }
            for output in outputs[i * width..(i + 1) * width].iter().filter(|_| self.all) {
                if *task == Task::Regress { write!(out, ",{output}")? } else { write!(out, ",{output:.6}")? }
            }
            out.write_all(b"\n")?;
        }
        Ok(())
    }

    /// Says that there are names which spreadsheets take for formulas, where these are written as they are.
    pub(super) fn remark_formulas(&self, context: &RunContext) {
        let Predictions { of, classes, class_names, .. } = self.predictions;
        let named = class_names.iter().flat_map(|names| classes.iter().map(|&class| &*names[class as usize]));
        let count = of.ids().iter().filter_map(Value::as_str).chain(named).filter(|text| is_formula(text)).count();
        if count > 0 && !self.quotes {
            let cells = words::plural(count as u64, "cell");
            context.remark(format_args!(
                "{cells} of the csv begin with =, +, - or @, which spreadsheets take for a formula; --quote-formulas avoids it"
            ));
        }
    }
}

/// Whether spreadsheets take a cell for a formula; numbers are none.
fn is_formula(text: &str) -> bool {
    text.trim_start().starts_with(['=', '+', '-', '@']) && text.parse::<f64>().is_err()
}
