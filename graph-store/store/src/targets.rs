//! Real-valued targets of nodes: a dense row-major matrix with unknown values.

use crate::check::{self, Fault};
use crate::{Access, Array};

/// A `[num_rows, dim]` matrix of targets, a row per node: values of a regression, or classes of several labels as 0 and 1. NaN is
/// an unknown value; none is infinite.
#[derive(Debug, Clone)]
pub struct TargetMatrix {
    // Invariant: `dim` is above 0 and divides the number of values, and no value is infinite (unless the values lie in a mapped file
    // that was not checked).
    values: Array<f32>,
    dim: usize,
}

impl TargetMatrix {
    /// A matrix of rows of `dim` values, row after row.
    ///
    /// # Errors
    ///
    /// A description of the fault: rows of no values, a last row that is not complete, or an infinite value.
    pub fn new(values: impl Into<Array<f32>>, dim: usize) -> Result<Self, String> {
        let values = values.into();
        if dim == 0 {
            return Err("targets of no columns; give at least one, or no targets".into());
        }
        if !values.len().is_multiple_of(dim) {
            return Err(format!("{} targets are no rows of {dim}", values.len()));
        }
        check::targets(&values).map_err(Fault::describe)?;
        Ok(Self { values, dim })
    }

    /// A matrix of checked values.
    pub(crate) fn from_checked(values: Array<f32>, dim: usize) -> Self {
        Self { values, dim }
    }

    /// Values per row, at least 1.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Number of rows.
    pub fn num_rows(&self) -> usize {
        self.values.len() / self.dim
    }

    /// The targets of a node.
    ///
    /// # Panics
    ///
    /// When the node has no row.
    pub fn row(&self, node: u32) -> &[f32] {
        &self.values[node as usize * self.dim..][..self.dim]
    }

    /// All values, row after row.
    pub fn values(&self) -> &Array<f32> {
        &self.values
    }

    /// Whether any target of the node is known.
    ///
    /// # Panics
    ///
    /// When the node has no row.
    pub fn is_known(&self, node: u32) -> bool {
        self.row(node).iter().any(|value| !value.is_nan())
    }

    /// Advises the system how the rows of a mapped file will be read.
    pub fn advise(&self, access: Access) {
        self.values.advise(access);
    }
}

/// By the values' bits, so that a matrix with unknown values equals itself.
impl PartialEq for TargetMatrix {
    fn eq(&self, other: &Self) -> bool {
        self.dim == other.dim && bits(&self.values) == bits(&other.values)
    }
}

fn bits(values: &[f32]) -> &[u32] {
    bytemuck::cast_slice(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(values: Vec<f32>, dim: usize) -> Result<TargetMatrix, String> {
        TargetMatrix::new(values, dim)
    }

    #[test]
    fn rows_are_those_of_the_nodes() {
        let targets = matrix(vec![0.5, f32::NAN, -1.0, 3.0, f32::NAN, f32::NAN], 2).expect("three rows");
        assert_eq!((targets.dim(), targets.num_rows(), targets.row(1)), (2, 3, &[-1.0, 3.0][..]));
        assert_eq!([0, 1, 2].map(|node| targets.is_known(node)), [true, true, false]);
        assert_eq!(targets, targets.clone(), "NaN equals NaN");
        assert_ne!(targets, matrix(vec![0.5, f32::NAN, -1.0, 3.0, f32::NAN, 0.0], 2).expect("three rows"));
        assert_ne!(targets, matrix(targets.values().to_vec(), 3).expect("two rows"));
        assert_eq!(matrix(vec![], 4).expect("a graph without nodes").num_rows(), 0);
    }

    #[test]
    fn what_is_no_matrix_of_targets_is_refused() {
        let refused = |values, dim| matrix(values, dim).expect_err("refused");
        assert_eq!(refused(vec![], 0), "targets of no columns; give at least one, or no targets");
        assert_eq!(refused(vec![1.0; 5], 2), "5 targets are no rows of 2");
        for infinite in [f32::INFINITY, f32::NEG_INFINITY] {
            let what = format!("targets, element 2: the target is {infinite}; NaN stands for an unknown one");
            assert_eq!(refused(vec![f32::NAN, 0.0, infinite, infinite], 2), what);
        }
    }
}
