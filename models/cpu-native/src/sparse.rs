//! Whether features are nearly all zeros, as bags of words are.

use morphgl_graph_store::FeatureMatrix;

/// Share of nonzeros below which lists of them are multiplied faster than whole rows are.
const SPARSE_BELOW: f64 = 0.12;
/// Narrower rows are fast whatever they hold.
const FROM_DIM: usize = 64;
/// Rows looked at, spread over all of them.
const ROWS: usize = 128;

/// The share of nonzeros, where it is so small that this operator is the wrong one.
pub(crate) fn sparsity(features: &FeatureMatrix) -> Option<f64> {
    let (dim, rows) = (features.dim(), features.num_rows());
    if dim < FROM_DIM || rows == 0 {
        return None;
    }
    let looked_at = rows.min(ROWS);
    let mut row = vec![0.0; dim];
    let mut nonzeros = 0;
    for i in 0..looked_at {
        let at = i * rows / looked_at;
        features.rows(at..at + 1).to_f32(&mut row);
        nonzeros += row.iter().filter(|v| **v != 0.0).count();
    }
    let share = nonzeros as f64 / (looked_at * dim) as f64;
    (share <= SPARSE_BELOW).then_some(share)
}

#[cfg(test)]
mod tests {
    use morphgl_graph_store::FeatureMatrix;

    use super::sparsity;

    fn matrix(dim: usize, nonzeros: usize) -> FeatureMatrix {
        let row = |_| (0..dim).map(|c| f32::from(c < nonzeros));
        FeatureMatrix::F32 { data: (0..300).flat_map(row).collect::<Vec<f32>>().into(), dim }
    }

    #[test]
    fn bags_of_words_are_sparse_and_embeddings_are_not() {
        assert_eq!(sparsity(&matrix(100, 5)), Some(0.05));
        assert_eq!(sparsity(&matrix(100, 50)), None);
        assert_eq!(sparsity(&matrix(16, 0)), None);
    }
}
