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

    #[test]
    fn a_prefix_equals_the_bitmap_of_its_nodes(num_nodes in 1u32..500, len in 0u32..500) {
        let len = len.min(num_nodes);
        let (prefix, bitmap) = (NodeMap::prefix(len), NodeMap::new(num_nodes as usize, |v| v < len));
        prop_assert_eq!((prefix.len(), prefix.is_empty()), (bitmap.len(), bitmap.is_empty()));
        prop_assert!(prefix.nodes().eq(bitmap.nodes()));
        for v in 0..600 {
            prop_assert_eq!(prefix.get(v), bitmap.get(v));
        }
        prop_assert_eq!((prefix.num_bytes(), prefix.is_prefix(), bitmap.is_prefix()), (0, true, false));
    }
}
