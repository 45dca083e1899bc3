use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn what_is_left_is_the_difference(
        nodes in prop::collection::btree_set(0usize..400_000, 0..60), sources in prop::collection::vec(0u32..400_000, 0..80),
        both in any::<prop::sample::Index>(),
    ) {
        // Sources among the nodes, and others that share their bits of the filter.
        let near = nodes.iter().take(both.index(60)).flat_map(|&v| [v as u32, (v ^ FILTER_BITS) as u32 % 400_000]);
        let sources: Vec<u32> = sources.into_iter().chain(near).collect();
        let mut isolated = IsolatedNodes::new(400_000);
        nodes.iter().for_each(|&node| isolated.add(node));
        let (first, rest) = sources.split_at(sources.len() / 2);
        isolated.remove(first);
        isolated.remove(rest);
        let sources: BTreeSet<usize> = sources.into_iter().map(|v| v as usize).collect();
        prop_assert_eq!(isolated.count(), nodes.difference(&sources).count() as u64);
    }
}
