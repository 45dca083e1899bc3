//! A copy of a dataset with its nodes renumbered.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use morphgl_graph_store::{Array, Dataset, DatasetPath, DatasetWriter, EdgeSplits, Load, Splits, TaskRows, Types};
use serde_json::{Value, json};

use crate::{Error, Order, Result};

mod edges;
mod nodes;

/// Blocks that are made and written together.
fn group() -> usize {
    4 * rayon::current_num_threads()
}

/// Progress callback: stage, done, in all.
pub type Progress<'a> = &'a (dyn Fn(&str, u64, u64) + Sync);

/// How a reordered dataset is written.
#[derive(Debug, Clone, Default)]
pub struct ReorderOptions {
    /// How the order was found, for the provenance; for example `in-degree`.
    pub by: String,
    /// Whether a dataset at the target is replaced.
    pub replace: bool,
}

/// Writes a copy of `dataset` to `target` in which nodes are renumbered by `order`: topology, edge weights, features, labels,
/// targets, types, times, splits, pairs of link prediction and ids together (data-tiering §3.2, Algorithm 2, with the inverse permutation that it needs). Returns the path.
///
/// - Neighbours keep their order within a row, and nodes and pairs theirs within a split, and rows of a task their numbers, so that a position means the same
///   neighbour or seed in both datasets.
/// - `draw_keys` have the number that each node had in the dataset that was never reordered, and samplers draw by it:
///   mini-batches are those of the original dataset, but for the numbers of the nodes.
/// - The nodes of a type are a range of numbers in both datasets: in a typed graph the order is that within each type
///   ([`Order::within`]).
/// - `node_ids` are the user's, or the numbers in the original dataset, in a typed graph within the node's type, if nodes had neither ids nor names. Names are found by
///   the draw keys.
///
/// The dataset is written beside its target and renamed, as an import is. It may be mapped ([`Load::Mmap`]), but must not have
/// been opened by [`Load::Disk`], which does not check its neighbours.
///
/// # Errors
///
/// An order of another number of nodes, a target that exists, a neighbour that does not exist (in a mapped file that was changed),
/// and errors of the disk.
///
/// # Panics
///
/// When a node of a split does not exist.
///
/// # Complexity
///
/// O(nodes + edges + bytes of features), on the threads of the current rayon pool; 16 bytes per node, those of the
/// order included, and some 16 MiB per thread.
pub fn reorder(
    dataset: &Dataset,
    order: &Order,
    target: &Path,
    options: &ReorderOptions,
    progress: Progress<'_>,
) -> Result<PathBuf> {
    let num_nodes = dataset.num_nodes();
    if order.len() != num_nodes {
        let what = format!("it has {} nodes, and {} has {num_nodes}", order.len(), dataset.name);
        return Err(Error::argument("order", what, "give an order of all nodes of the dataset"));
    }
    let topology = &dataset.topology;
    let within = topology.types().map(|types| order.within(types)).transpose()?;
    let order = within.as_ref().unwrap_or(order);
    let source = Source::of(dataset);
    let mut writer = DatasetWriter::create(target, options.replace)?;
    topology.types().into_iter().for_each(|types| writer.set_types(Types::clone(types)));
    edges::write(&dataset.topology, order, &mut writer, progress)?;
    nodes::features(dataset, order, &mut writer, progress)?;
    nodes::edge_features(dataset, &mut writer)?;
    let nodes = nodes::Nodes { order, progress };
    match &dataset.task_rows {
        Some(rows) => self::rows(dataset, rows, order, &mut writer)?,
        None => {
            nodes::targets(dataset, order, &mut writer, progress)?;
            if let Some(labels) = &dataset.labels {
                nodes.write("labels", &mut writer, |old| labels[old as usize])?;
            }
            for (name, split) in splits(dataset) {
                nodes::numbers(name, split, None, order, &mut writer)?;
            }
        }
    }
    if let Some(times) = topology.node_times() {
        nodes.write("node_times", &mut writer, |old| times[old as usize])?;
    }
    nodes.write("draw_keys", &mut writer, |old| topology.draw_key(old))?;
    match &dataset.node_ids {
        Some(ids) => nodes.write("node_ids", &mut writer, |old| ids[old as usize])?,
        None if source.has_names => source.copy_names(&mut writer)?,
        None => nodes.write("node_ids", &mut writer, |old| {
            // Ids of a typed graph are those within a type.
            let first = topology.types().map_or(0, |types| types.range(types.node_type(old)).start);
            u64::from(topology.draw_key(old) - first)
        })?,
    }
    for (name, pairs) in EdgeSplits::ARRAYS.into_iter().zip(dataset.edges.arrays()) {
        if let Some(pairs) = pairs {
            nodes::numbers(name, pairs, Some(2), order, &mut writer)?;
        }
    }
    for (targets, [labels, values]) in dataset.edges.targets.iter().zip(EdgeSplits::TARGET_ARRAYS) {
        targets.labels.iter().try_for_each(|array| writer.array(labels, array, None))?;
        targets.values.iter().try_for_each(|matrix| writer.array(values, matrix.values(), Some(matrix.dim())))?;
    }
    for (name, types) in EdgeSplits::TYPE_ARRAYS.into_iter().zip(&dataset.edges.types) {
        types.iter().try_for_each(|types| writer.array(name, types, None))?;
    }
    Ok(writer.finish(&dataset.name, dataset.num_classes, source.provenance(&options.by))?)
}

/// The splits that have examples.
fn splits(dataset: &Dataset) -> impl Iterator<Item = (&'static str, &Array<u32>)> {
    let Splits { train, valid, test } = &dataset.splits;
    [("train", train), ("valid", valid), ("test", test)].into_iter().filter(|(_, split)| !split.is_empty())
}

/// Writes the rows of a task with their nodes' new numbers; rows keep theirs, and with them labels, targets and splits.
fn rows(dataset: &Dataset, rows: &TaskRows, order: &Order, writer: &mut DatasetWriter) -> Result<()> {
    let [of_nodes, of_times] = TaskRows::ARRAYS;
    nodes::numbers(of_nodes, rows.nodes(), None, order, writer)?;
    writer.array(of_times, rows.times(), None)?;
    dataset.labels.iter().try_for_each(|labels| writer.array("labels", labels, None))?;
    let targets = &dataset.targets;
    targets.iter().try_for_each(|targets| writer.array("targets", targets.values(), Some(targets.dim())))?;
    Ok(splits(dataset).try_for_each(|(name, split)| writer.array(name, split, None))?)
}

/// What the files of the source have beside the dataset's arrays.
struct Source<'a> {
    path: &'a DatasetPath,
    has_names: bool,
}

impl<'a> Source<'a> {
    /// Of a dataset made in memory there are no files.
    fn of(dataset: &'a Dataset) -> Self {
        let path = &dataset.path;
        Self { path, has_names: path.meta().is_some_and(|meta| meta.arrays.contains_key("node_names")) }
    }

    /// Copies the names as they are: nodes find theirs by their draw keys.
    fn copy_names(&self, writer: &mut DatasetWriter) -> Result<()> {
        if let (Some(names), Some(ends)) = (self.path.array("node_names")?, self.path.array("node_name_ends")?) {
            writer.array("node_names", &names.read::<u8>(Load::Mmap)?, None)?;
            writer.array("node_name_ends", &ends.read::<u64>(Load::Mmap)?, None)?;
        }
        Ok(())
    }

    /// The source's provenance, and the reordering as the last of `reordered`.
    fn provenance(&self, by: &str) -> BTreeMap<String, Value> {
        let mut provenance = self.path.meta().map(|meta| meta.provenance.clone()).unwrap_or_default();
        let reordered = provenance.entry("reordered".into()).or_insert_with(|| json!([]));
        let this = json!({ "by": by, "source": self.path.to_string_lossy() });
        match reordered.as_array_mut() {
            Some(list) => list.push(this),
            None => *reordered = json!([this]),
        }
        provenance
    }
}
