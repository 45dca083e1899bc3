//! From a model to a dataset, in memory or streamed to disk. Both run the same blocks in the same order.

use std::collections::BTreeMap;
use std::path::PathBuf;

use half::{bf16, f16};
use morphgl_graph_store::{Dataset, DatasetWriter, Dtype, FeatureMatrix, Splits, Topology};
use rayon::prelude::*;

use crate::node_data::{Feature, NodeData};
use crate::rows::Rows;
use crate::{Error, Result};

/// Memory a generator may use when nobody says otherwise: 2 GiB.
pub const DEFAULT_MEMORY: u64 = 2 << 30;

/// Values of a block of features, nodes of a block of labels.
const BLOCK: usize = 1 << 18;

/// A random graph whose rows can be made block by block, in any order and on any thread.
pub(crate) trait Model: Sync {
    fn data(&self) -> &NodeData;
    /// Number of blocks of consecutive rows; fixed by the configuration, whatever the memory and threads.
    fn num_blocks(&self) -> usize;
    fn rows(&self, block: usize) -> Rows;
}

/// Who is told how far it is: stage, nodes done, nodes in all.
pub(crate) type Progress<'a> = &'a (dyn Fn(&str, u64, u64) + Sync);

/// What a model needs in memory, known before it is built.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Footprint {
    /// Bytes that stay as long as the model.
    pub(crate) resident: u64,
    /// Bytes that the largest block of rows takes while it is made.
    pub(crate) block: u64,
}

impl Footprint {
    /// Bytes of `memory` that are left for blocks.
    ///
    /// # Errors
    ///
    /// They do not hold two blocks of rows: one being made, one being written.
    pub(crate) fn rest(&self, memory: u64) -> Result<u64> {
        let needed = self.resident + 2 * self.block.max(8 * BLOCK as u64);
        if memory < needed {
            let what = format!("{} MiB do not hold the tables and two blocks of rows", memory >> 20);
            return Err(Error::argument("memory", what, format!("pass at least {} MiB", (needed >> 20) + 1)));
        }
        Ok(memory - self.resident)
    }
}

/// Makes blocks in parallel, a group at a time, and writes one group in order while the next is made.
fn pipeline<T: Send>(
    blocks: usize,
    group: usize,
    make: impl Fn(usize) -> T + Sync,
    mut write: impl FnMut(T) -> Result<()> + Send,
) -> Result<()> {
    let group = group.clamp(1, 4 * rayon::current_num_threads());
    let make = |from: usize| (from..(from + group).min(blocks)).into_par_iter().map(&make).collect::<Vec<T>>();
    let mut ready = make(0);
    for from in (group..blocks + group).step_by(group) {
        let write = &mut write;
        let (written, next) = rayon::join(move || ready.into_iter().try_for_each(write), || make(from));
        written?;
        ready = next;
    }
    Ok(())
}

/// Labels and splits of a block of nodes.
fn labels_and_splits(data: &NodeData, block: usize) -> (Vec<i32>, [Vec<u32>; 3]) {
    let nodes = (block * BLOCK) as u64..((block + 1) * BLOCK).min(data.nodes() as usize) as u64;
    let mut splits = [const { Vec::new() }; 3];
    for node in nodes.clone() {
        if let Some(split) = splits.get_mut(data.split(node)) {
            split.push(node as u32);
        }
    }
    (nodes.map(|v| data.label(v)).collect(), splits)
}

/// Builds the dataset in memory.
pub(crate) fn in_memory(model: &impl Model, name: String) -> Dataset {
    let data = model.data();
    let blocks: Vec<Rows> = (0..model.num_blocks()).into_par_iter().map(|b| model.rows(b)).collect();
    let mut indptr = Vec::with_capacity(data.nodes() as usize + 1);
    let mut indices = Vec::with_capacity(blocks.iter().map(|b| b.indices.len()).sum());
    indptr.push(0u64);
    let mut end = 0;
    for rows in blocks {
        indptr.extend(rows.degrees.iter().map(|&d| {
            end += u64::from(d);
            end
        }));
        indices.extend_from_slice(&rows.indices);
    }
    let blocks = (data.nodes() as usize).div_ceil(BLOCK);
    let (mut labels, mut splits) = (Vec::new(), [const { Vec::new() }; 3]);
    for (l, s) in (0..blocks).into_par_iter().map(|b| labels_and_splits(data, b)).collect::<Vec<_>>() {
        labels.extend(l);
        splits.iter_mut().zip(s).for_each(|(all, part)| all.extend(part));
    }
    let [train, valid, test] = splits.map(Into::into);
    let dim = data.config.dim;
    let features = match data.config.dtype {
        Dtype::F16 => FeatureMatrix::F16 { data: all_features(data).into(), dim },
        Dtype::Bf16 => FeatureMatrix::Bf16 { data: all_features(data).into(), dim },
        Dtype::U8 => FeatureMatrix::U8 { data: all_features(data).into(), dim },
        _ => FeatureMatrix::F32 { data: all_features(data).into(), dim },
    };
    Dataset {
        path: PathBuf::new(),
        name,
        topology: Topology::new(indptr, indices, None).expect("assembled rows form a topology"),
        features: Some(features),
        labels: Some(labels.into()),
        num_classes: data.config.classes,
        splits: Splits { train, valid, test },
        node_ids: None,
    }
}

fn all_features<T: Feature>(data: &NodeData) -> Vec<T> {
    let dim = data.config.dim;
    // Small blocks: the default dataset is to fill every core.
    let rows = (BLOCK / 8 / dim).max(1);
    let mut values = vec![T::default(); data.nodes() as usize * dim];
    values.par_chunks_mut(rows * dim).enumerate().for_each(|(i, out)| data.features((i * rows) as u64, out));
    values
}

/// Streams the dataset to `target`. `rest` is the memory left for blocks, `block` what one block of rows takes.
pub(crate) fn to_disk(
    model: &impl Model,
    mut writer: DatasetWriter,
    name: &str,
    provenance: BTreeMap<String, serde_json::Value>,
    (rest, block): (u64, u64),
    progress: Progress<'_>,
) -> Result<PathBuf> {
    let data = model.data();
    let nodes = data.nodes();
    let (mut indptr, mut indices) = (writer.stream::<u64>("indptr")?, writer.stream::<u32>("indices")?);
    indptr.write(&[0])?;
    let write = |rows: Rows| {
        let mut end = indices.len();
        let ends: Vec<u64> = rows
            .degrees
            .iter()
            .map(|&d| {
                end += u64::from(d);
                end
            })
            .collect();
        indptr.write(&ends)?;
        indices.write(&rows.indices)?;
        progress("edges", indptr.len() - 1, nodes);
        Ok(())
    };
    pipeline(model.num_blocks(), (rest / (2 * block)) as usize, |b| model.rows(b), write)?;
    writer.add("indptr", indptr.finish(None)?);
    writer.add("indices", indices.finish(None)?);

    match data.config.dtype {
        Dtype::F16 => features_to_disk::<f16>(data, &mut writer, rest, progress)?,
        Dtype::Bf16 => features_to_disk::<bf16>(data, &mut writer, rest, progress)?,
        Dtype::U8 => features_to_disk::<u8>(data, &mut writer, rest, progress)?,
        _ => features_to_disk::<f32>(data, &mut writer, rest, progress)?,
    }

    const SPLITS: [&str; 3] = ["train", "valid", "test"];
    let mut labels = writer.stream::<i32>("labels")?;
    let mut splits = [writer.stream::<u32>(SPLITS[0])?, writer.stream(SPLITS[1])?, writer.stream(SPLITS[2])?];
    let group = (rest / (16 * BLOCK as u64)) as usize;
    let write = |(l, s): (Vec<i32>, [Vec<u32>; 3])| {
        labels.write(&l)?;
        splits.iter_mut().zip(&s).try_for_each(|(stream, part)| stream.write(part))?;
        progress("labels", labels.len(), nodes);
        Ok(())
    };
    pipeline((nodes as usize).div_ceil(BLOCK), group, |b| labels_and_splits(data, b), write)?;
    writer.add("labels", labels.finish(None)?);
    for (name, stream) in SPLITS.into_iter().zip(splits) {
        writer.add(name, stream.finish(None)?);
    }
    Ok(writer.finish(name, data.config.classes, provenance)?)
}

fn features_to_disk<T: Feature>(
    data: &NodeData,
    writer: &mut DatasetWriter,
    rest: u64,
    progress: Progress<'_>,
) -> Result<()> {
    let (nodes, dim) = (data.nodes() as usize, data.config.dim);
    let rows = (BLOCK / dim).max(1);
    let mut stream = writer.stream::<T>("features")?;
    let make = |block: usize| {
        let mut values = vec![T::default(); rows.min(nodes - block * rows) * dim];
        data.features((block * rows) as u64, &mut values);
        values
    };
    let write = |values: Vec<T>| {
        stream.write(&values)?;
        progress("features", stream.len() / dim as u64, nodes as u64);
        Ok(())
    };
    let bytes = 2 * (rows * dim * size_of::<T>()) as u64;
    pipeline(nodes.div_ceil(rows), (rest / bytes) as usize, make, write)?;
    writer.add("features", stream.finish(Some(dim))?);
    Ok(())
}
