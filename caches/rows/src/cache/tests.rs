use std::convert::Infallible;

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn hits_and_misses_are_the_request(
        cached in prop::collection::btree_set(0u32..300, 0..100), nodes in prop::collection::vec(0u32..300, 0..200),
        row_bytes in 1usize..9,
    ) {
        let row = |v: u32| vec![v as u8 ^ 0x5A; row_bytes];
        let map = NodeMap::new(300, |v| cached.contains(&v));
        let bytes = map.num_bytes();
        let cache = FeatureCache::new(map, row_bytes, |map, rows| {
            rows.chunks_mut(row_bytes).zip(map.nodes()).for_each(|(to, v)| to.copy_from_slice(&row(v)));
            Ok::<_, Infallible>(())
        });
        let Ok(cache) = cache;
        prop_assert_eq!(cache.num_bytes(), bytes + (cached.len() * row_bytes) as u64);
        let mut out = vec![0; nodes.len() * row_bytes];
        let mut missing = Vec::new();
        let hits = cache.gather(&nodes, &mut out, |i, node| missing.push((i, node)));
        for (i, &node) in nodes.iter().enumerate() {
            let row_out = &out[i * row_bytes..(i + 1) * row_bytes];
            if cached.contains(&node) {
                prop_assert_eq!(row_out, &row(node)[..]);
            } else {
                prop_assert!(missing.contains(&(i, node)));
            }
        }
        prop_assert_eq!(hits + missing.len(), nodes.len());
    }
}
