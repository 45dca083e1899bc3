//! `morphgl info`: describes a dataset.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use clap::Parser;
use indicatif::HumanCount;
use morphgl_graph_store::{
    Array, Dataset, DatasetPath, EdgeSplits, IsolatedNodes, Load, Meta, OpenOptions, unknown_neighbor,
};
use morphgl_platform::excerpt;
use serde_json::json;

use super::{Invocation, Outcome, show};
use crate::examples;
use crate::paths;
use crate::session::data::{num_bytes, overlap};
use crate::usage::Usage;
use parts::{Parts, for_each};

mod parts;
mod types;

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl info cora
  morphgl info papers100M --check      compare every array with its checksum, look for NaN features
  morphgl info cora --json | jq .degree")]
pub(crate) struct Args {
    /// Directory of the dataset
    dataset: Option<PathBuf>,
    /// Reads all data and compares it with its checksums
    #[arg(long)]
    check: bool,
}

/// Maximum number of lines of notes: with the eight others, a summary has eleven.
const NOTE_LINES: usize = 3;
/// Maximum number of characters of the names of targets.
const MAX_NAMES: usize = 60;
/// Arrays of the splits.
const SPLITS: [&str; 3] = ["train", "valid", "test"];
/// Sources that are looked up before the search for isolated nodes may end, and their memory is released.
const SOURCES: usize = 256 << 10;

pub(super) fn run(args: &Args, call: &Invocation<'_>) -> anyhow::Result<Outcome> {
    let (dataset, mut outcome) = match (&call.dataset, &args.dataset) {
        (Some(dataset), _) => (Dataset::clone(dataset), described(&Parts::in_memory(dataset)?, None)?),
        (None, Some(path)) => {
            let dataset = Dataset::open(path, OpenOptions { load: Load::Mmap, verify: args.check })?;
            (dataset, describe(path)?)
        }
        (None, None) => return Err(Usage::error("give the directory of a dataset: morphgl info DIRECTORY")),
    };
    let of = examples::noun(&dataset);
    let repeated = dataset.splits.num_repeated(dataset.num_examples());
    let remark = overlap(repeated, of);
    // An import notes it, too.
    if repeated > 0 && !outcome.text.contains(&remark) {
        outcome.text += &format!("note      {remark}\n");
    }
    outcome.json["splits"]["repeated"] = repeated.into();
    let oversampled = dataset.splits.num_oversampled(dataset.num_examples());
    let remark = morphgl_formats::oversampling(oversampled, dataset.splits.train.len(), of);
    if oversampled > 0 && !outcome.text.contains(&remark) {
        outcome.text += &format!("note      {remark}\n");
    }
    outcome.json["splits"]["oversampled"] = oversampled.into();
    if args.check {
        outcome.text += "checked: every checksum holds, structure and features are sound\n";
        outcome.json["checked"] = true.into();
    }
    Ok(outcome)
}

/// Describes the valid dataset at `path`; needs one bit of memory per node.
pub(crate) fn describe(path: &Path) -> anyhow::Result<Outcome> {
    described(&Parts::of_directory(&DatasetPath::open(path)?)?, Some(path))
}

/// Describes a dataset by its parts, of a directory those at `path`. O(nodes + edges), and a bit of memory per node.
fn described(parts: &Parts, path: Option<&Path>) -> anyhow::Result<Outcome> {
    let Parts { meta, indptr, indices, .. } = parts;
    let (n, num_edges) = (meta.num_nodes, meta.num_edges);
    let mut degrees = Degrees::default();
    let mut previous = None;
    let mut isolated = IsolatedNodes::new(n as usize);
    let mut node = 0;
    for_each(indptr, |offset| {
        if let Some(previous) = previous.replace(offset) {
            let degree = offset.saturating_sub(previous);
            degrees.add(degree);
            if degree == 0 {
                isolated.add(node);
            }
            node += 1;
        }
    });
    let (quantile, no_in_edges) = (|q: f64| degrees.at((n.saturating_sub(1) as f64 * q) as u64), degrees.small[0]);
    for sources in indices.chunks(SOURCES) {
        if isolated.count() == 0 {
            break;
        }
        isolated.remove(sources);
        indices.release();
    }
    let isolated = isolated.count();
    let self_loops = num_self_loops(indptr, indices)?;
    let mean = num_edges as f64 / n.max(1) as f64;
    let mut labelled = 0u64;
    if let Some(labels) = &parts.labels {
        for_each(labels, |label| labelled += u64::from(label >= 0));
    }
    let examples = meta.num_examples();
    let labelled_of_splits = labelled_of_splits(parts, labelled, examples);
    let features = meta.arrays.get("features").map(|f| (f.shape[1], f.dtype));
    let total: u64 = meta.arrays.values().map(num_bytes).sum();
    let splits = SPLITS.map(|name| meta.arrays.get(name).map_or(0, |array| array.shape[0]));

    let loops = match self_loops {
        0 => String::new(),
        count => format!(", {} of them self-loops", HumanCount(count)),
    };
    let place = path.map_or("in memory".to_string(), |path| format!("at {}", path.display()));
    let mut text = format!("{} {place}\n", excerpt(&meta.name, usize::MAX));
    text += &format!("nodes     {}\n", HumanCount(n));
    text += &format!(
        "edges     {} directed{loops}; in-degree mean {mean:.1}, median {}, 99% {}, max {}; {} nodes without, {} of them isolated\n",
        HumanCount(num_edges),
        quantile(0.5),
        quantile(0.99),
        HumanCount(quantile(1.0)),
        HumanCount(no_in_edges),
        HumanCount(isolated)
    );
    let by_type = meta.arrays.keys().any(|name| name.starts_with("features."));
    let none = if by_type { "features  by node type\n" } else { "features  none\n" };
    text += &features.map_or(none.to_string(), |(dim, dtype)| {
        format!("features  {dim} x {dtype}, {} per row\n", show::bytes(dim * dtype.size() as u64))
    });
    let task = task(parts);
    let of = if task.is_some() { "row" } else { "node" };
    if let Some(task) = &task {
        text += &format!("task      {}\n", task.text());
    }
    text += &match meta.arrays.contains_key("labels") {
        true => format!("labels    {} classes, {} {of}s labelled\n", meta.num_classes, HumanCount(labelled)),
        false => "labels    none\n".to_string(),
    };
    let targets = parts.targets.as_ref().map(|values| known_targets(values, meta));
    if let Some(known) = &targets {
        text += &format!("targets   {}\n", known.text(examples, of));
    }
    let splits_with_labels = SPLITS.iter().zip(splits).zip(labelled_of_splits).map(|((name, nodes), labelled)| {
        let all = labelled.is_none_or(|labelled| labelled == nodes);
        let labelled = labelled.filter(|_| !all).map(|n| format!(" ({} labelled)", HumanCount(n)));
        format!("{name} {}{}", HumanCount(nodes), labelled.unwrap_or_default())
    });
    text += &format!("splits    {}\n", splits_with_labels.collect::<Vec<_>>().join(", "));
    let pairs = EdgeSplits::ARRAYS.map(|name| meta.arrays.get(name).map(|array| array.shape[0]));
    if pairs.iter().any(Option::is_some) {
        text += &format!("links     {}\n", links(pairs));
    }
    // Of the training pairs: the others have the same.
    let [of_labels, of_targets] = EdgeSplits::TARGET_ARRAYS[0].map(|name| meta.arrays.get(name));
    let target_dim = of_targets.map_or(0, |array| array.shape[1]);
    if of_labels.is_some() || of_targets.is_some() {
        let labels = of_labels.map(|_| "a class".to_string());
        let targets =
            of_targets.map(|_| format!("{target_dim} {}", if target_dim == 1 { "target" } else { "targets" }));
        let all: Vec<String> = labels.into_iter().chain(targets).collect();
        text += &format!("edges     {} of each pair of links, for train --on edges\n", all.join(" and "));
    }
    let weighted = meta.arrays.contains_key("weights");
    let weights = if weighted { "with edge weights" } else { "no edge weights" };
    let types = types::describe(parts);
    if let Some((tables, _)) = &types {
        text += tables;
    }
    let times = ["node_times", "edge_times"].map(|name| meta.arrays.contains_key(name));
    if times != [false; 2] {
        let all = ["nodes", "edges"].into_iter().zip(times).filter(|(_, timed)| *timed).map(|(name, _)| name);
        text += &format!("times     of {}\n", all.collect::<Vec<_>>().join(" and "));
    }
    let edge_features: Vec<(&String, u64)> = meta
        .arrays
        .iter()
        .filter(|(name, _)| name.starts_with("edge_features"))
        .map(|(name, array)| (name, array.shape[1]))
        .collect();
    if !edge_features.is_empty() {
        let of = |(name, dim): &(&String, u64)| {
            let number = name.strip_prefix("edge_features.").and_then(|number| number.parse::<usize>().ok());
            let edge_type =
                number.zip(meta.types.as_ref()).map(|(number, types)| types.edge_types()[number].to_string());
            format!("{dim}{}", edge_type.map_or(String::new(), |edge_type| format!(" of {edge_type}")))
        };
        text += &format!("edges     features: {}\n", edge_features.iter().map(of).collect::<Vec<_>>().join(", "));
    }
    let notes = meta.provenance.get("notes").and_then(|notes| notes.as_array());
    let notes: Vec<&str> = notes.into_iter().flatten().filter_map(|note| note.as_str()).collect();
    for some in notes.chunks(notes.len().div_ceil(NOTE_LINES).max(1)) {
        text += &format!("note      {}\n", excerpt(&some.join("; "), usize::MAX));
    }
    text += &format!("size      {} in {} arrays, {weights}\n", show::bytes(total), meta.arrays.len());

    let json = json!({
        "name": meta.name, "path": path.map(paths::lossy), "version": path.map(|_| meta.version),
        "num_nodes": n, "num_edges": num_edges, "num_classes": meta.num_classes,
        "feature_dim": features.map_or(0, |(dim, _)| dim),
        "feature_dtype": features.map(|(_, dtype)| dtype),
        "self_loops": self_loops,
        "weighted": weighted,
        "labelled": labelled,
        "degree": { "mean": mean, "median": quantile(0.5), "p99": quantile(0.99), "max": quantile(1.0),
            "no_in_edges": no_in_edges, "isolated": isolated },
        "targets": targets.map(|known| known.json(examples)),
        "task": task.map(|task| task.json()),
        "splits": { "train": splits[0], "valid": splits[1], "test": splits[2],
            "labelled": SPLITS.into_iter().zip(labelled_of_splits).collect::<BTreeMap<_, _>>() },
        "edge_splits": pairs.iter().any(Option::is_some).then(|| json!({
            "train": pairs[0], "valid": pairs[1].unwrap_or(0), "test": pairs[2].unwrap_or(0),
            "train_negatives": pairs[3], "valid_negatives": pairs[4], "test_negatives": pairs[5],
            "labels": of_labels.is_some(), "target_dim": target_dim,
        })),
        "types": types.map(|(_, json)| json),
        "edge_features": edge_features.iter().map(|&(name, dim)| (name.clone(), json!(dim))).collect::<serde_json::Map<_, _>>(),
        "times": { "nodes": times[0], "edges": times[1] },
        "bytes": total,
        "arrays": path.map(|_| &meta.arrays), "provenance": meta.provenance,
    });
    Ok(Outcome::new(text, json))
}

/// The numbers of pairs of link prediction, in the order of [`EdgeSplits::ARRAYS`].
fn links([train, valid, test, negatives @ ..]: [Option<u64>; EdgeSplits::ARRAYS.len()]) -> String {
    let count = |pairs: Option<u64>| HumanCount(pairs.unwrap_or(0)).to_string();
    let train = train.map_or("every edge".to_string(), |pairs| count(Some(pairs)));
    let sets = [("train", train), ("valid", count(valid)), ("test", count(test))].into_iter().zip(negatives);
    let sets = sets.map(|((name, pairs), negatives)| {
        let negatives = negatives.map(|count| format!(" against {} negatives", HumanCount(count)));
        format!("{name} {pairs}{}", negatives.unwrap_or_default())
    });
    sets.collect::<Vec<_>>().join(", ")
}

/// Number of edges from a node to itself, in one pass over the edges, whose memory is released meanwhile.
/// # Errors
///
/// The files were changed since the dataset was opened: an edge comes from a node that does not exist.
fn num_self_loops(indptr: &Array<u64>, indices: &Array<u32>) -> anyhow::Result<u64> {
    let (mut count, mut released, mut largest) = (0, 0, 0);
    for (node, row) in (0u32..).zip(indptr.windows(2)) {
        let sources = indices.get(row[0] as usize..row[1] as usize).unwrap_or_default();
        count += sources.iter().filter(|&&source| source == node).count() as u64;
        largest = sources.iter().copied().fold(largest, u32::max);
        if row[1] as usize - released > SOURCES {
            released = row[1] as usize;
            indices.release();
            indptr.release();
        }
    }
    let num_nodes = indptr.len().saturating_sub(1);
    if largest as usize >= num_nodes && !indices.is_empty() {
        let path = indices.file().unwrap_or(Path::new("indices"));
        return Err(unknown_neighbor(path, largest, num_nodes).into());
    }
    Ok(count)
}

/// The rows of a task.
struct Task {
    rows: u64,
    /// Distinct nodes.
    nodes: u64,
    /// First and last time.
    times: [i64; 2],
}

/// The rows of the dataset's task, where it has one.
fn task(parts: &Parts) -> Option<Task> {
    let (nodes, times) = parts.rows.as_ref()?;
    let bounds = [times.iter().min(), times.iter().max()].map(|time| time.copied().unwrap_or(0));
    let distinct: HashSet<u32> = nodes.iter().copied().collect();
    Some(Task { rows: nodes.len() as u64, nodes: distinct.len() as u64, times: bounds })
}

impl Task {
    fn text(&self) -> String {
        let ([rows, nodes], [first, last]) = ([self.rows, self.nodes].map(HumanCount), self.times);
        format!("{rows} rows of {nodes} nodes, at times from {first} to {last}; labels, targets and splits are of rows")
    }

    fn json(&self) -> serde_json::Value {
        json!({ "rows": self.rows, "nodes": self.nodes, "first_time": self.times[0], "last_time": self.times[1] })
    }
}

/// The columns of targets, and how many are known.
struct KnownTargets {
    /// Name of each column, where columns have names.
    names: Option<Vec<String>>,
    /// Nodes with a known value, per column.
    known: Vec<u64>,
    /// Nodes with any known value.
    nodes: u64,
}

/// Counts the known targets, in one pass over the array, whose memory is released meanwhile.
fn known_targets(values: &Array<f32>, meta: &Meta) -> KnownTargets {
    let width = meta.arrays["targets"].shape[1] as usize;
    let (mut known, mut nodes) = (vec![0u64; width], 0);
    for rows in values.chunks(width * (SOURCES / width).max(1)) {
        for row in rows.chunks_exact(width) {
            known.iter_mut().zip(row).for_each(|(count, value)| *count += u64::from(!value.is_nan()));
            nodes += u64::from(row.iter().any(|value| !value.is_nan()));
        }
        values.release();
    }
    KnownTargets { names: meta.schema().targets, known, nodes }
}

impl KnownTargets {
    fn text(&self, num_nodes: u64, of: &str) -> String {
        let width = self.known.len();
        let named = self.names.as_ref().map(|names| format!(" ({})", excerpt(&names.join(", "), MAX_NAMES)));
        let unknown = num_nodes * width as u64 - self.known.iter().sum::<u64>();
        format!(
            "{width} per {of}{}, {} {of}s with any, {} values unknown",
            named.unwrap_or_default(),
            HumanCount(self.nodes),
            HumanCount(unknown)
        )
    }

    fn json(&self, num_nodes: u64) -> serde_json::Value {
        let unknown: Vec<u64> = self.known.iter().map(|known| num_nodes - known).collect();
        json!({ "dim": self.known.len(), "names": self.names, "nodes": self.nodes, "unknown": unknown })
    }
}

/// Number of nodes of each split that have a label; `None` without labels.
fn labelled_of_splits(parts: &Parts, labelled: u64, num_nodes: u64) -> [Option<u64>; 3] {
    let Some(labels) = &parts.labels else { return [None; 3] };
    let mut counts = [Some(0); 3];
    for (split, count) in parts.splits.iter().zip(&mut counts) {
        let Some(split) = split else { continue };
        let mut of_split = split.len() as u64;
        if labelled < num_nodes {
            of_split = 0;
            let is_labelled = |v: u32| labels.get(v as usize).is_some_and(|&label| label >= 0);
            for_each(split, |v| of_split += u64::from(is_labelled(v)));
            labels.release();
        }
        *count = Some(of_split);
    }
    counts
}

/// Histogram of in-degrees: an array for small ones, a map for those of a few hubs.
#[derive(Debug)]
struct Degrees {
    small: Vec<u64>,
    large: BTreeMap<u64, u64>,
}

impl Default for Degrees {
    fn default() -> Self {
        Self { small: vec![0; 1 << 16], large: BTreeMap::new() }
    }
}

impl Degrees {
    fn add(&mut self, degree: u64) {
        match self.small.get_mut(degree as usize) {
            Some(count) => *count += 1,
            None => *self.large.entry(degree).or_default() += 1,
        }
    }

    /// The degree at a rank in ascending order, from 0; 0 beyond the last.
    fn at(&self, rank: u64) -> u64 {
        let small = (0..).zip(self.small.iter().copied());
        let mut all = small.chain(self.large.iter().map(|(&degree, &count)| (degree, count)));
        let mut below = 0;
        let degree = all.find(|&(_, count)| {
            below += count;
            below > rank
        });
        degree.map_or(0, |(degree, _)| degree)
    }
}

#[cfg(test)]
mod tests;
