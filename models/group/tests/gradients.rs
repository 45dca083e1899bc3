//! A group of any division has the gradients of one trainer, and its loss curves.

mod common;

use std::sync::Arc;

use common::{Ends, Task, Trained, distance};
use morphgl_formats::{Options, RandomSplit, Silent, npz, planetoid};
use morphgl_generate::{SbmConfig, sbm};
use morphgl_graph_store::{Dataset, OpenOptions};
use morphgl_group::{Balanced, Division, Weights, work, work_of_pairs};
use morphgl_registry::{Fanouts, NegativeDistribution, PairSettings, SamplerSettings};
use morphgl_sampler_core::Epochs;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Rounding: gradients of equal mini-batches added in another order.
const ROUNDING: f64 = 1e-6;

fn task(dataset: Dataset, fanouts: &str, batch_size: usize, mut model: Value) -> Task {
    let fanouts: Fanouts = fanouts.parse().expect("fanouts");
    model["in_dim"] = json!(dataset.feature_dim());
    model["num_classes"] = json!(dataset.num_classes);
    model["layers"] = json!(fanouts.0.len());
    let spec = json!({"model": model, "optimizer": {"lr": 0.01}});
    let settings = SamplerSettings { batch_size, seed: 5, ..fanouts.into() };
    Task { dataset: Arc::new(dataset), settings, spec, pairs: None }
}

/// Rounding where the gradients of positives and of negatives nearly cancel.
const ROUNDING_OF_PAIRS: f64 = 1e-4;

/// Fails unless all trainers of the group have the same bits, and the gradients of the first step are those of one trainer.
fn same_as_alone(group: &[Trained], alone: &Trained) {
    same_within(group, alone, ROUNDING);
}

fn same_within(group: &[Trained], alone: &Trained, rounding: f64) {
    for trained in group {
        assert_eq!(trained, &group[0], "trainers differ");
    }
    let (first, expected) = (&group[0].gradients[0], &alone.gradients[0]);
    assert_eq!(first.count, expected.count);
    let apart = distance(&first.tensors, &expected.tensors);
    assert!(apart <= rounding, "gradients are {apart:e} apart");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Any division: empty shares, shares of one seed, a last mini-batch that ends before the first share does.
    #[test]
    fn any_division_has_the_gradients_of_one_trainer(
        mut ends in proptest::collection::vec(0usize..=24, 1..=8),
        gat: bool,
        dropout in prop_oneof![Just(0.0f32), Just(0.5)],
        seed in 0u64..1000,
    ) {
        ends.sort_unstable();
        let graph = SbmConfig { nodes: 90, classes: 3, dim: 8, degree: 6.0, seed, ..SbmConfig::default() };
        let model = match gat {
            true => json!({"kind": "gat", "hidden": 4, "heads": 2, "dropout": dropout, "attention_dropout": dropout}),
            false => json!({"kind": "sage", "hidden": 8, "dropout": dropout, "input_dropout": dropout}),
        };
        let task = task(sbm(&graph).expect("a graph"), "4,3", 24, model);
        let division: Arc<dyn Division> = Arc::new(Ends(ends.clone()));
        let group = task.group(ends.len(), &division, 1);
        same_as_alone(&group, &task.alone(1));
        for bucket_bytes in [0, 1, 300] {
            let other = task.group_by_buckets(ends.len(), &division, 1, bucket_bytes);
            prop_assert_eq!(&other, &group, "buckets of {} bytes differ", bucket_bytes);
        }
    }
}

/// Ten epochs by groups of these weights: losses within rounding of one trainer's.
fn curves(dataset: Dataset, batch_size: usize, groups: &[&[f64]]) {
    let task = task(dataset, "10,5", batch_size, json!({"kind": "sage", "hidden": 16, "dropout": 0.5}));
    let alone = task.alone(10);
    for weights in groups {
        let division: Arc<dyn Division> = Arc::new(Weights::new(weights).expect("a weight above 0"));
        let group = task.group(weights.len(), &division, 10);
        same_as_alone(&group, &alone);
        for (epoch, (found, expected)) in group[0].scores.iter().zip(&alone.scores).enumerate() {
            assert_eq!(found.count, expected.count);
            let apart = (found.loss() / expected.loss() - 1.0).abs();
            assert!(apart < 1e-4, "epoch {epoch}: loss {} instead of {}", found.loss(), expected.loss());
        }
        assert!(group[0].scores[9].loss() < 0.7 * group[0].scores[0].loss(), "nothing is learned");
    }
}

/// The norm is that of the gradients of all trainers: a group clips as one trainer does, and its learning rate falls alike.
#[test]
fn clipping_and_schedules_are_those_of_one_trainer() {
    let graph = SbmConfig { nodes: 300, classes: 3, dim: 8, degree: 6.0, ..SbmConfig::default() };
    let model = json!({"kind": "sage", "hidden": 8, "dropout": 0.5});
    let whole = task(sbm(&graph).expect("a graph"), "4,3", 32, model);
    let steps = whole.dataset.splits.train.len().div_ceil(32);
    let schedule = json!({"kind": "cosine", "min": 0.01, "epochs": 4, "steps_per_epoch": steps});
    let with = |clip_norm: Value| {
        let optimizer =
            json!({"kind": "sgd", "lr": 0.5, "momentum": 0.9, "clip_norm": clip_norm, "schedule": schedule});
        Task { spec: json!({"model": whole.spec["model"], "optimizer": optimizer}), ..whole.clone() }
    };
    let clipped = with(json!(0.2));
    let alone = clipped.alone(4);
    assert_ne!(alone.scores, with(Value::Null).alone(4).scores, "something is clipped");
    for ends in [&[16, 32][..], &[0, 5, 5, 32]] {
        let division: Arc<dyn Division> = Arc::new(Ends(ends.to_vec()));
        let group = clipped.group(ends.len(), &division, 4);
        same_as_alone(&group, &alone);
        for (found, expected) in group[0].scores.iter().zip(&alone.scores) {
            let apart = (found.loss() / expected.loss() - 1.0).abs();
            assert!(apart < 1e-4, "loss {} instead of {}", found.loss(), expected.loss());
        }
        let apart = distance(&group[0].parameters, &alone.parameters);
        assert!(apart < 1e-4, "parameters are {apart:e} apart");
    }
}

/// Pairs are divided with their negatives: by any ends, and balanced by the work of each, down to the last mini-batch, which has fewer.
#[test]
fn links_have_the_gradients_of_one_trainer() {
    let graph = SbmConfig { nodes: 120, classes: 3, dim: 8, degree: 5.0, ..SbmConfig::default() };
    let dataset = sbm(&graph).expect("a graph");
    for (loss, decoder, distribution) in [
        ("bce", "dot", NegativeDistribution::Uniform),
        ("bpr", "distmult", NegativeDistribution::Degree),
        ("margin", "mlp", NegativeDistribution::InBatch),
    ] {
        let model = json!({"kind": "sage", "hidden": 8, "task": "link", "loss": loss, "decoder": decoder});
        let mut task = task(dataset.clone(), "4,3", 64, model);
        task.spec["model"]["num_classes"] = json!(6);
        task.pairs = Some(PairSettings { negatives: 3, distribution, ..PairSettings::default() });
        let seeds = task.seeds();
        assert!(!seeds.num_examples().is_multiple_of(64), "the last mini-batch has fewer pairs");
        let work = work_of_pairs(&work(&dataset.topology, &task.settings.sampling), seeds.pairs().expect("pairs"));
        let balanced = Balanced::new(Epochs::new(&seeds, &task.settings), work.into(), &[1.0, 3.0], 2);
        let alone = task.alone(2);
        let divisions: [(usize, Arc<dyn Division>); 3] = [
            (2, Arc::new(Ends(vec![20, 64]))),
            (4, Arc::new(Ends(vec![0, 1, 1, 64]))),
            (2, Arc::new(balanced.expect("work of every pair"))),
        ];
        for (size, division) in divisions {
            let group = task.group(size, &division, 2);
            same_within(&group, &alone, ROUNDING_OF_PAIRS);
            for (found, expected) in group[0].scores.iter().zip(&alone.scores) {
                assert_eq!(found.count, expected.count, "pairs that count");
                let apart = (found.loss() / expected.loss() - 1.0).abs();
                assert!(apart < 1e-4, "{loss}: loss {} instead of {}", found.loss(), expected.loss());
            }
        }
    }
}

#[test]
fn ten_epochs_on_cora() {
    let source = morphgl_testdata::path("planetoid").join("ind.cora");
    let dir = tempfile::tempdir().expect("a directory");
    let path = planetoid::import(&source, &dir.path().join("cora"), &Options::default(), &Silent);
    curves(
        Dataset::open(path.expect("Cora"), OpenOptions::default()).expect("Cora opens"),
        32,
        &[&[1.0, 1.0], &[0.6, 0.0, 0.1, 0.3]],
    );
}

#[test]
fn ten_epochs_by_a_random_split() {
    let sources = [
        ("cora_ml", Some(morphgl_testdata::path("gnn-benchmark-npz/cora_ml.npz")), 256),
        ("Coauthor CS", morphgl_testdata::extra("gnn-benchmark-npz/coauthor_cs.npz"), 1024),
    ];
    for (name, source, batch_size) in sources {
        let Some(source) = source else { continue };
        let dir = tempfile::tempdir().expect("a directory");
        let split = RandomSplit { train: 0.6, valid: 0.2, test: 0.2, seed: 1 };
        let options = Options { split: Some(split), ..Options::default() };
        let path = npz::import(&source, &dir.path().join("dataset"), &options, &Silent).expect(name);
        curves(Dataset::open(path, OpenOptions::default()).expect(name), batch_size, &[&[0.7, 0.3]]);
    }
}
