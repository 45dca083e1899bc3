//! Compressed sparse columns from a list of edges in memory.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::array::borrowed;
use crate::buffer::{Buffer, Kind};

/// `(indptr, indices, order)` of the edges `sources[i]` → `targets[i]`: int64 offsets, int32 sources row after row, and for each
/// the position `i` that it had. Rows are ascending and equal edges keep their order, as in an imported dataset.
///
/// O(nodes + edges) time, 12 bytes per edge of memory besides the result: a radix sort by source, then by target.
#[pyfunction]
pub(crate) fn csc(
    py: Python<'_>,
    sources: &Bound<'_, PyAny>,
    targets: &Bound<'_, PyAny>,
    num_nodes: usize,
) -> PyResult<(Buffer, Buffer, Buffer)> {
    let (sources, targets) = (borrowed::<u32>("sources", sources)?, borrowed::<u32>("targets", targets)?);
    if sources.len() != targets.len() {
        let what = format!("edges: {} sources and {} targets; give one of each per edge", sources.len(), targets.len());
        return Err(PyValueError::new_err(what));
    }
    for (row, ids) in [("sources", &sources), ("targets", &targets)] {
        if let Some(at) = ids.iter().position(|&v| v as usize >= num_nodes) {
            let what = format!("{row}, edge {at}: node {} does not exist, there are {num_nodes}", ids[at]);
            return Err(PyValueError::new_err(what));
        }
    }
    if sources.len() > u32::MAX as usize {
        return Err(PyValueError::new_err(
            "edges: more than 2^32 - 1; import them with `morphgl import` and open the dataset",
        ));
    }
    let (indptr, indices, order) = py.detach(|| {
        let by_source = sorted(&sources, (0..sources.len() as u32).collect(), num_nodes).1;
        let (indptr, order) = sorted(&targets, by_source, num_nodes);
        let indices: Vec<u32> = order.iter().map(|&edge| sources[edge as usize]).collect();
        (indptr, indices, order)
    });
    let shape = vec![order.len()];
    Ok((of(indptr, vec![num_nodes + 1], Kind::I64), of(indices, shape.clone(), Kind::I32), of(order, shape, Kind::U32)))
}

/// The edges of `order`, stably sorted by `keys[edge]`, after the offset of each key.
fn sorted(keys: &[u32], order: Vec<u32>, num_keys: usize) -> (Vec<u64>, Vec<u32>) {
    let mut offsets = vec![0_u64; num_keys + 1];
    keys.iter().for_each(|&key| offsets[key as usize + 1] += 1);
    (0..num_keys).for_each(|key| offsets[key + 1] += offsets[key]);
    let mut next = offsets.clone();
    let mut sorted = vec![0; order.len()];
    for edge in order {
        let place = &mut next[keys[edge as usize] as usize];
        sorted[*place as usize] = edge;
        *place += 1;
    }
    (offsets, sorted)
}

/// A vector as a buffer, whose memory belongs to Python alone.
fn of<T: bytemuck::NoUninit + Send + Sync>(values: Vec<T>, shape: Vec<usize>, kind: Kind) -> Buffer {
    let values = Arc::new(values);
    // SAFETY: the vector is never resized and nobody else has it.
    unsafe { Buffer::new(bytemuck::cast_slice(&values), shape, kind, false, Arc::<Vec<T>>::clone(&values)) }
}
