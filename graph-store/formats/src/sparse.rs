//! A sparse matrix by rows, checked once, that gives dense rows one at a time.

use crate::elements::Parsed;

/// Whether u8 represents `value` exactly.
pub(crate) fn is_small_integer(value: f32) -> bool {
    (0.0..=255.0).contains(&value) && value.fract() == 0.0
}

/// A matrix in compressed sparse rows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SparseRows {
    pub(crate) num_rows: usize,
    pub(crate) num_cols: usize,
    // Invariant, checked in `new`: starts at 0, does not decrease, ends at the number of entries; columns < num_cols.
    indptr: Vec<usize>,
    indices: Vec<u32>,
    values: Vec<f32>,
}

impl SparseRows {
    /// Checks a matrix; `Err` says what is wrong with it.
    pub(crate) fn new(shape: [i64; 2], indptr: Vec<i64>, indices: Vec<i64>, values: Vec<f32>) -> Parsed<Self> {
        let [Ok(num_rows), Ok(num_cols)] = shape.map(usize::try_from) else {
            return Err(format!("the shape {shape:?} is impossible"));
        };
        if num_rows.checked_add(1) != Some(indptr.len()) {
            return Err(format!("{} row offsets for {num_rows} rows", indptr.len()));
        }
        if indices.len() != values.len() {
            return Err(format!("{} column numbers for {} values", indices.len(), values.len()));
        }
        if let Some(i) = indptr.windows(2).position(|w| w[0] > w[1]) {
            return Err(format!("the row offset decreases from {} to {} at row {}", indptr[i], indptr[i + 1], i + 1));
        }
        if indptr[0] != 0 || indptr[num_rows] != indices.len() as i64 {
            let (first, last, len) = (indptr[0], indptr[num_rows], indices.len());
            return Err(format!("row offsets from {first} to {last} for {len} entries"));
        }
        if let Some(i) = indices.iter().position(|&c| c < 0 || c as u64 >= num_cols as u64 || c > i64::from(u32::MAX)) {
            return Err(format!("entry {i} is in column {}, but there are {num_cols}", indices[i]));
        }
        if let Some(i) = values.iter().position(|v| !v.is_finite()) {
            return Err(format!("entry {i} is {}, not a finite number", values[i]));
        }
        let indptr = indptr.into_iter().map(|p| p as usize).collect();
        let indices = indices.into_iter().map(|c| c as u32).collect();
        Ok(Self { num_rows, num_cols, indptr, indices, values })
    }

    /// Column numbers and values of a row, as they are stored.
    pub(crate) fn row(&self, row: usize) -> (&[u32], &[f32]) {
        let range = self.indptr[row]..self.indptr[row + 1];
        (&self.indices[range.clone()], &self.values[range])
    }

    /// Writes a row densely into `out`; entries of the same column add up, as in scipy.
    pub(crate) fn dense_row(&self, row: usize, out: &mut [f32]) {
        out.fill(0.0);
        let (cols, values) = self.row(row);
        cols.iter().zip(values).for_each(|(&c, v)| out[c as usize] += v);
    }

    /// Values of all entries.
    pub(crate) fn values(&self) -> &[f32] {
        &self.values
    }

    /// Whether u8 represents every value of the dense matrix exactly: entries of one column add up, so their sums count.
    pub(crate) fn has_small_integers(&self) -> bool {
        let mut sums = vec![0.0; self.num_cols];
        (0..self.num_rows).all(|row| {
            let (cols, values) = self.row(row);
            cols.iter().zip(values).for_each(|(&c, v)| sums[c as usize] += v);
            let small = cols.iter().all(|&c| is_small_integer(sums[c as usize]));
            cols.iter().for_each(|&c| sums[c as usize] = 0.0);
            small
        })
    }
}

#[cfg(test)]
mod tests;
