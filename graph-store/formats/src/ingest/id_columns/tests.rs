use super::*;
use proptest::prelude::*;

proptest! {
    /// Columns of ids are found wherever they are, and no others: a column with one number exchanged is none.
    #[test]
    fn columns_of_ids_are_found(
        num_nodes in 4usize..40,
        dim in 1usize..6,
        placed in prop::collection::vec((0usize..6, 0usize..4), 0..4),
        first in 0u64..1000,
        spoil in prop::option::of((0usize..6, 0usize..40)),
    ) {
        let ids: Vec<u64> = (0..num_nodes as u64).map(|node| first + 3 * node).collect();
        let mut features = vec![0.5f32; num_nodes * dim];
        let mut kinds = vec![3; dim];
        for (column, kind) in placed.into_iter().map(|(column, kind)| (column % dim, kind)) {
            kinds[column] = kind;
            for (node, row) in features.chunks_mut(dim).enumerate() {
                row[column] = [node as f32, node as f32 + 1.0, ids[node] as f32, 2.5][kind];
            }
        }
        if let Some((column, node)) = spoil.map(|(column, node)| (column % dim, node % num_nodes)) {
            features[node * dim + column] -= 0.25;
            kinds[column] = 3;
        }
        let found = columns(&Array::from(features), dim, |value| value, Some(&ids));
        prop_assert_eq!(found, (0..dim).filter(|&column| kinds[column] < 3).collect::<Vec<_>>());
    }
}
