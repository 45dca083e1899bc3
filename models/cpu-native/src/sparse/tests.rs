use proptest::prelude::*;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Exact arithmetic on small whole numbers.
    #[test]
    fn sparse_products_and_gradients_equal_dense_ones(
        num_rows in 1usize..600,
        dim in 1usize..70,
        width in 1usize..40,
        share in 1u32..12,
        seed: u32,
    ) {
        let number = |i: usize, most: u32| ((i as u32 ^ seed).wrapping_mul(2_654_435_761) >> 16) % most;
        let dense: Vec<f32> = (0..num_rows * dim).map(|i| {
            let x = number(i, 40);
            if x < share { 1.0 + (x % 3) as f32 } else { 0.0 }
        }).collect();
        let weight: Vec<f32> = (0..width * dim).map(|i| number(i + 7, 5) as f32 - 2.0).collect();
        let grad: Vec<f32> = (0..num_rows * width).map(|i| number(i + 3, 7) as f32 - 3.0).collect();
        let nonzeros = Nonzeros::of(FeatureView::F32(&dense), dim);
        prop_assert_eq!(nonzeros.columns.len(), dense.iter().filter(|x| **x != 0.0).count());
        // Every second row, from the last to the first.
        let nodes: Vec<u32> = (0..num_rows as u32).rev().step_by(2).collect();
        let first = nodes.len() / 2;
        let mut sparse = SparseInput::default();
        sparse.read(&nonzeros, Some(&nodes), nodes.len(), None);
        sparse.sort(Side::Sources, nodes.len());
        sparse.sort(Side::Destinations, first);
        let mut transposed = vec![0.0; dim * width];
        transpose(&weight, [width, dim], &mut transposed, false);
        for level in SimdLevel::available().rev() {
            let mut out = vec![0.0; nodes.len() * width];
            spmm(level, &sparse.csr(), 0..nodes.len(), FeatureView::F32(&transposed), width, &mut out);
            for (i, &node) in nodes.iter().enumerate() {
                for w in 0..width {
                    let x = &dense[node as usize * dim..][..dim];
                    let exact: f32 = x.iter().zip(&weight[w * dim..]).map(|(x, y)| x * y).sum();
                    prop_assert_eq!(out[i * width + w], exact);
                }
            }
            for (side, rows) in [(Side::Sources, nodes.len()), (Side::Destinations, first)] {
                let mut out = vec![1.0; width * dim];
                sparse.gradient(level, side, (&grad[..rows * width], width), &mut Buffer::default(), &mut out);
                for w in 0..width {
                    for d in 0..dim {
                        let of = |i: usize| grad[i * width + w] * dense[nodes[i] as usize * dim + d];
                        prop_assert_eq!(out[w * dim + d], 1.0 + (0..rows).map(of).sum::<f32>());
                    }
                }
            }
        }
    }
}

#[test]
fn dropped_elements_are_zero() {
    let dense: Vec<f32> = (0..40 * 100).map(|i| f32::from(i % 9 == 0)).collect();
    let dropout = Dropout::new(3, 1, 2, 0, morphgl_model_core::DropoutSite::Input, 0.4).expect("it drops");
    let mut expected = dense.clone();
    let nodes: Vec<u32> = (0..40).map(|row| 7 * row + 3).collect();
    dropout.apply(&nodes, &mut expected);
    let mut sparse = SparseInput::default();
    sparse.read(&Nonzeros::of(FeatureView::F32(&dense), 100), None, 40, Some((dropout, &nodes)));
    let mut found = vec![0.0; 40 * 100];
    for row in 0..40 {
        for i in sparse.indptr[row] as usize..sparse.indptr[row + 1] as usize {
            found[row * 100 + sparse.columns[i] as usize] = sparse.values[i];
        }
    }
    assert_eq!(found, expected);
}
