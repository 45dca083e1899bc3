//! Mini-batch features, seeds and scores.

use half::f16;
use morphgl_graph_store::PairTargets;
use morphgl_graph_store::{Dtype, FeatureMatrix, FeatureView};
use morphgl_registry::{BatchFeatures, BatchPairs, HostBatch, NegativeDistribution, PairSettings, Score, SeedSet};
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
fn pairs_are_checked() {
    let of = |pairs: &[[u32; 2]], settings| SeedSet::of_pairs("train edges", pairs, 3, settings);
    let error = |pairs: &[[u32; 2]], settings| of(pairs, settings).expect_err("bad pairs").to_string();
    let default = PairSettings::default();
    assert_eq!(
        error(&[], default),
        "train edges: there is no pair; give a graph with edges, or a split with edges in it"
    );
    let unknown = error(&[[0, 1], [2, 3]], default);
    assert!(
        unknown.starts_with("train edges: the pair 2,3 names a node that does not exist, there are 3; "),
        "{unknown}"
    );
    let within = PairSettings { distribution: NegativeDistribution::InBatch, ..default };
    assert!(error(&[[0, 1]], within).contains("need two pairs at least; draw them uniformly"));
    of(&[[0, 1]], PairSettings { negatives: 0, ..within }).expect("no negative is drawn");
    let pairs = [[2, 0], [0, 1], [2, 0], [1, 1]];
    let seeds = of(&pairs, default).expect("good pairs");
    assert_eq!((seeds.nodes(), seeds.num_repeats(), seeds.num_examples()), (pairs.as_flattened(), 5, 4));
    let kept = seeds.pairs().expect("they are pairs");
    assert_eq!((kept.ends(), kept.settings(), kept.num_given()), (&pairs[..], &default, 0));
    let labels = |labels: &[i32]| PairTargets { labels: Some(labels.to_vec().into()), values: None };
    let labelled = |targets| {
        of(&pairs, PairSettings { negatives: 0, ..default }).expect("pairs").with_targets("train edges", targets)
    };
    assert_eq!(
        labelled(labels(&[1, -1, 0, 2])).expect("a label each").pairs().expect("pairs").targets(),
        &labels(&[1, -1, 0, 2])
    );
    assert!(labelled(labels(&[1])).expect_err("too few").to_string().contains("targets of 1 pairs, there are 4"));
    let drawn =
        seeds.clone().with_targets("train edges", labels(&[0; 4])).expect_err("negatives have none").to_string();
    assert!(drawn.contains("negatives have none"), "{drawn}");
    let nodes = SeedSet::new("train split", &[1, 0, 1], 3).expect("good seeds");
    assert!(nodes.clone().with_targets("train split", labels(&[0; 3])).is_err(), "targets of nodes are the dataset's");
    assert_eq!((nodes.pairs(), nodes.num_examples()), (None, 3));
}

#[test]
fn given_negatives_are_as_many_for_each_pair() {
    let (pairs, given) = ([[2, 0], [0, 1]], [1, 1, 2, 0, 2, 1]);
    let settings = |negatives, avoid_edges| {
        let distribution = NegativeDistribution::Given;
        PairSettings { negatives, distribution, avoid_edges, ..PairSettings::default() }
    };
    let of = |given: &[u32], settings| SeedSet::of_pairs_against("train edges", &pairs, given, 3, settings);
    let seeds = of(&given, settings(3, false)).expect("three of each");
    let kept = seeds.pairs().expect("they are pairs");
    assert_eq!((kept.num_given(), kept.given_of(1), kept.given()), (3, &[0, 2, 1][..], &given[..]));
    let refused = |given: &[u32], settings| of(given, settings).expect_err("refused").to_string();
    let none = SeedSet::of_pairs("train edges", &pairs, 3, settings(1, false)).expect_err("none given").to_string();
    assert_eq!(
        none,
        "train edges: no negatives are given with them; import them (--train-negatives FILE), or draw them \
         (--negative-distribution uniform)"
    );
    assert_eq!(
        refused(&given, settings(4, false)),
        "train edges: 4 negatives per positive are more than the 3 that are given; give fewer, or draw them \
         (--negative-distribution uniform)"
    );
    assert_eq!(
        refused(&given[..5], settings(1, false)),
        "train edges: 5 negatives of 2 pairs are not as many for each; give as many for each pair"
    );
    assert_eq!(
        refused(&[0, 3], settings(1, false)),
        "train edges: a negative has the destination 3, and there are 3 nodes; correct it"
    );
    assert_eq!(
        refused(&given, settings(1, true)),
        "train edges: given negatives are not drawn again where they are edges; leave out --avoid-edges"
    );
}

#[test]
fn pair_settings_have_names_and_defaults() {
    let read = |text: &str| serde_json::from_str::<PairSettings>(text);
    let text = r#"{"negatives":5,"distribution":"in-batch","avoid-edges":true,"exclude":false}"#;
    let settings = read(text).expect("settings");
    let distribution = NegativeDistribution::InBatch;
    assert_eq!(settings, PairSettings { negatives: 5, distribution, avoid_edges: true, exclude: false });
    assert_eq!(serde_json::to_string(&settings).expect("text"), text);
    assert_eq!(read("{}").expect("defaults"), PairSettings::default());
    assert!(PairSettings::default().exclude, "a prediction does not read the edge that it predicts");
    read(r#"{"negative": 5}"#).expect_err("an unknown setting");
}

#[test]
fn negatives_follow_the_positives() {
    let pairs = BatchPairs {
        num_positives: 2,
        ends: vec![[0, 1], [2, 1], [0, 3], [0, 4], [2, 5], [2, 0]],
        ..BatchPairs::default()
    };
    assert_eq!(pairs.negatives_per_positive(), 2);
    assert_eq!((pairs.positives(), pairs.negatives_of(1)), (&[[0, 1], [2, 1]][..], &[[2, 5], [2, 0]][..]));
    assert_eq!(
        BatchPairs { num_positives: 2, ends: vec![[0, 1], [1, 0]], ..BatchPairs::default() }.negatives_per_positive(),
        0
    );
    let batch = HostBatch { pairs: Some(Box::new(pairs)), ..HostBatch::default() };
    assert_eq!(batch.num_bytes(), 6 * 8);
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
