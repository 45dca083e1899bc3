use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

proptest! {
    /// With enough capacity, with too little, and in used buffers.
    #[test]
    fn equals_a_set(edges in prop::collection::vec((10u32..17, 0u32..25), 0..200), max_edges in 0u64..300) {
        let buffers = Buffers::new(max_edges);
        let set: BTreeSet<(u32, u32)> = edges.iter().copied().filter(|(to, from)| to != from).collect();
        let degrees: Vec<u32> =
            (10..17).map(|v| set.iter().filter(|e| e.0 == v).count() as u32).collect();
        let indices: Vec<u32> = set.into_iter().map(|e| e.1).collect();
        for _ in 0..2 {
            let rows = buffers.rows(10, 7, |out| edges.iter().for_each(|&(to, from)| out.push(to, from)));
            prop_assert_eq!((rows.degrees(), rows.indices()), (&degrees[..], &indices[..]));
        }
    }
}
