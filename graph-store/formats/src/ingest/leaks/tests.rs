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

/// The features as they are stored, and what their rows were divided by.
fn stored(features: &[f32], dim: usize, normalize: bool) -> (Vec<f32>, Option<Vec<f32>>) {
    let mut stored = features.to_vec();
    if !normalize {
        return (stored, None);
    }
    let sums: Vec<f32> = features.chunks(dim).map(|row| row.iter().map(|v| v.abs()).sum()).collect();
    let rows = stored.chunks_mut(dim).zip(&sums).filter(|(_, sum)| **sum > 0.0);
    rows.for_each(|(row, sum)| row.iter_mut().for_each(|v| *v /= sum));
    (stored, Some(sums))
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
        let (stored, sums) = stored(&features, dim, normalize);
        let rounding = Rounding::of::<f32>(sums.as_deref());
        let found = columns(&Array::from(stored), dim, &labels, &rounding);
        prop_assert_eq!(found, expected(&features, dim, &labels));
    }

    /// A code of several values per class is found, whatever the number of columns, and a column with one node of another class is
    /// not; nor are columns of many values or without a relation to the labels.
    #[test]
    fn finer_codes_are_found(
        (num_classes, per_class) in (2usize..5, 2usize..4),
        dim in prop::sample::select(vec![1usize, 3, 130, 1500]),
        at in prop::collection::btree_set(0usize..1500, 0..3),
        seed: u32,
        normalize: bool,
    ) {
        let hash = |i: usize| crate::random::hash(u64::from(seed), i as u64) as usize;
        let num_nodes = 200;
        // Every fifth node has no label; one node has another label than its value says where the code is spoilt.
        let fine: Vec<usize> = (0..num_nodes).map(|node| hash(node) % (num_classes * per_class)).collect();
        let labels: Vec<i32> = (0..num_nodes).map(|node| if node % 5 == 4 { -1 } else { (fine[node] % num_classes) as i32 }).collect();
        let codes: Vec<usize> = at.into_iter().filter(|&column| column < dim).collect();
        let spoilt = codes.first().copied();
        let mut features = vec![0f32; num_nodes * dim];
        for (node, row) in features.chunks_mut(dim).enumerate() {
            for (column, value) in row.iter_mut().enumerate() {
                let noise = hash(num_nodes + node * dim + column);
                // Measurements, flags and small counts.
                *value = match column % 3 { 0 => noise as f32 / 1e9, 1 => (noise % 2) as f32, _ => (noise % 7) as f32 };
            }
            for &column in &codes {
                row[column] = 1.0 + (fine[node] * 37 % 101) as f32;
            }
            if let Some(column) = spoilt.filter(|_| node == 100) {
                row[column] = 1.0 + ((fine[node] + 1) % (num_classes * per_class) * 37 % 101) as f32;
            }
        }
        let (stored, sums) = stored(&features, dim, normalize);
        let rounding = Rounding::of::<f32>(sums.as_deref());
        let found = finer::columns(&Array::from(stored), dim, &labels, &rounding);
        prop_assert_eq!(&found, &codes.iter().copied().filter(|column| Some(*column) != spoilt).collect::<Vec<_>>());
    }
}

/// A code of 16 nodes and four values of two classes is no remark; of 40 it is one.
#[test]
fn finer_codes_of_few_nodes_are_none() {
    let found = |num_nodes: usize| {
        let features: Vec<f32> = (0..num_nodes).map(|node| (node % 4) as f32).collect();
        let labels: Vec<i32> = (0..num_nodes as i32).map(|node| node % 2).collect();
        finer::columns(&Array::from(features), 1, &labels, &Rounding::of::<f32>(None))
    };
    assert_eq!([16, 39, 40].map(found), [vec![], vec![], vec![0]]);
}
