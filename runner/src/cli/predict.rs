//! `morphgl predict`: classes of nodes, by a trained model.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use clap::Parser;
use indicatif::HumanCount;
use morphgl_graph_store::{Dataset, NodeNames, NpyWriter};
use morphgl_platform::{Replacement, excerpt, open_regular, replace_file, text};
use serde_json::{Value, json};

use super::Outcome;
use super::inference::{Trained, TrainedArgs};
use super::paths::lossy;
use super::show::{self, Show};
use super::usage::Usage;
use crate::{Process, RunContext, Stop};

/// Maximum bytes of a line of `--nodes`: an id or a name.
const MAX_LINE: u64 = 64 << 10;
/// Characters of a line in a message.
const QUOTED: usize = 100;

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl predict cora.safetensors cora                            csv of all nodes on stdout
  morphgl predict cora.safetensors cora --nodes test -o test.csv
  morphgl predict runs/cora -o all.csv                             the model of a run, on its dataset
  morphgl predict cora.safetensors cora --nodes ids.txt -o classes.npy
  mpirun -n 4 morphgl predict cora.safetensors cora -o all.csv     each rank computes a part of every layer")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) trained: TrainedArgs,
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

pub(crate) fn run(args: &mut Args, (process, stop): (&Arc<Process>, &Stop), show: Show) -> anyhow::Result<Outcome> {
    if let Some(path) = &args.output
        && !matches!(path.extension().and_then(|e| e.to_str()), Some("csv" | "npy"))
    {
        let what = format!("--output {}: predictions are written as .csv or .npy; name the file so", path.display());
        return Err(Usage::error(what));
    }
    let ranks = args.trained.enter(process)?;
    // MPI is initialized before operators are probed: drivers may start threads.
    let context = &RunContext::of(process, stop.clone())?;
    let show = ranks.map_or(show, |ranks| ranks.show(show));
    let Trained { dataset, config, mut training, inference, class_names, .. } =
        args.trained.open(context, show, false)?;
    let names = if args.trained.data.dataset.is_some() { NodeNames::of(&dataset.path)? } else { None };
    let nodes = nodes(&args.nodes, &dataset, names.as_ref())?;
    // Ids of the graph's source: import may have renumbered the nodes.
    let id = |&v: &u32| match (&names, &dataset.node_ids) {
        (Some(names), _) => Value::from(String::from_utf8_lossy(names.get(v))),
        (None, Some(ids)) => ids[v as usize].into(),
        (None, None) => v.into(),
    };
    let ids: Vec<Value> = nodes.iter().map(id).collect();
    if let Some(why) = inference.obstacle() {
        anyhow::bail!("{}: {why}; allow more memory, or map its files with --mmap", dataset.name);
    }
    let (logits, of_ranks) = match ranks {
        None => (training.infer(&nodes)?, None),
        Some(ranks) => {
            ranks.check_nodes(&nodes)?;
            let logits = ranks.group.infer(training.as_mut(), &nodes)?;
            let (json, text) = ranks.inference_summary(config.num_threads(context.registry()))?;
            show.say(text.trim_end());
            if !ranks.is_first() {
                return Ok(Outcome::new(String::new(), Value::Null));
            }
            (logits, Some(json))
        }
    };
    let with_ranks = |mut json: Value| {
        of_ranks.into_iter().for_each(|ranks| json["ranks"] = ranks);
        json
    };
    let predictions: Vec<(i32, f64)> = logits.chunks_exact(config.spec.model.num_classes).map(classify).collect();
    let classes: Vec<i32> = predictions.iter().map(|p| p.0).collect();
    let csv = Csv {
        nodes: &ids,
        predictions: &predictions,
        class_names: class_names.as_deref(),
        quotes: args.quote_formulas,
    };
    let Some(path) = &args.output else {
        let probabilities: Vec<f64> = predictions.iter().map(|p| p.1).collect();
        let json = json!({
            "nodes": ids, "classes": classes, "class_names": class_names, "probabilities": probabilities
        });
        let mut text = Vec::new();
        csv.write(&mut text)?;
        csv.remark_formulas(show);
        return Ok(Outcome::new(String::from_utf8(text)?, with_ranks(json)));
    };
    let failed = || format!("{}: cannot be written; check directory and disk space", path.display());
    if path.extension().is_some_and(|e| e == "npy") {
        let replacement = Replacement::new(path).with_context(failed)?;
        let mut writer = NpyWriter::<i32>::of(path, replacement.create().with_context(failed)?)?;
        writer.write(&classes)?;
        writer.finish(None)?;
        replacement.finish().with_context(failed)?;
    } else {
        replace_file(path, |out| csv.write(out)).with_context(failed)?;
        csv.remark_formulas(show);
    }
    let text = format!("{} nodes predicted, written to {}\n", HumanCount(nodes.len() as u64), path.display());
    Ok(Outcome::new(text, with_ranks(json!({ "nodes": nodes.len(), "output": lossy(path) }))))
}

fn nodes(wanted: &Path, dataset: &Dataset, names: Option<&NodeNames>) -> anyhow::Result<Vec<u32>> {
    Ok(match wanted.to_str().unwrap_or_default() {
        "all" => (0..dataset.num_nodes() as u32).collect(),
        "train" => dataset.splits.train.to_vec(),
        "valid" => dataset.splits.valid.to_vec(),
        "test" => dataset.splits.test.to_vec(),
        _ => read_nodes(wanted, dataset, names)?,
    })
}

/// The nodes of a file of ids of the graph's source.
fn read_nodes(path: &Path, dataset: &Dataset, names: Option<&NodeNames>) -> anyhow::Result<Vec<u32>> {
    let cannot =
        || format!("{}: cannot be read; --nodes takes all, train, valid, test or a file of ids", path.display());
    let mut file = BufReader::new(open_regular(path).with_context(cannot)?);
    let num_nodes = dataset.num_nodes();
    let by_id: Option<HashMap<u64, u32>> = dataset.node_ids.as_ref().map(|ids| ids.iter().copied().zip(0..).collect());
    let mut nodes = Vec::new();
    for number in 1.. {
        let mut line = Vec::new();
        let read = file.by_ref().take(MAX_LINE + 1).read_until(b'\n', &mut line).with_context(cannot)?;
        if read == 0 {
            break;
        }
        let at = || format!("{}, line {number}", path.display());
        if read as u64 > MAX_LINE {
            anyhow::bail!("{}: it is longer than {MAX_LINE} bytes; give one id per line", at());
        }
        let line = text(line).with_context(at)?;
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        let id = line.parse::<u64>().ok();
        let node = match (names, &by_id) {
            (Some(names), _) => names.find(line.as_bytes()),
            (None, Some(by_id)) => id.and_then(|id| by_id.get(&id).copied()),
            (None, None) => id.and_then(|id| u32::try_from(id).ok()).filter(|&v| (v as usize) < num_nodes),
        };
        nodes.push(node.with_context(|| {
            let cure = match &by_id {
                _ if names.is_some() => "give names as the graph's source has them".to_string(),
                Some(_) => "give ids as the graph's source has them".to_string(),
                None => format!("give ids from 0 to below {num_nodes}"),
            };
            format!("{}: {:?} is no node; {cure}", at(), excerpt(line, QUOTED))
        })?);
    }
    Ok(nodes)
}

/// The predicted class of a row of logits, the first of equal ones, and its probability.
fn classify(logits: &[f32]) -> (i32, f64) {
    let (mut class, mut max) = (0, f32::NEG_INFINITY);
    for (i, &x) in logits.iter().enumerate() {
        if x > max {
            (class, max) = (i, x);
        }
    }
    let sum: f64 = logits.iter().map(|&x| f64::from(x - max).exp()).sum();
    (class as i32, 1.0 / sum)
}

/// Predictions as csv.
struct Csv<'a> {
    nodes: &'a [Value],
    predictions: &'a [(i32, f64)],
    class_names: Option<&'a [String]>,
    /// Whether an apostrophe is put before what spreadsheets take for a formula.
    quotes: bool,
}

impl Csv<'_> {
    fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        writeln!(out, "node,class,probability")?;
        self.nodes.iter().zip(self.predictions).try_for_each(|(node, &(class, probability))| {
            match node.as_str() {
                Some(name) => self.cell(out, name)?,
                None => write!(out, "{node}")?,
            }
            out.write_all(b",")?;
            match self.class_names {
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
    fn remark_formulas(&self, show: Show) {
        let named =
            self.class_names.into_iter().flat_map(|names| self.predictions.iter().map(|p| &*names[p.0 as usize]));
        let count = self.nodes.iter().filter_map(Value::as_str).chain(named).filter(|text| is_formula(text)).count();
        if count > 0 && !self.quotes {
            let cells = show::plural(count as u64, "cell");
            show.say(format_args!(
                "{cells} of the csv begin with =, +, - or @, which spreadsheets take for a formula; --quote-formulas avoids it"
            ));
        }
    }
}

/// Whether spreadsheets take a cell for a formula; numbers are none.
fn is_formula(text: &str) -> bool {
    text.trim_start().starts_with(['=', '+', '-', '@']) && text.parse::<f64>().is_err()
}
