//! Copies scattered feature rows into one dense buffer, in the type they are stored with.

use rayon::prelude::*;

use crate::FeatureMatrix;

/// Rows whose lines are asked for ahead of the copy.
const AHEAD: usize = 8;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Rows a task of the parallel gather copies.
const TASK_ROWS: usize = 2048;

impl FeatureMatrix {
    /// Copies the rows `nodes`, in that order, into `out`.
    ///
    /// # Panics
    ///
    /// When a row does not exist, or `out` is not as long as the rows together.
    pub fn gather_rows(&self, nodes: &[u32], out: &mut [u8]) {
        let row_bytes = self.row_bytes();
        assert_eq!(out.len(), nodes.len() * row_bytes, "room for the gathered rows, and their bytes");
        let bytes = self.view();
        let bytes = bytes.as_bytes();
        for (i, (&node, to)) in nodes.iter().zip(out.chunks_exact_mut(row_bytes.max(1))).enumerate() {
            if let Some(&later) = nodes.get(i + AHEAD) {
                let start = later as usize * row_bytes;
                (start..start + row_bytes).step_by(LINE).for_each(|byte| prefetch(bytes, byte));
            }
            let start = node as usize * row_bytes;
            to.copy_from_slice(&bytes[start..start + row_bytes]);
        }
    }

    /// Does what [`FeatureMatrix::gather_rows`] does, spread over the threads of the current rayon pool.
    pub fn par_gather_rows(&self, nodes: &[u32], out: &mut [u8]) {
        let row_bytes = self.row_bytes();
        assert_eq!(out.len(), nodes.len() * row_bytes, "room for the gathered rows, and their bytes");
        if row_bytes > 0 {
            let tasks = nodes.par_chunks(TASK_ROWS).zip(out.par_chunks_mut(TASK_ROWS * row_bytes));
            tasks.for_each(|(nodes, out)| self.gather_rows(nodes, out));
        }
    }
}

/// Asks the processor to bring `values[index]` close; does nothing where there is no such element or no such instruction.
#[inline(always)]
pub fn prefetch<T>(values: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(value) = values.get(index) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the address is that of an element of a live slice, and prefetching reads nothing the program can see.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (values, index);
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    #[test]
    fn rows_arrive_in_order_and_type() {
        let matrix =
            FeatureMatrix::F16 { data: (0..30).map(|i| f16::from_f32(i as f32)).collect::<Vec<_>>().into(), dim: 3 };
        let nodes = [9u32, 0, 9, 4];
        let mut out = vec![0u8; 4 * 6];
        matrix.gather_rows(&nodes, &mut out);
        let expected: Vec<f16> = [27, 28, 29, 0, 1, 2, 27, 28, 29, 12, 13, 14].map(|i| f16::from_f32(i as f32)).into();
        assert_eq!(out, bytemuck::cast_slice::<_, u8>(&expected));
    }

    #[test]
    fn parallel_and_sequential_agree() {
        let matrix = FeatureMatrix::F32 { data: (0..5000 * 7).map(|i| i as f32).collect::<Vec<_>>().into(), dim: 7 };
        let nodes: Vec<u32> = (0..10_000u32).map(|i| i * 7919 % 5000).collect();
        let (mut a, mut b) = (vec![0u8; 10_000 * 28], vec![1u8; 10_000 * 28]);
        matrix.gather_rows(&nodes, &mut a);
        matrix.par_gather_rows(&nodes, &mut b);
        assert_eq!(a, b);
    }

    #[test]
    fn a_matrix_of_no_columns_gathers_nothing() {
        let matrix = FeatureMatrix::U8 { data: Vec::new().into(), dim: 0 };
        matrix.gather_rows(&[1, 2], &mut []);
        matrix.par_gather_rows(&[1, 2], &mut []);
    }
}
