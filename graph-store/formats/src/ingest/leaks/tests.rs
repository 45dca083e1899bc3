use super::*;
use proptest::prelude::*;

/// Every pair of labelled nodes compared.
fn expected(features: &[f32], dim: usize, labels: &[i32]) -> Vec<usize> {
    let nodes: Vec<usize> = (0..labels.len()).filter(|&node| labels[node] >= 0).collect();
    let value = |node: usize, column: usize| features[node * dim + column];
    let pairs = || nodes.iter().flat_map(|&a| nodes.iter().map(move |&b| (a, b)));
    let has_one_value = |column| pairs().all(|(a, b)| labels[a] != labels[b] || value(a, column) == value(b, column));
    let differs = |column| pairs().any(|(a, b)| value(a, column) != value(b, column));
    (0..dim).filter(|&column| has_one_value(column) && differs(column)).collect()
}

proptest! {
    #[test]
    fn columns_with_one_value_per_class_are_found(
        labels in prop::collection::vec(-1..4i32, 0..12),
        dim in prop::sample::select(vec![1usize, 3, 64, 65, 130]),
        copies in prop::collection::vec((0usize..130, 0..4i32), 0..4),
        seed: u32,
        normalize: bool,
    ) {
        let noise = |i: usize| (seed.wrapping_add(i as u32).wrapping_mul(2_654_435_761) >> 30) as f32;
        let mut features: Vec<f32> = (0..labels.len() * dim).map(noise).collect();
        for (column, code) in copies {
            for (node, label) in labels.iter().enumerate().filter(|(_, label)| **label >= 0) {
                features[node * dim + column % dim] = (label ^ code) as f32 - 0.5;
            }
        }
        let mut stored = features.clone();
        let sums: Vec<f32> = features.chunks(dim).map(|row| row.iter().map(|v| v.abs()).sum()).collect();
        if normalize {
            let rows = stored.chunks_mut(dim).zip(&sums).filter(|(_, sum)| **sum > 0.0);
            rows.for_each(|(row, sum)| row.iter_mut().for_each(|v| *v /= sum));
        }
        let found = columns(&Array::from(stored), dim, &labels, normalize.then_some(&sums[..]));
        prop_assert_eq!(found, expected(&features, dim, &labels));
    }
}
