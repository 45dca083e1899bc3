use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn equals_a_sorted_set(num_nodes in 0usize..500, held in prop::collection::btree_set(0u32..500, 0..200)) {
        let held: BTreeSet<u32> = held.into_iter().filter(|&v| (v as usize) < num_nodes).collect();
        let map = NodeMap::new(num_nodes, |v| held.contains(&v));
        prop_assert_eq!(map.len(), held.len());
        prop_assert_eq!(map.nodes().collect::<Vec<_>>(), held.iter().copied().collect::<Vec<_>>());
        for v in 0..600 {
            let expected = held.contains(&v).then(|| held.range(..v).count());
            prop_assert_eq!(map.get(v), expected);
        }
        prop_assert_eq!(map.num_bytes(), NodeMap::num_bytes_of(num_nodes));
    }
}
