//! `morphgl predict`: classes of nodes, by a trained model.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;
use indicatif::HumanCount;
use morphgl_graph_store::NpyWriter;
use morphgl_platform::{Replacement, replace_file};
use serde_json::{Value, json};

use super::show;
use super::{Invocation, Outcome};
use crate::RunContext;
use crate::paths::lossy;
use crate::session::{InferenceConfig, Predictions, Trained};
use crate::usage::Usage;

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl predict cora.safetensors cora                            csv of all nodes on stdout
  morphgl predict cora.safetensors cora --nodes test -o test.csv
  morphgl predict runs/cora -o all.csv                             the model of a run, on its dataset
  morphgl predict cora.safetensors cora --nodes ids.txt -o classes.npy
  mpirun -n 4 morphgl predict cora.safetensors cora -o all.csv     each rank computes a part of every layer")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) trained: InferenceConfig,
    /// Nodes to predict: all, train, valid, test, or a file with one id per line, as the graph's source has them
    #[arg(long, default_value = "all")]
    nodes: PathBuf,
    /// File to write: .csv (node,class,probability; classes by their names, where the model has them) or .npy (class numbers as
    /// i32, in the nodes' order)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Writes an apostrophe before names in csv that begin with =, +, - or @, which spreadsheets take for formulas
    #[arg(long)]
    quote_formulas: bool,
}

pub(crate) fn run(args: &Args, call: &Invocation<'_>) -> anyhow::Result<Outcome> {
    if let Some(path) = &args.output
        && !matches!(path.extension().and_then(|e| e.to_str()), Some("csv" | "npy"))
    {
        let what = format!("--output {}: predictions are written as .csv or .npy; name the file so", path.display());
        return Err(Usage::error(what));
    }
    let context = &RunContext::of_inference(call.process, call.stop.clone(), call.observer(), args.trained.time_limit)?;
    let mut trained = Trained::open(context, args.trained.clone(), call.dataset.clone(), false)?;
    let nodes = trained.nodes(&args.nodes)?;
    let predictions = trained.predict(&nodes)?;
    if let Some((_, text)) = &predictions.ranks {
        context.remark(text.trim_end());
        if !context.is_first_rank() {
            return Ok(Outcome::new(String::new(), Value::Null));
        }
    }
    let with_ranks = |mut json: Value| {
        predictions.ranks.iter().for_each(|(ranks, _)| json["ranks"] = ranks.clone());
        json
    };
    let csv = Csv { predictions: &predictions, quotes: args.quote_formulas };
    let Some(path) = &args.output else {
        let Predictions { ids, classes, probabilities, class_names, .. } = &predictions;
        let json = json!({
            "nodes": ids, "classes": classes, "class_names": class_names, "probabilities": probabilities
        });
        let mut text = Vec::new();
        csv.write(&mut text)?;
        csv.remark_formulas(context);
        return Ok(Outcome::new(String::from_utf8(text)?, with_ranks(json)));
    };
    let failed = || format!("{}: cannot be written; check directory and disk space", path.display());
    if path.extension().is_some_and(|e| e == "npy") {
        let replacement = Replacement::new(path).with_context(failed)?;
        let mut writer = NpyWriter::<i32>::of(path, replacement.create().with_context(failed)?)?;
        writer.write(&predictions.classes)?;
        writer.finish(None)?;
        replacement.finish().with_context(failed)?;
    } else {
        replace_file(path, |out| csv.write(out)).with_context(failed)?;
        csv.remark_formulas(context);
    }
    let text = format!("{} nodes predicted, written to {}\n", HumanCount(nodes.len() as u64), path.display());
    Ok(Outcome::new(text, with_ranks(json!({ "nodes": nodes.len(), "output": lossy(path) }))))
}

/// Predictions as csv.
struct Csv<'a> {
    predictions: &'a Predictions,
    /// Whether an apostrophe is put before what spreadsheets take for a formula.
    quotes: bool,
}

impl Csv<'_> {
    fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        writeln!(out, "node,class,probability")?;
        let Predictions { ids, classes, probabilities, class_names, .. } = self.predictions;
        ids.iter().zip(classes).zip(probabilities).try_for_each(|((node, &class), probability)| {
            match node.as_str() {
                Some(name) => self.cell(out, name)?,
                None => write!(out, "{node}")?,
            }
            out.write_all(b",")?;
            match class_names {
                Some(names) => self.cell(out, &names[class as usize])?,
                None => write!(out, "{class}")?,
            }
            writeln!(out, ",{probability:.6}")
        })
    }

    fn cell(&self, out: &mut impl Write, text: &str) -> std::io::Result<()> {
        let apostrophe = if self.quotes && is_formula(text) { "'" } else { "" };
        if text.contains([',', '"', '\n', '\r']) {
            // Quotes within a quoted field are doubled.
            write!(out, "\"{apostrophe}{}\"", text.replace('"', "\"\""))
        } else {
            write!(out, "{apostrophe}{text}")
        }
    }

    /// Says that there are names which spreadsheets take for formulas, where these are written as they are.
    fn remark_formulas(&self, context: &RunContext) {
        let Predictions { ids, classes, class_names, .. } = self.predictions;
        let named = class_names.iter().flat_map(|names| classes.iter().map(|&class| &*names[class as usize]));
        let count = ids.iter().filter_map(Value::as_str).chain(named).filter(|text| is_formula(text)).count();
        if count > 0 && !self.quotes {
            let cells = show::plural(count as u64, "cell");
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
