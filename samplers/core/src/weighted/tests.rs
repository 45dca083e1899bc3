use morphgl_registry::BatchId;
use proptest::prelude::*;

use super::*;

fn row(seed: u64) -> Row {
    Row { seed, batch: BatchId { epoch: 1, index: 2 }, hop: 1, node: 77 }
}

proptest! {
    #[test]
    fn equals_sorting_all_times(seed: u64, weights in prop::collection::vec(0u8..4, 1..200), len in 0usize..50) {
        let weights: Vec<f32> = weights.into_iter().map(|w| f32::from(w) * 0.25).collect();
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
