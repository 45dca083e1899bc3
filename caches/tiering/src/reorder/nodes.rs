//! Data of the nodes: features, targets, columns of one element per node, splits.

use half::{bf16, f16};
use morphgl_graph_store::{Dataset, DatasetWriter, Element, FeatureMatrix, Meta, write_blocks};
use morphgl_platform::{PagePool, Pages};

use super::{Progress, group};
use crate::{Order, Result};

/// Bytes of a block of features or targets, if no single row is longer.
const BLOCK_BYTES: usize = 1 << 20;
/// Nodes of a block of a column.
const BLOCK: usize = 1 << 17;

/// Writes the features, where there are any.
pub(super) fn features(
    dataset: &Dataset,
    order: &Order,
    writer: &mut DatasetWriter,
    progress: Progress<'_>,
) -> Result<()> {
    let all = order.old_of_new();
    if let Some(matrix) = &dataset.features {
        matrix_rows("features", matrix, all, writer, progress)?;
    }
    for (number, matrix) in dataset.features_by_type.iter().enumerate() {
        let (Some(matrix), Some(types)) = (matrix, dataset.topology.types()) else { continue };
        let of_type = types.range(number);
        // Rows are numbered within the type.
        let nodes: Vec<u32> =
            all[of_type.start as usize..of_type.end as usize].iter().map(|&old| old - of_type.start).collect();
        matrix_rows(&Meta::features_of(number), matrix, &nodes, writer, progress)?;
    }
    Ok(())
}

/// Writes the features of edges, whose rows keep their numbers.
pub(super) fn edge_features(dataset: &Dataset, writer: &mut DatasetWriter) -> Result<()> {
    let is_typed = dataset.topology.types().is_some();
    for (number, matrix) in dataset.edge_features.iter().enumerate() {
        let Some(matrix) = matrix else { continue };
        let (name, dim) = (Meta::edge_features_of(is_typed.then_some(number)), Some(matrix.dim()));
        match matrix {
            FeatureMatrix::F32 { data, .. } => writer.array(&name, data, dim)?,
            FeatureMatrix::F16 { data, .. } => writer.array(&name, data, dim)?,
            FeatureMatrix::Bf16 { data, .. } => writer.array(&name, data, dim)?,
            FeatureMatrix::U8 { data, .. } => writer.array(&name, data, dim)?,
        }
    }
    Ok(())
}

/// Writes these rows of a matrix of features as the array `name`.
fn matrix_rows(
    name: &str,
    matrix: &FeatureMatrix,
    nodes: &[u32],
    writer: &mut DatasetWriter,
    progress: Progress<'_>,
) -> Result<()> {
    if matrix.row_bytes() == 0 {
        // Rows without an element have nothing to be copied.
        return Ok(());
    }
    match matrix {
        FeatureMatrix::F32 { .. } => rows::<f32>(name, matrix, nodes, writer, progress),
        FeatureMatrix::F16 { .. } => rows::<f16>(name, matrix, nodes, writer, progress),
        FeatureMatrix::Bf16 { .. } => rows::<bf16>(name, matrix, nodes, writer, progress),
        FeatureMatrix::U8 { .. } => rows::<u8>(name, matrix, nodes, writer, progress),
    }
}

/// Writes the targets, where there are any.
pub(super) fn targets(
    dataset: &Dataset,
    order: &Order,
    writer: &mut DatasetWriter,
    progress: Progress<'_>,
) -> Result<()> {
    let Some(targets) = &dataset.targets else { return Ok(()) };
    let matrix = FeatureMatrix::F32 { data: targets.values().clone(), dim: targets.dim() };
    rows::<f32>("targets", &matrix, order.old_of_new(), writer, progress)
}

/// Writes the rows of `nodes` of `matrix`, whose elements are of type `T`, as the array `name`.
fn rows<T: Element>(
    name: &str,
    matrix: &FeatureMatrix,
    nodes: &[u32],
    writer: &mut DatasetWriter,
    progress: Progress<'_>,
) -> Result<()> {
    let (row_bytes, dim) = (matrix.row_bytes(), matrix.dim());
    let block_rows = (BLOCK_BYTES / row_bytes).max(1);
    let mut stream = writer.stream::<T>(name)?;
    let pool = PagePool::new();
    let make = |block: usize| {
        let nodes = &nodes[block * block_rows..nodes.len().min((block + 1) * block_rows)];
        let mut pages = pool.take();
        matrix.gather_rows(nodes, pages.resize(nodes.len() * row_bytes));
        pages
    };
    let write = |pages: Pages| {
        stream.write_pages(pages)?;
        progress(name, stream.len() / dim as u64, nodes.len() as u64);
        Ok(())
    };
    write_blocks(nodes.len().div_ceil(block_rows), group(), make, write)?;
    writer.add(name, stream.finish(Some(dim))?);
    Ok(())
}

/// Writer of columns, which have one element per node.
#[derive(Clone, Copy)]
pub(super) struct Nodes<'a> {
    pub(super) order: &'a Order,
    pub(super) progress: Progress<'a>,
}

impl Nodes<'_> {
    /// Writes the column `name`, which has the element `of_old(v)` for the node whose old number is `v`.
    pub(super) fn write<T: Element>(
        self,
        name: &str,
        writer: &mut DatasetWriter,
        of_old: impl Fn(u32) -> T + Sync,
    ) -> Result<()> {
        let nodes = self.order.old_of_new();
        let mut stream = writer.stream::<T>(name)?;
        let pool = PagePool::new();
        let make = |block: usize| {
            let nodes = &nodes[block * BLOCK..nodes.len().min((block + 1) * BLOCK)];
            let mut pages = pool.take();
            let values: &mut [T] = bytemuck::cast_slice_mut(pages.resize(nodes.len() * size_of::<T>()));
            values.iter_mut().zip(nodes).for_each(|(value, &old)| *value = of_old(old));
            pages
        };
        let write = |pages: Pages| {
            stream.write_pages(pages)?;
            (self.progress)(name, stream.len(), nodes.len() as u64);
            Ok(())
        };
        write_blocks(nodes.len().div_ceil(BLOCK), group(), make, write)?;
        writer.add(name, stream.finish(None)?);
        Ok(())
    }
}

/// Writes nodes of a split, or of pairs, by their new numbers, in their order; `dim` gives a matrix its row length.
pub(super) fn numbers(
    name: &str,
    numbers: &[u32],
    dim: Option<usize>,
    order: &Order,
    writer: &mut DatasetWriter,
) -> Result<()> {
    let mut stream = writer.stream::<u32>(name)?;
    let mut block = Vec::with_capacity(BLOCK.min(numbers.len()));
    for nodes in numbers.chunks(BLOCK) {
        block.clear();
        block.extend(nodes.iter().map(|&old| order.new_of_old()[old as usize]));
        stream.write(&block)?;
    }
    writer.add(name, stream.finish(dim)?);
    Ok(())
}
