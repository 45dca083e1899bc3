//! Rows of arrays of any type of numbers, copied by their bytes.

use std::sync::{Arc, OnceLock};

use morphgl_graph_store::Array;
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use rayon::prelude::*;

use crate::array::{Rows, borrowed, rows_of};
use crate::buffer::{Buffer, Kind};

/// Bytes per task of a parallel gather, about.
const TASK_BYTES: usize = 512 << 10;
/// Bytes of the smallest gather that several threads share.
const PARALLEL_BYTES: usize = 2 << 20;

/// The process that the threads of the global pool belong to.
static PROCESS: OnceLock<u32> = OnceLock::new();

/// Remembers the process that the package was imported in.
pub(crate) fn started() {
    PROCESS.get_or_init(std::process::id);
}

/// For each `(array, dtype, index)`, the rows `index` of the array along its first dimension. `dtype` names the elements as torch does, `index`
/// is int64. The interpreter's lock is released once, for all of them.
///
/// O(bytes of the rows) time; on several threads from 2 MiB on, but for a process that was forked from the one that imported the package.
#[pyfunction]
pub(crate) fn gather(
    py: Python<'_>,
    requests: Vec<(Bound<'_, PyAny>, String, Bound<'_, PyAny>)>,
) -> PyResult<Vec<Buffer>> {
    let parse = |(array, dtype, index): &(Bound<'_, PyAny>, String, Bound<'_, PyAny>)| {
        let kind = Kind::named(dtype).ok_or_else(|| {
            PyValueError::new_err(format!(
                "{dtype} is no type of numbers whose rows are gathered; convert the attribute"
            ))
        })?;
        Ok((rows_of("attribute", array, kind.bytes())?, kind, borrowed::<i64>("index", index)?))
    };
    let requests: Vec<(Rows, Kind, Array<i64>)> = requests.iter().map(parse).collect::<PyResult<_>>()?;
    py.detach(|| requests.iter().map(|(rows, kind, index)| gathered(rows, *kind, index)).collect())
}

fn gathered(rows: &Rows, kind: Kind, index: &[i64]) -> PyResult<Buffer> {
    let num_rows = rows.shape[0];
    if let Some(row) = index.iter().find(|&&row| row < 0 || row as usize >= num_rows) {
        return Err(PyIndexError::new_err(format!("row {row} does not exist, there are {num_rows}")));
    }
    let row_bytes = kind.bytes() * rows.shape[1..].iter().product::<usize>();
    let len = row_bytes * index.len();
    // Words, so that elements of every type are aligned.
    let mut words = vec![0u64; len.div_ceil(8)];
    let out = &mut bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..len];
    if row_bytes > 0 {
        let is_forked = PROCESS.get().is_none_or(|&process| process != std::process::id());
        if len < PARALLEL_BYTES || is_forked {
            copy(&rows.bytes, row_bytes, index, out);
        } else {
            let task = (TASK_BYTES / row_bytes).max(64);
            let tasks = index.par_chunks(task).zip(out.par_chunks_mut(task * row_bytes));
            tasks.for_each(|(index, out)| copy(&rows.bytes, row_bytes, index, out));
        }
    }
    let mut shape = rows.shape.clone();
    shape[0] = index.len();
    let words = Arc::new(words);
    let values = &bytemuck::cast_slice::<u64, u8>(&words[..])[..len];
    // SAFETY: the owner keeps the words, which nothing else has.
    Ok(unsafe { Buffer::new(values, shape, kind, false, Arc::<Vec<u64>>::clone(&words)) })
}

/// Copies the rows `index` of `bytes` to `out`.
fn copy(bytes: &[u8], row_bytes: usize, index: &[i64], out: &mut [u8]) {
    match row_bytes {
        1 => copy_of::<1>(bytes, index, out),
        2 => copy_of::<2>(bytes, index, out),
        4 => copy_of::<4>(bytes, index, out),
        8 => copy_of::<8>(bytes, index, out),
        16 => copy_of::<16>(bytes, index, out),
        _ => index.iter().zip(out.chunks_exact_mut(row_bytes)).for_each(|(&row, out)| {
            let start = row as usize * row_bytes;
            out.copy_from_slice(&bytes[start..start + row_bytes]);
        }),
    }
}

/// As [`copy`], of rows whose length the compiler knows.
fn copy_of<const BYTES: usize>(bytes: &[u8], index: &[i64], out: &mut [u8]) {
    let (rows, _) = bytes.as_chunks::<BYTES>();
    let (out, _) = out.as_chunks_mut::<BYTES>();
    out.iter_mut().zip(index).for_each(|(out, &row)| *out = rows[row as usize]);
}
