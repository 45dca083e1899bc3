//! Mini-batch features, seeds and scores.

use half::f16;
use morphgl_graph_store::{Dtype, FeatureMatrix, FeatureView};
use morphgl_registry::{BatchFeatures, Score, SeedSet};
use proptest::prelude::*;

proptest! {
    #[test]
    fn equal_content_is_equal_whatever_the_buffer_held_before(
        rows in 1usize..5, dim in 1usize..9, dirt in 0u8..255, byte in 0u8..255,
    ) {
        let matrix = FeatureMatrix::U8 { data: vec![0; dim].into(), dim };
        let (mut fresh, mut used) = (BatchFeatures::like(&matrix), BatchFeatures::like(&matrix));
        used.resize(rows + 3, dim, Dtype::U8).fill(dirt);
        fresh.resize(rows, dim, Dtype::U8).fill(byte);
        used.resize(rows, dim, Dtype::U8).fill(byte);
        prop_assert_eq!(&fresh, &used);
        prop_assert_eq!(fresh.num_rows(), rows);
        fresh.resize(rows, dim, Dtype::U8)[rows * dim - 1] ^= 1;
        prop_assert_ne!(fresh, used);
    }
}

#[test]
fn features_keep_their_type() {
    let data = vec![f16::from_f32(0.5), f16::from_f32(-2.0)];
    let matrix = FeatureMatrix::F16 { data: data.clone().into(), dim: 2 };
    let mut features = BatchFeatures::like(&matrix);
    features.resize(1, 2, Dtype::F16).copy_from_slice(matrix.view().as_bytes());
    assert_eq!(features.view(), FeatureView::F16(&data));
}

#[test]
fn seed_sets_are_checked() {
    let error = |nodes: &[u32]| SeedSet::new("train split", nodes, 3).expect_err("bad seeds").to_string();
    assert!(error(&[]).starts_with("train split: it is empty; "), "{}", error(&[]));
    assert_eq!(error(&[0, 3]), "train split: node 3 does not exist, there are 3");
    for (nodes, num_repeats) in [(&[2, 0][..], 0), (&[2, 1, 2], 1), (&[1, 1, 0, 1, 0], 3)] {
        let seeds = SeedSet::new("train split", nodes, 3).expect("good seeds");
        assert_eq!((seeds.nodes(), seeds.num_repeats()), (nodes, num_repeats));
    }
}

#[test]
fn scores_count_labelled_rows_and_sum() {
    // Rows: right, wrong, unlabelled.
    let logits = [2.0, 0.0, 2.0, 0.0, 5.0, 5.0];
    let mut score = Score::of(&logits, &[0, 1, -1], 2);
    assert_eq!((score.correct, score.count), (1, 2));
    // -log softmax of the label: ln(1 + e^-2) and ln(1 + e^2).
    let expected = (-2f64).exp().ln_1p() + 2f64.exp().ln_1p();
    assert!((score.loss_sum - expected).abs() < 1e-12, "{} and {expected}", score.loss_sum);
    score += score;
    assert_eq!((score.correct, score.count, score.accuracy()), (2, 4, 0.5));
    // Equal logits: the first class is the prediction.
    assert_eq!(Score::of(&[1.0, 1.0], &[1], 2).correct, 0);
}
