//! `morphgl predict`: classes, labels and values of nodes, rows of a layer, scores of pairs and best partners, by a trained model.

mod csv;
mod pairs;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Parser;
use indicatif::HumanCount;
use morphgl_graph_store::{Element, NpyWriter};
use morphgl_model_core::Task;
use morphgl_platform::{Replacement, replace_file};
use serde_json::{Value, json};

use self::csv::Csv;
use super::{Invocation, Outcome};
use crate::paths::lossy;
use crate::session::{Embeddings, InferenceConfig, Predicted, Predictions, Trained};
use crate::usage::Usage;
use crate::{Evaluation, RunContext, values};

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl predict cora.safetensors cora                            csv of all nodes on stdout
  morphgl predict cora.safetensors cora --nodes test -o test.csv
  morphgl predict runs/cora -o all.csv                             the model of a run, on its dataset
  morphgl predict cora.safetensors cora --nodes ids.txt -o classes.npy
  morphgl predict cora.safetensors cora --probabilities -o all.csv  the probability of every class, too
  morphgl predict runs/products --evaluation sampled                 on mini-batches sampled as the run did
  morphgl predict cora.safetensors cora --embeddings hidden.npy    the rows that the last layer makes classes of
  morphgl predict runs/churn --rows test                           rows of a task: nodes at times, each within its time
  morphgl predict runs/links --edges pairs.csv                     scores of pairs, by a model of links
  morphgl predict runs/ratings --edges pairs.csv                   classes or values of edges, by a model of these
  morphgl predict runs/links --top 10 --nodes ids.txt              the ten likeliest new partners of each
  mpirun -n 4 morphgl predict cora.safetensors cora -o all.csv     each rank computes a part of every layer")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) trained: InferenceConfig,
    /// With all neighbours, or on sampled mini-batches that have the nodes, or the ends of pairs, as seeds [default: full; of rows of a
    /// task sampled]
    #[arg(long, value_parser = values::one_of::<Evaluation, _>(["full", "sampled"]))]
    evaluation: Option<Evaluation>,
    /// Nodes to predict: all, train, valid, test, or a file with one id per line, as the graph's source has them [default: all]
    #[arg(long)]
    nodes: Option<PathBuf>,
    /// Rows of the dataset's task to predict, each within its time: all, train, valid, test, or a file with a node and a time per line,
    /// separated by a comma or a space [default: all, of a dataset with a task]
    #[arg(long, value_name = "ROWS", conflicts_with_all = ["nodes", "edges", "top", "embeddings"])]
    rows: Option<PathBuf>,
    /// Pairs to score, by a model of links, or whose class, labels or values are predicted, by one of edges: a file with two ids per line,
    /// source and destination, separated by a comma or a space; behind them the edge type, by a model with a vector for each
    #[arg(long, value_name = "FILE", conflicts_with = "nodes")]
    edges: Option<PathBuf>,
    /// The K likeliest partners of each node, by a model of links: destinations of the highest scores, but the node itself and those
    /// that it has an edge to
    #[arg(long, value_name = "K", conflicts_with_all = ["edges", "probabilities"])]
    top: Option<usize>,
    /// With --top, by a model with a vector per edge type, the type of the links: its name, or `source-name-target`
    #[arg(long, value_name = "TYPE", requires = "top")]
    edge_type: Option<String>,
    /// With --top, partners that a node has an edge to, too
    #[arg(long, requires = "top")]
    include_edges: bool,
    /// File to write rows of a layer to, in place of predictions: .npy of f32 `[nodes, width]`, in the nodes' order
    #[arg(long, value_name = "FILE.npy", conflicts_with_all = ["edges", "probabilities", "top", "output"])]
    embeddings: Option<PathBuf>,
    /// With --embeddings, the layer, from 1 [default: the last but one; of a model of links or edges the last]
    #[arg(long, requires = "embeddings")]
    layer: Option<usize>,
    /// The probability of every class, not of the predicted one alone
    #[arg(long)]
    probabilities: bool,
    /// File to write: .csv (node,class,probability; of rows node,time,…; labels' probabilities and values a column each; source,target,score of pairs; source,target,… of edges) by
    /// names, where the model has them; or .npy: class numbers as i32, in the nodes' order; as f32 `[nodes, classes]`
    /// probabilities of classes or labels, or values; `[pairs]` scores
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Writes an apostrophe before names in csv that begin with =, +, - or @, which spreadsheets take for formulas
    #[arg(long)]
    quote_formulas: bool,
}

impl Args {
    /// The nodes that are asked for.
    fn nodes(&self) -> &Path {
        self.nodes.as_deref().unwrap_or(Path::new("all"))
    }
}

pub(crate) fn run(args: &Args, call: &Invocation<'_>) -> anyhow::Result<Outcome> {
    if let Some(path) = &args.output
        && !matches!(path.extension().and_then(|e| e.to_str()), Some("csv" | "npy"))
    {
        let what = format!("--output {}: predictions are written as .csv or .npy; name the file so", path.display());
        return Err(Usage::error(what));
    }
    if let Some(path) = args.embeddings.as_ref().filter(|path| path.extension().is_none_or(|e| e != "npy")) {
        let path = path.display();
        return Err(Usage::error(format!("--embeddings {path}: rows are written as .npy; name the file so")));
    }
    let context = &RunContext::of_inference(call.process, call.stop.clone(), call.observer(), args.trained.time_limit)?;
    let mut trained = Trained::open(context, args.trained.clone(), call.dataset.clone(), false)?;
    if let Some(evaluation) = args.evaluation {
        trained.predict_by(evaluation)?;
    }
    if let Some(edges) = args.edges.as_ref().filter(|_| !trained.predicts_edges()) {
        return pairs::score(edges, args, &mut trained, context);
    }
    if let Some(k) = args.top {
        return pairs::best(k, args, &mut trained, context);
    }
    if let Some(edges) = &args.edges {
        return written(args, &trained.predict_edges(edges)?, context);
    }
    let by_rows = args.rows.is_some() || trained.predicts_rows() && args.nodes.is_none() && args.embeddings.is_none();
    if by_rows {
        let rows = args.rows.as_deref().unwrap_or(Path::new("all"));
        return written(args, &trained.predict_rows(rows)?, context);
    }
    let nodes = trained.nodes(args.nodes())?;
    if let Some(path) = &args.embeddings {
        let Embeddings { layer, rows, width, ranks } = trained.embeddings(&nodes, args.layer)?;
        if !is_first(&ranks, context) {
            return Ok(Outcome::new(String::new(), Value::Null));
        }
        write_npy(path, &rows, Some(width))?;
        let count = HumanCount(nodes.len() as u64);
        let text = format!("layer {layer}: {count} rows of {width}, written to {}\n", path.display());
        let json = json!({ "nodes": nodes.len(), "layer": layer, "width": width, "output": lossy(path) });
        return Ok(Outcome::new(text, with_ranks(json, &ranks)));
    }
    written(args, &trained.predict(&nodes)?, context)
}

/// Prints predictions, or writes them to a file.
fn written(args: &Args, predictions: &Predictions, context: &RunContext) -> anyhow::Result<Outcome> {
    let ranks = &predictions.ranks;
    if !is_first(ranks, context) {
        return Ok(Outcome::new(String::new(), Value::Null));
    }
    let all = args.probabilities || predictions.task != Task::Classify;
    let csv = Csv { predictions, all, quotes: args.quote_formulas };
    let Some(path) = &args.output else {
        let Predictions { of, classes, probabilities, class_names, .. } = predictions;
        let mut json = match predictions.task {
            Task::Classify => {
                json!({ "classes": classes, "class_names": class_names, "probabilities": probabilities })
            }
            task => json!({ "task": task, "columns": predictions.columns() }),
        };
        match of {
            Predicted::Nodes(ids) => json["nodes"] = json!(ids),
            Predicted::Rows(ids) => json["rows"] = json!(ids),
            Predicted::Edges(ids) => json["pairs"] = json!(ids),
        }
        if all {
            json["outputs"] = json!(predictions.outputs.chunks_exact(predictions.width).collect::<Vec<_>>());
        }
        let mut text = Vec::new();
        csv.write(&mut text)?;
        csv.remark_formulas(context);
        return Ok(Outcome::new(String::from_utf8(text)?, with_ranks(json, ranks)));
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
    let what = format!("{}s", predictions.of.names().0);
    let count = predictions.of.len();
    let text = format!("{} {what} predicted, written to {}\n", HumanCount(count as u64), path.display());
    let mut json = json!({ "output": lossy(path) });
    json[&what] = json!(count);
    Ok(Outcome::new(text, with_ranks(json, ranks)))
}

/// Prints what each MPI rank did; true on the rank that writes the results.
fn is_first(ranks: &Option<(Value, String)>, context: &RunContext) -> bool {
    let Some((_, text)) = ranks else { return true };
    context.remark(text.trim_end());
    context.is_first_rank()
}

fn with_ranks(mut json: Value, ranks: &Option<(Value, String)>) -> Value {
    ranks.iter().for_each(|(ranks, _)| json["ranks"] = ranks.clone());
    json
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
