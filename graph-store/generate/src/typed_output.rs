//! From a model of a typed graph to a dataset, in memory or streamed to disk. Both run the same blocks in the same order.

use std::path::PathBuf;

use morphgl_graph_store::{
    Dataset, DatasetWriter, FeatureMatrix, Meta, Splits, TaskRows, Topology, Types, write_blocks,
};
use morphgl_platform::{PagePool, Pages};
use rayon::prelude::*;
use serde_json::Value;

use crate::Result;
use crate::memory::Plan;
use crate::node_data::{LABELS, NodeData};
use crate::output::{Progress, RowEnds, SPLITS, describe, features_in_memory, features_to_disk};
use crate::typed_rows::{TypedBuffers, TypedRows};

/// A random typed graph whose rows can be made block by block, in any order and on any thread.
pub(crate) trait TypedModel: Sync {
    fn types(&self) -> &Types;
    fn num_classes(&self) -> usize;
    /// Arrays of features by name, each with the types whose rows it has, in order.
    fn features(&self) -> Vec<(String, Vec<&NodeData>)>;
    /// The rows of a task, where the examples are rows; `None` where they are nodes.
    fn task(&self) -> Option<&dyn TaskModel> {
        None
    }
    /// The class of an example, -1 for none.
    fn label(&self, example: u64) -> i32;
    /// The split of an example: 0 train, 1 valid, 2 test, or 3 for none.
    fn split(&self, example: u64) -> usize;
    /// The time of a node.
    fn time(&self, node: u64) -> i64;
    /// Number of blocks of consecutive rows; fixed by the configuration, whatever the memory and threads.
    fn num_blocks(&self) -> usize;
    /// Buffers for the rows of blocks.
    fn buffers(&self) -> TypedBuffers;
    fn rows(&self, block: usize, buffers: &TypedBuffers) -> TypedRows;
}

/// Rows of a task, each a function of its number.
pub(crate) trait TaskModel {
    fn num_rows(&self) -> u64;
    /// Node and time of a row.
    fn row(&self, row: u64) -> (u32, i64);
}

/// Times of a block of nodes; of the block of examples with the same numbers the labels, the examples of each split, and where they
/// are rows of a task their nodes and times.
struct Labels {
    times: Pages,
    labels: Pages,
    splits: [Pages; 3],
    rows: Option<(Pages, Pages)>,
}

/// Pools of the buffers of labels.
#[derive(Debug, Default)]
struct LabelPools {
    ids: PagePool,
    times: PagePool,
}

impl LabelPools {
    fn block(&self, model: &impl TypedModel, block: usize) -> Labels {
        let num_nodes = model.types().num_nodes() as u64;
        let part = |count: u64| ((block * LABELS) as u64).min(count)..(((block + 1) * LABELS) as u64).min(count);
        let nodes = part(num_nodes);
        let mut times = self.times.take();
        let of_nodes: &mut [i64] = bytemuck::cast_slice_mut(times.resize(8 * (nodes.end - nodes.start) as usize));
        of_nodes.iter_mut().zip(nodes).for_each(|(time, node)| *time = model.time(node));
        let examples = part(model.task().map_or(num_nodes, TaskModel::num_rows));
        let len = (examples.end - examples.start) as usize;
        let rows = model.task().map(|task| {
            let (mut nodes, mut times) = (self.ids.take(), self.times.take());
            let of_rows = bytemuck::cast_slice_mut::<_, u32>(nodes.resize(4 * len)).iter_mut();
            let of_rows = of_rows.zip(bytemuck::cast_slice_mut::<_, i64>(times.resize(8 * len)));
            of_rows.zip(examples.clone()).for_each(|((node, time), row)| (*node, *time) = task.row(row));
            (nodes, times)
        });
        let mut labels = self.ids.take();
        let mut splits: [Pages; 3] = std::array::from_fn(|_| self.ids.take());
        let mut counts = [0; 3];
        {
            let labels: &mut [i32] = bytemuck::cast_slice_mut(labels.resize(4 * len));
            let mut splits = splits.each_mut().map(|p| bytemuck::cast_slice_mut::<_, u32>(p.resize(4 * len)));
            for (label, example) in labels.iter_mut().zip(examples) {
                *label = model.label(example);
                let split = model.split(example);
                if let Some(examples) = splits.get_mut(split) {
                    examples[counts[split]] = example as u32;
                    counts[split] += 1;
                }
            }
        }
        splits.iter_mut().zip(counts).for_each(|(pages, count)| {
            pages.resize(4 * count);
        });
        Labels { times, labels, splits, rows }
    }
}

/// Arrays of the features of the first types: one by type, or one of all.
pub(crate) fn feature_arrays(of: &[NodeData], in_one: bool) -> Vec<(String, Vec<&NodeData>)> {
    if in_one {
        return vec![("features".into(), of.iter().collect())];
    }
    of.iter().enumerate().map(|(node_type, data)| (Meta::features_of(node_type), vec![data])).collect()
}

/// Builds the dataset in memory.
pub(crate) fn in_memory(model: &impl TypedModel, name: String) -> Dataset {
    let buffers = model.buffers();
    let blocks: Vec<TypedRows> = (0..model.num_blocks()).into_par_iter().map(|b| model.rows(b, &buffers)).collect();
    drop(buffers);
    let num_nodes = model.types().num_nodes();
    let mut indptr = Vec::with_capacity(num_nodes + 1);
    let num_edges = blocks.iter().map(|b| b.indices().len()).sum();
    let (mut indices, mut edge_types) = (Vec::with_capacity(num_edges), Vec::with_capacity(num_edges));
    indptr.push(0u64);
    let mut end = 0;
    for rows in blocks {
        indptr.extend(rows.degrees().iter().map(|&d| {
            end += u64::from(d);
            end
        }));
        indices.extend_from_slice(rows.indices());
        edge_types.extend_from_slice(rows.edge_types());
    }
    let (blocks, pools) = (num_nodes.div_ceil(LABELS), LabelPools::default());
    let (mut labels, mut times, mut splits) = (Vec::new(), Vec::new(), [const { Vec::new() }; 3]);
    let (mut row_nodes, mut row_times) = (Vec::new(), Vec::new());
    for block in (0..blocks).into_par_iter().map(|b| pools.block(model, b)).collect::<Vec<_>>() {
        labels.extend_from_slice(bytemuck::cast_slice::<_, i32>(&block.labels));
        times.extend_from_slice(bytemuck::cast_slice::<_, i64>(&block.times));
        let parts = splits.iter_mut().zip(&block.splits);
        parts.for_each(|(all, part)| all.extend_from_slice(bytemuck::cast_slice::<_, u32>(part)));
        if let Some((nodes, times)) = &block.rows {
            row_nodes.extend_from_slice(bytemuck::cast_slice::<_, u32>(nodes));
            row_times.extend_from_slice(bytemuck::cast_slice::<_, i64>(times));
        }
    }
    let task_rows = |_| TaskRows::new(row_nodes, row_times, num_nodes).expect("rows are of nodes of the graph");
    let task_rows = model.task().map(task_rows);
    let [train, valid, test] = splits.map(Into::into);
    let (mut features, mut features_by_type) = (None, Vec::<Option<FeatureMatrix>>::new());
    for (name, parts) in model.features() {
        let matrix = Some(features_in_memory(&parts));
        if name == "features" { features = matrix } else { features_by_type.push(matrix) }
    }
    if !features_by_type.is_empty() {
        features_by_type.resize(model.types().node_types().len(), None);
    }
    let topology = Topology::new(indptr, indices, None)
        .and_then(|topology| topology.with_types(model.types().clone(), edge_types))
        .and_then(|topology| topology.with_times(Some(times.into()), None));
    Dataset {
        features,
        features_by_type,
        edge_features: Vec::new(),
        task_rows,
        labels: Some(labels.into()),
        num_classes: model.num_classes(),
        splits: Splits { train, valid, test },
        ..Dataset::new(name, topology.expect("assembled rows form a typed topology"))
    }
}

/// Streams the dataset to `writer`, with the parallelism of `plan`.
pub(crate) fn to_disk(
    model: &impl TypedModel,
    mut writer: DatasetWriter,
    name: &str,
    provenance: &[(&str, Value)],
    plan: Plan,
    progress: Progress<'_>,
) -> Result<PathBuf> {
    let nodes = model.types().num_nodes() as u64;
    writer.set_types(model.types().clone());
    let (mut ends, mut indices) = (RowEnds::new(&writer)?, writer.stream::<u32>("indices")?);
    let mut edge_types = writer.stream::<u16>("edge_types")?;
    let write = |rows: TypedRows| {
        ends.write(rows.degrees())?;
        indices.write(rows.indices())?;
        edge_types.write(rows.edge_types())?;
        progress("edges", ends.num_rows(), nodes);
        Ok(())
    };
    let buffers = model.buffers();
    write_blocks(model.num_blocks(), plan.rows, |b| model.rows(b, &buffers), write)?;
    // Before features, which need their memory.
    drop(buffers);
    writer.add("indptr", ends.finish()?);
    writer.add("indices", indices.finish(None)?);
    writer.add("edge_types", edge_types.finish(None)?);

    let arrays = model.features();
    let rows = |parts: &[&NodeData]| parts.iter().map(|data| data.nodes()).sum::<u64>();
    let (mut done, total) = (0, arrays.iter().map(|(_, parts)| rows(parts)).sum());
    for (name, parts) in &arrays {
        features_to_disk(name, parts, &mut writer, plan, &|rows| progress("features", done + rows, total))?;
        done += rows(parts);
    }

    let (mut labels, mut times) = (writer.stream::<i32>("labels")?, writer.stream::<i64>("node_times")?);
    let mut splits = [writer.stream::<u32>(SPLITS[0])?, writer.stream(SPLITS[1])?, writer.stream(SPLITS[2])?];
    let mut rows = match model.task() {
        Some(_) => Some((writer.stream::<u32>(TaskRows::ARRAYS[0])?, writer.stream::<i64>(TaskRows::ARRAYS[1])?)),
        None => None,
    };
    let pools = LabelPools::default();
    let write = |block: Labels| {
        if let Some(((nodes, times), (of_nodes, of_times))) = rows.as_mut().zip(block.rows.as_ref()) {
            nodes.write(bytemuck::cast_slice(of_nodes))?;
            times.write(bytemuck::cast_slice(of_times))?;
        }
        labels.write(bytemuck::cast_slice(&block.labels))?;
        times.write(bytemuck::cast_slice(&block.times))?;
        splits.iter_mut().zip(&block.splits).try_for_each(|(stream, part)| stream.write(bytemuck::cast_slice(part)))?;
        progress("labels", times.len(), nodes);
        Ok(())
    };
    write_blocks((nodes as usize).div_ceil(LABELS), plan.labels, |b| pools.block(model, b), write)?;
    if let Some((nodes, times)) = rows {
        writer.add(TaskRows::ARRAYS[0], nodes.finish(None)?);
        writer.add(TaskRows::ARRAYS[1], times.finish(None)?);
    }
    writer.add("labels", labels.finish(None)?);
    writer.add("node_times", times.finish(None)?);
    for (name, stream) in SPLITS.into_iter().zip(splits) {
        writer.add(name, stream.finish(None)?);
    }
    let first = arrays.first().map(|(_, parts)| &parts[0].config);
    let provenance = describe(first, nodes, provenance);
    Ok(writer.finish(name, model.num_classes(), provenance)?)
}
