//! From a model to a dataset, in memory or streamed to disk. Both run the same blocks in the same order.

use std::collections::BTreeMap;
use std::path::PathBuf;

use half::{bf16, f16};
use morphgl_graph_store::{
    ArrayMeta, Dataset, DatasetWriter, Dtype, FeatureMatrix, NpyWriter, Splits, Topology, write_blocks,
};
use morphgl_platform::{PagePool, Pages};
use rayon::prelude::*;
use serde_json::{Value, json};

use crate::Result;
use crate::memory::Plan;
use crate::node_data::{Feature, LABELS, NodeConfig, NodeData};
use crate::rows::{Buffers, SortedRows};

/// Default memory of a generator: 2 GiB.
pub const DEFAULT_MEMORY: u64 = 2 << 30;

/// Number of rows whose ends are written at a time.
const ENDS: usize = 1 << 12;
pub(crate) const SPLITS: [&str; 3] = ["train", "valid", "test"];

/// A random graph whose rows can be made block by block, in any order and on any thread.
pub(crate) trait Model: Sync {
    fn data(&self) -> &NodeData;
    /// Number of blocks of consecutive rows; fixed by the configuration, whatever the memory and threads.
    fn num_blocks(&self) -> usize;
    /// Buffers for the rows of blocks.
    fn buffers(&self) -> Buffers;
    fn rows(&self, block: usize, buffers: &Buffers) -> SortedRows;
}

/// Progress callback: stage, nodes done, nodes in all.
pub(crate) type Progress<'a> = &'a (dyn Fn(&str, u64, u64) + Sync);

/// Labels of a block of nodes, and the nodes of each split.
fn labels_and_splits(data: &NodeData, block: usize, pool: &PagePool) -> [Pages; 4] {
    let nodes = (block * LABELS) as u64..((block + 1) * LABELS).min(data.nodes() as usize) as u64;
    let len = (nodes.end - nodes.start) as usize;
    let mut pages: [Pages; 4] = std::array::from_fn(|_| pool.take());
    let mut counts = [0; 4];
    {
        let [labels, mut splits @ ..] = pages.each_mut().map(|p| bytemuck::cast_slice_mut::<_, u32>(p.resize(4 * len)));
        for (label, node) in labels.iter_mut().zip(nodes) {
            // The same bits: classes are signed, for "none".
            *label = data.label(node).cast_unsigned();
            let split = data.split(node);
            if let Some(nodes) = splits.get_mut(split) {
                nodes[counts[split]] = node as u32;
                counts[split] += 1;
            }
        }
    }
    let [train, valid, test, _] = counts;
    for (pages, len) in pages.iter_mut().zip([len, train, valid, test]) {
        pages.resize(4 * len);
    }
    pages
}

/// Builds the dataset in memory.
pub(crate) fn in_memory(model: &impl Model, name: String) -> Dataset {
    let data = model.data();
    let buffers = model.buffers();
    let blocks: Vec<SortedRows> = (0..model.num_blocks()).into_par_iter().map(|b| model.rows(b, &buffers)).collect();
    drop(buffers);
    let mut indptr = Vec::with_capacity(data.nodes() as usize + 1);
    let mut indices = Vec::with_capacity(blocks.iter().map(|b| b.indices().len()).sum());
    indptr.push(0u64);
    let mut end = 0;
    for rows in blocks {
        indptr.extend(rows.degrees().iter().map(|&d| {
            end += u64::from(d);
            end
        }));
        indices.extend_from_slice(rows.indices());
    }
    let (blocks, pool) = ((data.nodes() as usize).div_ceil(LABELS), PagePool::new());
    let (mut labels, mut splits) = (Vec::new(), [const { Vec::new() }; 3]);
    for [l, s @ ..] in (0..blocks).into_par_iter().map(|b| labels_and_splits(data, b, &pool)).collect::<Vec<_>>() {
        labels.extend_from_slice(bytemuck::cast_slice::<_, i32>(&l));
        splits.iter_mut().zip(&s).for_each(|(all, part)| all.extend_from_slice(bytemuck::cast_slice::<_, u32>(part)));
    }
    let [train, valid, test] = splits.map(Into::into);
    Dataset {
        features: Some(features_in_memory(&[data])),
        labels: Some(labels.into()),
        num_classes: data.config.classes,
        splits: Splits { train, valid, test },
        ..Dataset::new(name, Topology::new(indptr, indices, None).expect("assembled rows form a topology"))
    }
}

/// Features of the nodes of all `parts`, which have one width and type.
pub(crate) fn features_in_memory(parts: &[&NodeData]) -> FeatureMatrix {
    let dim = parts[0].config.dim;
    match parts[0].config.dtype {
        Dtype::F16 => FeatureMatrix::F16 { data: all_features(parts).into(), dim },
        Dtype::Bf16 => FeatureMatrix::Bf16 { data: all_features(parts).into(), dim },
        Dtype::U8 => FeatureMatrix::U8 { data: all_features(parts).into(), dim },
        _ => FeatureMatrix::F32 { data: all_features(parts).into(), dim },
    }
}

fn all_features<T: Feature>(parts: &[&NodeData]) -> Vec<T> {
    let dim = parts[0].config.dim;
    let nodes: u64 = parts.iter().map(|data| data.nodes()).sum();
    let mut values = vec![T::default(); nodes as usize * dim];
    let mut rest = &mut values[..];
    for data in parts {
        // Small blocks, so that the default dataset fills every core.
        let rows = data.block_rows().div_ceil(4);
        let (values, others) = std::mem::take(&mut rest).split_at_mut(data.nodes() as usize * dim);
        let blocks = values.par_chunks_mut(rows * dim).enumerate();
        blocks.for_each(|(i, out)| data.features((i * rows) as u64, out, &mut vec![0.0; dim]));
        rest = others;
    }
    values
}

/// Streams the dataset to `writer`, with the parallelism of `plan`.
pub(crate) fn to_disk(
    model: &impl Model,
    mut writer: DatasetWriter,
    name: &str,
    provenance: &[(&str, Value)],
    plan: Plan,
    progress: Progress<'_>,
) -> Result<PathBuf> {
    let data = model.data();
    let nodes = data.nodes();
    let (mut ends, mut indices) = (RowEnds::new(&writer)?, writer.stream::<u32>("indices")?);
    let write = |rows: SortedRows| {
        ends.write(rows.degrees())?;
        indices.write(rows.indices())?;
        progress("edges", ends.num_rows(), nodes);
        Ok(())
    };
    let buffers = model.buffers();
    write_blocks(model.num_blocks(), plan.rows, |b| model.rows(b, &buffers), write)?;
    // Before features, which need their memory.
    drop(buffers);
    writer.add("indptr", ends.finish()?);
    writer.add("indices", indices.finish(None)?);

    features_to_disk("features", &[data], &mut writer, plan, &|rows| progress("features", rows, nodes))?;

    let mut labels = writer.stream::<i32>("labels")?;
    let mut splits = [writer.stream::<u32>(SPLITS[0])?, writer.stream(SPLITS[1])?, writer.stream(SPLITS[2])?];
    let pool = PagePool::new();
    let write = |[l, s @ ..]: [Pages; 4]| {
        labels.write(bytemuck::cast_slice(&l))?;
        splits.iter_mut().zip(&s).try_for_each(|(stream, part)| stream.write(bytemuck::cast_slice(part)))?;
        progress("labels", labels.len(), nodes);
        Ok(())
    };
    write_blocks((nodes as usize).div_ceil(LABELS), plan.labels, |b| labels_and_splits(data, b, &pool), write)?;
    writer.add("labels", labels.finish(None)?);
    for (name, stream) in SPLITS.into_iter().zip(splits) {
        writer.add(name, stream.finish(None)?);
    }
    let provenance = describe(Some(&data.config), nodes, provenance);
    Ok(writer.finish(name, data.config.classes, provenance)?)
}

/// The provenance of a dataset of `nodes` nodes in all, whose features are of `config`.
pub(crate) fn describe(
    config: Option<&NodeConfig>,
    nodes: u64,
    provenance: &[(&str, Value)],
) -> BTreeMap<String, Value> {
    let of_features = config.map(|config| {
        [
            ("classes", json!(config.classes)),
            ("dim", json!(config.dim)),
            ("dtype", json!(config.dtype.to_string())),
            ("signal", json!(config.signal)),
            ("splits", json!(config.splits)),
            ("seed", json!(config.seed)),
        ]
    });
    let common = [("nodes", json!(nodes))].into_iter().chain(of_features.into_iter().flatten());
    common.chain(provenance.iter().cloned()).map(|(key, value)| (key.to_string(), value)).collect()
}

/// Offsets of rows, from their degrees.
#[derive(Debug)]
pub(crate) struct RowEnds {
    indptr: NpyWriter<u64>,
    end: u64,
}

impl RowEnds {
    pub(crate) fn new(writer: &DatasetWriter) -> Result<Self> {
        let mut indptr = writer.stream("indptr")?;
        indptr.write(&[0])?;
        Ok(Self { indptr, end: 0 })
    }

    pub(crate) fn num_rows(&self) -> u64 {
        self.indptr.len() - 1
    }

    /// Appends rows of the degrees given.
    pub(crate) fn write(&mut self, degrees: &[u32]) -> morphgl_graph_store::Result<()> {
        let mut ends = [0; ENDS];
        for degrees in degrees.chunks(ENDS) {
            for (at, &degree) in ends.iter_mut().zip(degrees) {
                self.end += u64::from(degree);
                *at = self.end;
            }
            self.indptr.write(&ends[..degrees.len()])?;
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Result<ArrayMeta> {
        Ok(self.indptr.finish(None)?)
    }
}

/// Streams the features of the nodes of all `parts`, which have one width and type, to the array `name`; `progress` is called with
/// the rows written.
pub(crate) fn features_to_disk(
    name: &str,
    parts: &[&NodeData],
    writer: &mut DatasetWriter,
    plan: Plan,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<()> {
    match parts[0].config.dtype {
        Dtype::F16 => stream_features::<f16>(name, parts, writer, plan, progress),
        Dtype::Bf16 => stream_features::<bf16>(name, parts, writer, plan, progress),
        Dtype::U8 => stream_features::<u8>(name, parts, writer, plan, progress),
        _ => stream_features::<f32>(name, parts, writer, plan, progress),
    }
}

fn stream_features<T: Feature>(
    name: &str,
    parts: &[&NodeData],
    writer: &mut DatasetWriter,
    plan: Plan,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<()> {
    let dim = parts[0].config.dim;
    let (pool, row_pool) = (PagePool::new(), PagePool::new());
    let mut stream = writer.stream::<T>(name)?;
    for data in parts {
        let (nodes, rows) = (data.nodes() as usize, data.block_rows());
        let make = |block: usize| {
            let (mut values, mut row) = (pool.take(), row_pool.take());
            let out: &mut [T] =
                bytemuck::cast_slice_mut(values.resize(rows.min(nodes - block * rows) * dim * size_of::<T>()));
            data.features((block * rows) as u64, out, bytemuck::cast_slice_mut(row.resize(4 * dim)));
            values
        };
        let write = |values: Pages| {
            stream.write(bytemuck::cast_slice(&values))?;
            progress(stream.len() / dim as u64);
            Ok(())
        };
        write_blocks(nodes.div_ceil(rows), plan.features, make, write)?;
    }
    writer.add(name, stream.finish(Some(dim))?);
    Ok(())
}
