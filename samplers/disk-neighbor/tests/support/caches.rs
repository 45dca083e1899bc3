//! Options of the caches.

use morphgl_batching_disk_neighbor::{DiskNeighbor, Options};
use morphgl_hotness::{CachePolicy, PolicyKind};
use morphgl_registry::BatchingContext;
use proptest::prelude::*;

/// Every policy that a cache can be filled by.
pub(crate) fn policies() -> Vec<CachePolicy> {
    let kinds = PolicyKind::ALL.into_iter().filter(|kind| *kind != PolicyKind::Hindsight).map(CachePolicy::By);
    let counted = "presample:2".parse().expect("a policy");
    kinds.chain([CachePolicy::Auto, CachePolicy::None, CachePolicy::Lru, CachePolicy::Sieve, counted]).collect()
}

/// Any options.
pub(crate) fn options() -> impl Strategy<Value = Options> {
    let caches = (prop::sample::select(policies()), prop::option::of(0u64..60_000));
    let reads = (1usize..9, prop::sample::select(vec![512usize, 1024, 4096]), 0usize..20_000);
    (0u64..60_000, caches, reads, any::<bool>()).prop_map(
        |(memory_bytes, (cache, cache_bytes), (depth, block, gap), threads)| Options {
            memory_bytes,
            cache,
            cache_bytes,
            depth,
            block,
            gap,
            threads,
        },
    )
}

/// The operator, with as much memory as its caches need at least where the options refuse them.
pub(crate) fn build(context: &mut BatchingContext, options: &mut Options) -> DiskNeighbor {
    let refused = match super::build(context) {
        Ok(operator) => return operator,
        Err(e) => e.to_string(),
    };
    if let Some((_, rest)) = refused.split_once("has no room for a row beside tables of ") {
        let map: u64 = rest.split_once(" bytes").expect("a size").0.parse().expect("a number");
        assert!(options.cache_bytes.is_some_and(|bytes| bytes <= map), "{refused}");
        options.cache_bytes = None;
        context.options = serde_json::to_value(&*options).expect("plain data");
        return build(context, options);
    }
    let (_, rest) = refused.split_once("needs memory_bytes of at least ").unwrap_or_else(|| panic!("{refused}"));
    let needed: u64 = rest.split_once(',').expect("a size").0.parse().expect("a number");
    assert!(needed > options.memory_bytes, "{refused}");
    for memory_bytes in [needed - 1, needed] {
        options.memory_bytes = memory_bytes;
        context.options = serde_json::to_value(&*options).expect("plain data");
        match super::build(context) {
            Ok(operator) if memory_bytes == needed => return operator,
            outcome => {
                assert!(memory_bytes < needed && outcome.is_err(), "{refused}, with {memory_bytes}: {outcome:?}")
            }
        }
    }
    unreachable!("{needed} bytes suffice")
}
