use morphgl_registry::BatchId;
use proptest::prelude::*;

use super::*;
use crate::stream::Stream;

fn row(seed: u64) -> Row {
    Row { seed, batch: BatchId { epoch: 1, index: 2 }, hop: 1, node: 77, edge_type: 0 }
}

/// Weights of a row: similar ones, or ones of all magnitudes, some of them 0.
fn weights() -> impl Strategy<Value = Vec<f32>> {
    let similar = prop_oneof![Just(0.0f32), 0.25f32..1.0];
    let any =
        prop_oneof![Just(0.0f32), Just(f32::MAX), Just(f32::MIN_POSITIVE), Just(1e-44), 1e-30f32..1e-3, 1f32..1e30];
    prop_oneof![prop::collection::vec(similar, 1..500), prop::collection::vec(any, 1..500)]
}

proptest! {
    #[test]
    fn equals_sorting_all_times(seed: u64, weights in weights(), len in 0usize..50) {
        let len = len.min(count_positive(&weights, usize::MAX));
        let mut times: Vec<(f64, u32)> = weights
            .iter()
            .zip(0u32..)
            .filter(|(w, _)| **w > 0.0)
            .map(|(&w, p)| {
                let [words] = row(seed).blocks::<1>(Stream::Sampling, p / 2);
                let lane = p as usize % 2 * 2;
                (time(words[lane], words[lane + 1], w), p)
            })
            .collect();
        times.sort_by(|a, b| a.partial_cmp(b).expect("times are numbers"));
        let mut expected: Vec<u32> = times[..len].iter().map(|t| t.1).collect();
        expected.sort_unstable();
        let mut out = vec![0; len];
        pick_weighted(&row(seed), &weights, &mut out, &mut PickScratch::default());
        prop_assert_eq!(out, expected);
    }

    #[test]
    fn a_time_within_the_limit_is_early(seed: u64, block in 0u32..1000, weights in weights()) {
        let mut chunk = [0.0; CHUNK];
        chunk.iter_mut().zip(weights).for_each(|(c, w)| *c = w);
        let mut words = [[0; 4]; CHUNK / 2];
        for (i, weight) in chunk.into_iter().enumerate().filter(|(_, w)| *w > 0.0) {
            let [drawn] = row(seed).blocks::<1>(Stream::Sampling, block + i as u32 / 2);
            let limit = time(drawn[i % 2 * 2], drawn[i % 2 * 2 + 1], weight);
            let early = dispatch::early(SimdLevel::current(), &row(seed), block, &chunk, limit, &mut words);
            prop_assert!(early >> i & 1 == 1, "position {} of {:?}", i, chunk);
            prop_assert_eq!(words[i / 2], drawn);
        }
    }
}

#[test]
fn times_are_finite_and_positive_at_both_ends() {
    for weight in [f32::MIN_POSITIVE, 1.0, f32::MAX] {
        for words in [0, u32::MAX] {
            let time = time(words, words, weight);
            assert!(time > 0.0 && time.is_finite(), "{time}");
        }
    }
}
