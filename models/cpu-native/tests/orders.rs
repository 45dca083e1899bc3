//! A GAT layer that attends to its input rows and multiplies the sums agrees with one that multiplies the rows and
//! attends to these.

mod common;

use std::sync::Arc;

use common::agreement::assert_close;
use common::{Random, batch, block, context, host, model};
use morphgl_graph_store::{Dataset, Dtype, FeatureMatrix};
use morphgl_registry::{HostBatch, MiniBatch, ModelState, NamedTensor, Score, Training, TrainingContext};
use morphgl_training_cpu_native::CpuNative;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::{Value, json};

/// Scores of evaluation and training, and the gradients, with all layers of a model in one order.
fn run(context: &TrainingContext, batch: &MiniBatch, attend_first: bool) -> ([Score; 2], Vec<NamedTensor>) {
    let mut trainer = CpuNative::new(context).expect("the operator is built");
    trainer.attend_first(Some(attend_first));
    let evaluated = trainer.score(batch).and_then(|h| h.wait()).expect("a score").0;
    let trained = trainer.accumulate(batch).and_then(|h| h.wait()).expect("a score").0;
    ([evaluated, trained], trainer.gradients().expect("gradients").tensors)
}

/// Asserts that both orders agree to 1e-5.
#[track_caller]
fn agree(what: &str, context: &TrainingContext, batch: &MiniBatch) {
    let (scores, gradients) = run(context, batch, true);
    let (expected_scores, expected) = run(context, batch, false);
    for (a, e) in scores.iter().zip(&expected_scores) {
        assert_eq!(a.count, e.count, "{what}");
        assert!((a.loss_sum - e.loss_sum).abs() <= 1e-5 * e.loss_sum.abs(), "{what}: loss {a:?}, expected {e:?}");
    }
    assert_close(what, &gradients, &expected, 1e-5);
}

/// Makes the first destinations occurrences of one node: their rows of features and of every block are equal.
fn repeat_seeds(batch: &mut HostBatch, dim: usize) {
    let (features, count) = (batch.features.as_mut().expect("features"), batch.input_nodes.len());
    let mut bytes = features.view().as_bytes().to_vec();
    let row = bytes.len() / count;
    for occurrence in 1..batch.num_seeds.min(3) {
        batch.input_nodes[occurrence] = batch.input_nodes[0];
        bytes.copy_within(0..row, occurrence * row);
    }
    let dtype = features.dtype;
    features.resize(count, dim, dtype).copy_from_slice(&bytes);
}

proptest! {
    // A score next to 0 may have either slope, so the cases are the same in every run.
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(7), ..ProptestConfig::with_cases(80) })]

    /// One layer has no gradient of its input, the second of two has.
    #[test]
    fn both_orders_agree(
        sources in 1usize..260,
        share in 20usize..=100,
        (layers, heads, output_heads) in (1usize..3, 1usize..9, 1usize..4),
        (dim, head_dim) in (1usize..131, 1usize..20),
        dtype in prop::sample::select(vec![Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::U8]),
        dropout in prop::sample::select(vec![[0.0, 0.0, 0.0], [0.5, 0.4, 0.3]]),
        repeats: bool,
        seed in 0u64..1000,
    ) {
        let next = |n: usize| (n * share / 100).max(1);
        let nodes = [sources, next(sources), next(next(sources))];
        // ELU, not ReLU: an activation next to 0 would make gradients differ.
        let model = model("gat", dim, 5, json!({
            "layers": layers, "heads": heads, "output_heads": output_heads, "hidden": heads * head_dim, "activation": "elu",
            "dropout": dropout[0], "attention_dropout": dropout[1], "input_dropout": dropout[2],
        }));
        let mut batch = batch(&nodes[..=layers], (dim, 5), dtype, false, seed);
        if repeats {
            repeat_seeds(&mut batch, dim);
        }
        agree(&format!("{model}, {nodes:?}, {dtype}, seed {seed}"), &context(&model, 3), &host(batch));
    }
}

/// Sizes of one mini-batch with many rows per destination, and of one with rows of many columns.
#[test]
fn wide_layers_agree() {
    for (nodes, dim, hidden) in [([2_000, 400, 90], 100, 256), ([500, 480, 450], 300, 64)] {
        let options = json!({"layers": 2, "heads": 4, "hidden": hidden, "activation": "elu", "output_heads": 2});
        let model = model("gat", dim, 7, options);
        let batch = host(batch(&nodes, (dim, 7), Dtype::F32, false, 5));
        agree(&format!("{model}"), &context(&model, 2), &batch);
    }
}

/// A block whose rows have no neighbours: each attends to itself.
#[test]
fn rows_without_neighbours_agree() {
    let model = model("gat", 20, 5, json!({"layers": 1, "heads": 3, "hidden": 12}));
    let mut batch = batch(&[150, 130], (20, 5), Dtype::F32, false, 4);
    let mut empty = block(150, 130, 0, false, &mut Random(1));
    empty.indices.clear();
    empty.indptr.iter_mut().for_each(|offset| *offset = 0);
    batch.blocks = vec![empty];
    agree("no edges", &context(&model, 2), &host(batch));
}

/// Both orders of a trainer on some number of threads: parameters after two steps, from gathered features or those of
/// the dataset.
fn trained(model: &Value, attend_first: Option<bool>, threads: usize, gathered: bool) -> Vec<NamedTensor> {
    let mut random = Random(9);
    let values: Vec<f32> = (0..3_000 * 64).map(|_| random.unit()).collect();
    let features = FeatureMatrix::F32 { data: values.clone().into(), dim: 64 };
    let context = context(model, threads);
    let dataset = Arc::new(Dataset { features: Some(features), ..(*context.dataset).clone() });
    let mut trainer = CpuNative::new(&TrainingContext { dataset, ..context }).expect("the operator is built");
    trainer.attend_first(attend_first);
    for seed in 0..2 {
        let mut batch = batch(&[3_000, 900, 300], (64, 5), Dtype::F32, false, seed);
        batch.input_nodes = (0..3_000).map(|i| i * 7 % 3_000).collect();
        batch.features = gathered.then(|| {
            let rows = batch.input_nodes.iter().flat_map(|&node| &values[node as usize * 64..][..64]);
            let mut features = batch.features.take().expect("features");
            let bytes: Vec<u8> = rows.flat_map(|x| x.to_le_bytes()).collect();
            features.resize(3_000, 64, Dtype::F32).copy_from_slice(&bytes);
            features
        });
        trainer.accumulate(&host(batch)).expect("accumulated");
        trainer.step().expect("a step");
    }
    trainer.parameters().expect("parameters")
}

#[test]
fn threads_and_the_place_of_the_features_change_no_bit() {
    let model = model("gat", 64, 5, json!({"layers": 2, "hidden": 48, "heads": 4, "attention_dropout": 0.2}));
    for attend_first in [Some(true), Some(false), None] {
        let one = trained(&model, attend_first, 1, true);
        for (threads, gathered) in [(2, true), (3, false), (7, true), (4, false)] {
            let found = trained(&model, attend_first, threads, gathered);
            assert!(found == one, "attend first {attend_first:?}: {threads} threads, gathered {gathered}");
        }
    }
}

/// Full-neighbour inference of a graph of features, in chunks of any size.
#[test]
fn inference_agrees() {
    let dataset = Arc::new(morphgl_conformance::training::tiny());
    let nodes: Vec<u32> = (0..dataset.num_nodes() as u32).rev().collect();
    let model = json!({"kind": "gat", "in_dim": dataset.feature_dim(), "num_classes": 9, "hidden": 32, "layers": 2});
    let context = TrainingContext::new(dataset, json!({"model": model}));
    let [first, last] = [true, false].map(|attend_first| {
        let mut trainer = CpuNative::new(&context).expect("the operator is built");
        trainer.attend_first(Some(attend_first));
        let values = trainer.infer(&nodes).expect("logits");
        [NamedTensor { name: "logits".to_string(), shape: vec![nodes.len(), 9], values }]
    });
    assert_close("inference", &first, &last, 1e-5);
}

/// Without the hook, a layer attends first where its sources are many more than its destinations, and last where they
/// are not.
#[test]
fn the_order_with_less_work_is_chosen() {
    let flops = |nodes: &[usize], hidden: usize, attend_first: Option<bool>| {
        let model = model("gat", 100, 5, json!({"layers": 1, "output_heads": 4, "num_classes": hidden}));
        let batch = batch(nodes, (100, hidden), Dtype::F32, false, 3);
        let mut trainer = CpuNative::new(&context(&model, 1)).expect("the operator is built");
        trainer.attend_first(attend_first);
        trainer.accumulate(&host(batch.clone())).expect("accumulated");
        trainer.passes(&batch).expect("the mini-batch fits").iter().map(|pass| pass.flops).sum::<f64>()
    };
    for (nodes, width, first) in [([4_000, 500], 64, true), ([520, 500], 8, false)] {
        let chosen = flops(&nodes, width, None);
        assert_eq!(chosen, flops(&nodes, width, Some(first)), "{nodes:?}");
        assert_ne!(chosen, flops(&nodes, width, Some(!first)), "{nodes:?}");
    }
}
