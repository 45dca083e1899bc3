//! The same numbers as Training_CPU_Burn: loss, gradients, a step, logits, and the state that moves between the two.

#[allow(dead_code, reason = "the native operator's tests use the rest")]
#[path = "../../cpu-native/tests/common/typed.rs"]
mod blocks;
mod common;
#[path = "burn/typed.rs"]
mod typed;

use morphgl_conformance::available;
use std::sync::Arc;

use common::agreement::step;
use common::{Random, batch, block, context, dataset, give, model, pair, place};
use morphgl_graph_store::{Dataset, Dtype, TargetMatrix};
use morphgl_model_core::TrainingSpec;
use morphgl_registry::{HostBatch, ModelState, Place, TargetValues, Training};
use morphgl_training_cpu_burn::CpuBurn;
use morphgl_training_cuda_native::CudaNative;
use serde_json::{Value, json};

fn check(model: &Value, nodes: &[usize], dtype: Dtype, weighted: bool) {
    check_changed(model, nodes, dtype, weighted, &|_| {});
}

fn check_changed(model: &Value, nodes: &[usize], dtype: Dtype, weighted: bool, change: &dyn Fn(&mut HostBatch)) {
    let size = |name: &str| model[name].as_u64().expect("a size") as usize;
    let (dim, classes) = (size("in_dim"), size("num_classes"));
    let what = format!("{model}, {nodes:?}, {dtype}, weighted {weighted}");
    let targets = matches!(model["task"].as_str(), Some("multilabel" | "regress"));
    let targets = targets.then(|| TargetMatrix::new(Vec::new(), classes).expect("targets of no node"));
    let none = Arc::new(Dataset { targets, ..Dataset::clone(&dataset(0, 0, dim, classes, false)) });
    let mut native =
        CudaNative::new(&context(model, place(), Arc::clone(&none))).expect("the native operator is built");
    let mut burn = CpuBurn::new(&context(model, Place::Host, none)).expect("burn's operator is built");
    assert_eq!(native.parameters().expect("parameters"), burn.parameters().expect("parameters"), "{what}");
    for seed in 0..2 {
        let mut host = batch(nodes, (dim, classes), dtype, weighted, seed);
        change(&mut host);
        step(&what, (model, host), (&mut native, &mut burn));
    }
}

/// No multiples of a block's threads.
const NODES: [usize; 4] = [390, 270, 130, 61];

#[test]
fn graph_models() {
    if !available(&morphgl_training_cuda_native::DESCRIPTION) {
        return;
    }
    for kind in ["sage", "gcn", "gat", "gin"] {
        for (dim, hidden, classes) in [(20, 24, 5), (7, 68, 40), (130, 8, 3)] {
            for dropout in [0.0, 0.5] {
                let more = json!({"hidden": hidden, "dropout": dropout, "heads": 2});
                check(&model(kind, dim, classes, more), &NODES, Dtype::F32, false);
            }
        }
    }
}

/// Rows are almost as many before a layer as after it, so products come first where they are thin.
#[test]
fn products_first() {
    if !available(&morphgl_training_cuda_native::DESCRIPTION) {
        return;
    }
    for kind in ["sage", "gcn", "gin"] {
        for (hidden, classes) in [(60, 3), (8, 5)] {
            let model = model(kind, 60, classes, json!({"hidden": hidden}));
            check(&model, &[100, 95, 90, 85], Dtype::Bf16, true);
        }
    }
}

#[test]
fn element_types_and_weights() {
    if !available(&morphgl_training_cuda_native::DESCRIPTION) {
        return;
    }
    for kind in ["sage", "gcn", "gat", "gin"] {
        for (dim, hidden) in [(33, 40), (64, 16)] {
            for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::U8] {
                let model = model(kind, dim, 6, json!({"hidden": hidden, "layers": 2}));
                check(&model, &NODES[1..], dtype, kind != "gat");
            }
        }
    }
}

#[test]
fn options() {
    if !available(&morphgl_training_cuda_native::DESCRIPTION) {
        return;
    }
    for kind in ["sage", "gcn", "gat", "gin"] {
        for more in [
            json!({"activation": "elu"}),
            json!({"input_dropout": 0.3}),
            json!({"input_dropout": 0.3, "activation": "elu", "dropout": 0.0}),
            json!({"normalization": "layer"}),
            json!({"normalization": "batch", "activation": "elu", "residual": true}),
            json!({"residual": true}),
        ] {
            let mut model = model(kind, 40, 6, more);
            model["hidden"] = json!(32);
            check(&model, &NODES, Dtype::F16, false);
        }
        check(&model(kind, 40, 6, json!({"layers": 1})), &NODES[2..], Dtype::F32, false);
        check(&model(kind, 40, 6, json!({"layers": 2, "hidden": 32})), &[5, 3, 1], Dtype::F32, false);
    }
    for more in [
        json!({"output_heads": 3}),
        json!({"attention_dropout": 0.4}),
        json!({"attention_dropout": 0.4, "heads": 3, "hidden": 33}),
        json!({"attention": "gatv2"}),
        json!({"attention": "gatv2", "output_heads": 2, "attention_dropout": 0.3}),
    ] {
        let mut model = model("gat", 40, 6, more);
        if model["hidden"].is_null() {
            model["hidden"] = json!(32);
        }
        check(&model, &NODES, Dtype::F32, false);
    }
    for more in [
        json!({"l2_normalize": true}),
        json!({"l2_normalize": true, "normalization": "layer"}),
        json!({"l2_normalize": true, "residual": true, "normalization": "batch"}),
    ] {
        let mut model = model("sage", 40, 6, more);
        model["hidden"] = json!(32);
        check(&model, &NODES, Dtype::F32, false);
    }
    for (more, dtype) in [
        (json!({"hidden": 32}), Dtype::F32),
        (json!({"hidden": 32, "activation": "elu", "input_dropout": 0.2}), Dtype::Bf16),
        (json!({"hidden": 32, "residual": true, "normalization": "batch"}), Dtype::U8),
    ] {
        check(&model("mlp", 40, 6, more), &NODES[3..], dtype, false);
    }
}

/// Rows that fewer lanes than a warp's share, and rows that are no multiple of its lanes: lengths, normalisation, loss,
/// attention's products.
#[test]
fn rows_of_any_width() {
    if !available(&morphgl_training_cuda_native::DESCRIPTION) {
        return;
    }
    for (hidden, classes) in [(3, 2), (5, 70), (33, 9), (100, 33)] {
        let more = json!({"hidden": hidden, "l2_normalize": true, "normalization": "layer"});
        check(&model("sage", 11, classes, more), &NODES, Dtype::F32, false);
        for attention in ["gat", "gatv2"] {
            let more = json!({"hidden": 3 * hidden, "heads": 3, "attention": attention, "attention_dropout": 0.2});
            check(&model("gat", 11, classes, more), &NODES, Dtype::F32, false);
        }
    }
}

/// Losses of classes with settings, of labels and of values, some of which are not known; rows of fewer elements than a warp's lanes, and
/// of more.
#[test]
fn losses_of_nodes() {
    if !available(&morphgl_training_cuda_native::DESCRIPTION) {
        return;
    }
    for width in [1, 2, 33, 70] {
        let weights: Vec<String> = (0..width).map(|class| format!("{}", class % 4)).collect();
        let mut losses = vec![
            ("multilabel", "bce", json!({})),
            ("multilabel", "bce", json!({"positive_weight": 2.5})),
            ("regress", "mse", json!({})),
            ("regress", "mae", json!({})),
            ("regress", "huber", json!({"delta": 0.4})),
        ];
        if width > 1 {
            losses.push(("classify", "cross-entropy", json!({"label_smoothing": 0.2})));
            losses.push(("classify", "cross-entropy", json!({"class_weights": weights.join(",")})));
            let both = json!({"class_weights": weights.join(","), "label_smoothing": 0.1});
            losses.push(("classify", "cross-entropy", both));
        }
        for (task, loss, settings) in losses {
            let more = json!({"hidden": 16, "layers": 2, "task": task, "loss": loss, "loss_settings": settings});
            check_changed(&model("sage", 9, width, more), &NODES[1..], Dtype::F32, false, &|batch| {
                let mut random = Random(u64::from(batch.id.index) + 31);
                let value = |_| match (random.below(4), task) {
                    (0, _) => f32::NAN,
                    (_, "multilabel") => random.below(2) as f32,
                    _ => random.unit(),
                };
                let values = (0..batch.num_seeds * width).map(value).collect();
                batch.targets = if task == "classify" { Default::default() } else { TargetValues { width, values } };
            });
        }
    }
}

/// Every decoder under every loss of pairs; a node that is an end of a third of them, and nodes that are of none.
#[test]
fn losses_of_pairs() {
    if !available(&morphgl_training_cuda_native::DESCRIPTION) {
        return;
    }
    for (loss, settings) in [
        ("bce", json!({})),
        ("bce", json!({"positive_weight": 3})),
        ("bpr", json!({})),
        ("margin", json!({"margin": 0.6})),
    ] {
        for decoder in ["dot", "distmult", "mlp"] {
            for (width, positives, negatives) in [(5, 23, 3), (40, 9, 50), (64, 1, 1), (33, 70, 0)] {
                let task = json!({"task": "link", "loss": loss, "loss_settings": settings, "decoder": decoder});
                let mut model = model("gcn", 9, width, task);
                (model["hidden"], model["layers"]) = (json!(16), json!(2));
                let change = |batch: &mut HostBatch| pair(batch, positives, negatives);
                check_changed(&model, &NODES[1..], Dtype::F32, false, &change);
            }
        }
    }
}

/// A source of as many edges as all rows, and a row of twice as many as one row of threads walks alone.
#[test]
fn hubs() {
    if !available(&morphgl_training_cuda_native::DESCRIPTION) {
        return;
    }
    let star = |batch: &mut HostBatch| {
        let mut random = Random(4);
        let star = &mut batch.blocks[0];
        (star.indptr, star.indices) = (vec![0], Vec::new());
        for row in 0..star.num_dst {
            let more = if row == 5 { 1100 } else { random.below(4) };
            star.indices.extend([3, 7]);
            star.indices.extend((0..more).map(|_| random.below(star.num_src) as u32));
            star.indptr.push(star.indices.len() as u32);
        }
        star.weights = star.weights.as_ref().map(|_| star.indices.iter().map(|_| 1.1 + random.unit()).collect());
    };
    for (kind, hidden, more) in [
        ("sage", 24, json!({})),
        ("gcn", 7, json!({})),
        ("gin", 130, json!({})),
        ("gat", 16, json!({"heads": 2})),
        ("gat", 15, json!({"heads": 3, "attention": "gatv2"})),
    ] {
        let mut model = model(kind, 20, 4, more);
        (model["hidden"], model["layers"]) = (json!(hidden), json!(2));
        check_changed(&model, &[900, 800, 60], Dtype::F16, kind == "gcn", &star);
        // The hub's list is also one that backward walks: features of a layer before have gradients.
        model["layers"] = json!(3);
        check_changed(&model, &[900, 800, 700, 60], Dtype::F32, false, &|batch| {
            batch.blocks.swap(0, 1);
            star(batch);
            batch.blocks.swap(0, 1);
        });
    }
}

/// GraphSAGE's mean by importance, where a layer sums first and where it multiplies first, and of long rows; a GAT does not read it.
#[test]
fn importance() {
    if !available(&morphgl_training_cuda_native::DESCRIPTION) {
        return;
    }
    let important = |batch: &mut HostBatch| batch.blocks.iter_mut().for_each(|block| block.importance = true);
    for (kind, nodes, hidden) in
        [("sage", &NODES[..], 24), ("sage", &[100, 95, 90, 85], 8), ("sage", &NODES, 7), ("gat", &NODES, 16)]
    {
        for dtype in [Dtype::F32, Dtype::F16] {
            let model = model(kind, 60, 5, json!({"hidden": hidden, "heads": 2}));
            check_changed(&model, nodes, dtype, true, &important);
        }
    }
    let hub = |batch: &mut HostBatch| {
        let (block, mut random) = (&mut batch.blocks[1], Random(4));
        block.indices.extend((0..1500).map(|_| random.below(block.num_src) as u32));
        block.weights.iter_mut().for_each(|weights| weights.extend((0..1500).map(|i| 1.0 + (i % 3) as f32)));
        *block.indptr.last_mut().expect("an end") += 1500;
        important(batch);
    };
    check_changed(&model("sage", 20, 4, json!({"hidden": 24})), &NODES, Dtype::F32, true, &hub);
}

/// Blocks that read fewer rows than the layer before made, and fewer seeds than the last one makes.
#[test]
fn rows_that_nobody_reads() {
    if !available(&morphgl_training_cuda_native::DESCRIPTION) {
        return;
    }
    for kind in ["sage", "gcn", "gat", "gin"] {
        for more in [json!({"hidden": 16}), json!({"hidden": 16, "residual": true, "normalization": "layer"})] {
            let model = model(kind, 12, 4, more);
            check_changed(&model, &[300, 210, 120, 60], Dtype::F32, false, &|batch| {
                let mut random = Random(8);
                batch.blocks[1] = block(190, 120, 4, false, &mut random);
                batch.blocks[2] = block(100, 60, 4, false, &mut random);
                batch.num_seeds = 41;
                batch.labels.truncate(41);
            });
        }
    }
}

/// Widths of what the first layer's weights multiply for given rows.
fn widths(model: &Value) -> Vec<usize> {
    TrainingSpec::from_json(&json!({"model": model})).expect("a spec").model.given_input_widths()
}

/// Given rows after computed ones that end anywhere in a word of four, in products-first layers too.
#[test]
fn given_rows() {
    if !available(&morphgl_training_cuda_native::DESCRIPTION) {
        return;
    }
    for kind in ["sage", "gcn", "gat", "gin"] {
        for (nodes, hidden, more) in [
            (&[300, 211, 130, 61][..], 24, json!({})),
            (&[300, 211, 130, 61], 6, json!({"activation": "elu"})),
            (&[300, 93, 40], 7, json!({"heads": 1})),
            (&[100, 60, 50], 60, json!({})),
            (&[300, 210, 120, 60], 16, json!({"residual": true, "normalization": "layer"})),
        ] {
            for (count, dropout) in [(150, 0.5), (31, 0.5), (31, 0.0), (1, 0.5)] {
                let mut model = model(kind, 20, 3, more.clone());
                model["heads"] = if model["heads"].is_null() { json!(2) } else { model["heads"].clone() };
                (model["hidden"], model["dropout"]) = (json!(hidden), json!(dropout));
                model["layers"] = json!(nodes.len() - 1);
                for inputs in [Vec::new(), widths(&model)] {
                    let change = |batch: &mut HostBatch| give(batch, count, hidden, &inputs);
                    check_changed(&model, nodes, Dtype::F16, kind == "gcn", &change);
                }
            }
        }
    }
    for more in [
        json!({"kind": "gat", "attention": "gatv2", "attention_dropout": 0.3, "heads": 3}),
        json!({"kind": "sage", "l2_normalize": true, "input_dropout": 0.2}),
    ] {
        let mut model = model("gat", 20, 4, more);
        (model["hidden"], model["dropout"]) = (json!(33), json!(0.4));
        check_changed(&model, &NODES, Dtype::F32, false, &|batch| give(batch, 77, 33, &[]));
    }
}

#[test]
fn logits_of_all_nodes() {
    if !available(&morphgl_training_cuda_native::DESCRIPTION) {
        return;
    }
    for (kind, weighted) in [("sage", false), ("gcn", true), ("gat", false), ("gin", false), ("mlp", false)] {
        let data = dataset(150, 5, 21, 4, weighted);
        let model = model(kind, 21, 4, json!({"hidden": 16, "heads": 2}));
        let mut native = CudaNative::new(&context(&model, place(), Arc::clone(&data))).expect("it is built");
        let mut burn = CpuBurn::new(&context(&model, Place::Host, data)).expect("it is built");
        let nodes: Vec<u32> = (0..150).rev().collect();
        let (own, theirs) = (native.infer(&nodes).expect("logits"), burn.infer(&nodes).expect("logits"));
        assert_eq!(own.len(), theirs.len());
        for (i, (a, b)) in own.iter().zip(&theirs).enumerate() {
            assert!((a - b).abs() <= 1e-4 * b.abs().max(1.0), "{kind}: logit {i} is {a}, burn's {b}");
        }
    }
}
