//! `morphgl predict`: classes, labels and values of nodes, and scores of pairs, by a trained model.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Parser;
use indicatif::HumanCount;
use morphgl_graph_store::{Element, NpyWriter};
use morphgl_model_core::Task;
use morphgl_platform::{Replacement, replace_file};
use serde_json::{Value, json};

use super::show;
use super::{Invocation, Outcome};
use crate::RunContext;
use crate::paths::lossy;
use crate::session::{InferenceConfig, PairScores, Predictions, Trained};
use crate::usage::Usage;

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl predict cora.safetensors cora                            csv of all nodes on stdout
  morphgl predict cora.safetensors cora --nodes test -o test.csv
  morphgl predict runs/cora -o all.csv                             the model of a run, on its dataset
  morphgl predict cora.safetensors cora --nodes ids.txt -o classes.npy
  morphgl predict cora.safetensors cora --probabilities -o all.csv  the probability of every class, too
  morphgl predict runs/links --edges pairs.csv                     scores of pairs, by a model of links
  mpirun -n 4 morphgl predict cora.safetensors cora -o all.csv     each rank computes a part of every layer")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) trained: InferenceConfig,
    /// Nodes to predict: all, train, valid, test, or a file with one id per line, as the graph's source has them
    #[arg(long, default_value = "all")]
    nodes: PathBuf,
    /// Pairs to score, by a model of links: a file with two ids per line, source and destination, separated by a comma or a space
    #[arg(long, value_name = "FILE", conflicts_with = "nodes")]
    edges: Option<PathBuf>,
    /// The probability of every class, not of the predicted one alone
    #[arg(long, conflicts_with = "edges")]
    probabilities: bool,
    /// File to write: .csv (node,class,probability; labels' probabilities and values a column each; source,target,score of pairs) by
    /// names, where the model has them; or .npy: class numbers as i32, in the nodes' order; as f32 `[nodes, classes]`
    /// probabilities of classes or labels, or values; `[pairs]` scores
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
    if let Some(edges) = &args.edges {
        return score_pairs(edges, args, &mut trained, context);
    }
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
    let all = args.probabilities || predictions.task != Task::Classify;
    let csv = Csv { predictions: &predictions, all, quotes: args.quote_formulas };
    let Some(path) = &args.output else {
        let Predictions { ids, classes, probabilities, class_names, .. } = &predictions;
        let mut json = match predictions.task {
            Task::Classify => json!({
                "nodes": ids, "classes": classes, "class_names": class_names, "probabilities": probabilities
            }),
            task => json!({ "nodes": ids, "task": task, "columns": predictions.columns() }),
        };
        if all {
            json["outputs"] = json!(predictions.outputs.chunks_exact(predictions.width).collect::<Vec<_>>());
        }
        let mut text = Vec::new();
        csv.write(&mut text)?;
        csv.remark_formulas(context);
        return Ok(Outcome::new(String::from_utf8(text)?, with_ranks(json)));
    };
    let failed = || format!("{}: cannot be written; check directory and disk space", path.display());
    if path.extension().is_some_and(|e| e == "npy") {
        match all {
            true => write_npy(path, &predictions.outputs, Some(predictions.width))?,
            false => write_npy(path, &predictions.classes, None)?,
        }
    } else {
        replace_file(path, |out| csv.write(out)).with_context(failed)?;
        csv.remark_formulas(context);
    }
    let text = format!("{} nodes predicted, written to {}\n", HumanCount(nodes.len() as u64), path.display());
    Ok(Outcome::new(text, with_ranks(json!({ "nodes": nodes.len(), "output": lossy(path) }))))
}

/// Writes an array, or a matrix of rows of `dim` elements.
fn write_npy<T: Element>(path: &Path, values: &[T], dim: Option<usize>) -> anyhow::Result<()> {
    let failed = || format!("{}: cannot be written; check directory and disk space", path.display());
    let replacement = Replacement::new(path).with_context(failed)?;
    let mut writer = NpyWriter::<T>::of(path, replacement.create().with_context(failed)?)?;
    writer.write(values)?;
    writer.finish(dim)?;
    replacement.finish().with_context(failed)
}

/// Scores the pairs of a file.
fn score_pairs(edges: &Path, args: &Args, trained: &mut Trained, context: &RunContext) -> anyhow::Result<Outcome> {
    let PairScores { ids, scores } = trained.score_pairs(edges)?;
    let csv = |out: &mut dyn Write| -> std::io::Result<()> {
        writeln!(out, "source,target,score")?;
        ids.iter().zip(&scores).try_for_each(|(pair, score)| {
            for node in pair {
                write_node(out, node, args.quote_formulas)?;
                out.write_all(b",")?;
            }
            writeln!(out, "{score:.6}")
        })
    };
    let count = ids.len();
    let Some(path) = &args.output else {
        let mut text = Vec::new();
        csv(&mut text)?;
        return Ok(Outcome::new(String::from_utf8(text)?, json!({ "pairs": ids, "scores": scores })));
    };
    let failed = || format!("{}: cannot be written; check directory and disk space", path.display());
    match path.extension().is_some_and(|e| e == "npy") {
        true => write_npy(path, &scores, None)?,
        false => replace_file(path, |out| csv(out)).with_context(failed)?,
    }
    context.remark("scores are compared with one another: a higher one is a likelier link");
    let text = format!("{} pairs scored, written to {}\n", HumanCount(count as u64), path.display());
    Ok(Outcome::new(text, json!({ "pairs": count, "output": lossy(path) })))
}

/// Writes a node's id, or its name as a cell.
fn write_node(out: &mut (impl Write + ?Sized), node: &Value, quotes: bool) -> std::io::Result<()> {
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
struct Csv<'a> {
    predictions: &'a Predictions,
    /// Whether every class has a column, as labels and values do.
    all: bool,
    /// Whether an apostrophe is put before what spreadsheets take for a formula.
    quotes: bool,
}

impl Csv<'_> {
    fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        let Predictions { ids, classes, probabilities, class_names, outputs, width, task, .. } = self.predictions;
        let classify = *task == Task::Classify;
        out.write_all(if classify { b"node,class,probability" } else { b"node" })?;
        for column in self.predictions.columns().iter().filter(|_| self.all) {
            out.write_all(b",")?;
            cell(out, column, self.quotes)?;
        }
        out.write_all(b"\n")?;
        for (i, node) in ids.iter().enumerate() {
            write_node(out, node, self.quotes)?;
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
