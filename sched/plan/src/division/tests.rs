use morphgl_registry::{CacheCurve, CachePoint};
use proptest::prelude::*;

use super::*;
use crate::CacheMemory;

fn cache(operator: &str, points: Vec<CachePoint>) -> Cache {
    let curve = CacheCurve { bytes: 0, free_bytes: None, build_seconds: 0.0, batch_seconds: 1.0, points };
    Cache { operator: operator.parse().expect("a key"), memory: CacheMemory::Device, curve, hit_rate: None }
}

/// Curves with jumps and flat parts, as tables and lists of any length make them.
fn points() -> impl Strategy<Value = Vec<CachePoint>> {
    let step = (1u64..40, prop_oneof![Just(0.0), 0.0..1.0f64]);
    (0u64..20, prop::collection::vec(step, 1..7)).prop_map(|(first, steps)| {
        let first = CachePoint { bytes: first, saved_seconds: 0.0 };
        let next = |last: &mut CachePoint, (bytes, saved): (u64, f64)| {
            *last = CachePoint { bytes: last.bytes + bytes, saved_seconds: last.saved_seconds + saved };
            Some(*last)
        };
        std::iter::once(first).chain(steps.into_iter().scan(first, next)).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Every division to the byte, tried one by one, saves no more.
    #[test]
    fn the_division_is_the_exact_optimum(a in points(), b in points(), total in 0u64..400) {
        let [a, b] = [cache("Batching_CUDA_A", a), cache("Transferring_CUDA_B", b)];
        let (least, saved) = (a.least() + b.least(), |x: u64, y: u64| a.saved(x) + b.saved(y));
        let divided = divide(&[&a, &b], total);
        let (x, y) = (divided[0], divided[1]);
        prop_assert!(x >= a.least() && y >= b.least());
        if total < least {
            prop_assert_eq!(x + y, least);
            return Ok(());
        }
        prop_assert!(x + y <= total, "{} and {} of {}", x, y, total);
        let best = (a.least()..=total - b.least()).map(|x| saved(x, total - x)).fold(0.0, f64::max);
        prop_assert!(saved(x, y) >= best - 1e-9, "{} and {} save {}, the best division {}", x, y, saved(x, y), best);
        // No byte is taken that saves nothing.
        prop_assert!(x == a.least() || a.saved(x - 1) < a.saved(x), "{} of {:?}", x, a);
        prop_assert!(y == b.least() || b.saved(y - 1) < b.saved(y), "{} of {:?}", y, b);
    }

    #[test]
    fn a_cache_alone_has_all(points in points(), total in 0u64..400) {
        let cache = cache("Batching_CUDA_A", points);
        let size = divide(&[&cache], total)[0];
        prop_assert!(size <= total.max(cache.least()));
        prop_assert_eq!(cache.saved(size), cache.saved(total));
    }
}
