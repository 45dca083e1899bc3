use proptest::prelude::*;

use super::*;

proptest! {
    /// The memory of a plan fits the budget; the minimum is enough, and one byte less is not.
    #[test]
    fn every_plan_fits(
        resident in 0u64..1 << 30,
        build in 1u64..1 << 24,
        scratch in 1u64..1 << 26,
        block in 1u64..1 << 26,
        threads in 1usize..200,
        more in 0u64..1 << 32,
    ) {
        let piece = BlockMemory { scratch, block };
        let small = BlockMemory { scratch: scratch / 2, block: block / 3 };
        let footprint = Footprint { resident, build, rows: piece, features: small, labels: small };
        let least = footprint.min_memory(threads);
        prop_assert!(footprint.plan(least - 1, threads).is_err());
        for memory in [least, least + more] {
            let plan = footprint.plan(memory, threads).unwrap();
            let fixed = footprint.fixed(threads);
            prop_assert!(fixed + plan.builders as u64 * build <= memory);
            for (piece, group) in [(piece, plan.rows), (small, plan.features), (small, plan.labels)] {
                prop_assert!((1..=4 * threads).contains(&group));
                prop_assert!(fixed + piece.group(group as u64, threads as u64) <= memory, "{plan:?}");
            }
        }
    }
}

#[test]
fn sizes_beyond_all_memory_do_not_wrap() {
    let piece = BlockMemory { scratch: u64::MAX / 2, block: u64::MAX / 2 };
    let all = Footprint { resident: 0, build: 1, rows: piece, features: piece, labels: piece };
    assert!(all.plan(u64::MAX - 1, 64).is_err());
    assert!(max_events(0.0, 1.0) >= 1.0);
}
