use proptest::prelude::*;

use super::*;

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|i| ((i + seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

proptest! {
    #[test]
    fn blocks_make_the_hash(len in 241usize..20_000, seed: u64) {
        let bytes = bytes(len, seed);
        prop_assert_eq!(by_blocks(&bytes), xxh3_64(&bytes));
    }
}

#[test]
fn lengths_around_blocks_tasks_and_rounds_make_the_hash() {
    let all = bytes(ROUND + TASK + 2 * BLOCK, 7);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    for near in [0, BLOCK, 2 * TASK, ROUND, ROUND + TASK + BLOCK] {
        for len in [near.saturating_sub(1), near, near + 1, near + STRIPE, near + STRIPE + 1] {
            let bytes = &all[..len];
            assert_eq!(pool.install(|| xxh3(bytes)), xxh3_64(bytes), "{len} bytes");
        }
    }
}
