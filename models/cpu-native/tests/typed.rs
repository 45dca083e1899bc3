//! Typed models: agreement with Training_CPU_Burn, the same bits on any number of threads, and finite differences.

mod common;

use std::sync::Arc;

use common::agreement::{assert_close, assert_step};
use common::typed::{
    EDGE_WIDTHS, WIDTHS, add_edge_ids, context, dataset, dataset_by_type, typed_batch, types, with_edge_features,
};
use common::{Random, host, model};
use morphgl_graph_store::{Dataset, Dtype};
use morphgl_registry::{BatchPairs, HostBatch, MiniBatch, ModelState, Training};
use morphgl_training_cpu_burn::CpuBurn;
use morphgl_training_cpu_native::CpuNative;
use proptest::prelude::*;
use serde_json::{Value, json};

/// The configuration of a typed model; `more` adds to it.
fn typed_model(kind: &str, dim: usize, classes: usize, more: Value) -> Value {
    let mut model = model(kind, dim, classes, more);
    model["types"] = serde_json::to_value(types()).expect("JSON");
    model
}

/// The dataset of a model.
fn dataset_of(model: &Value) -> Arc<Dataset> {
    let size = |name: &str| model[name].as_u64().expect("a size") as usize;
    let dataset = match model.get("input_widths") {
        Some(_) => dataset_by_type(size("num_classes")),
        None => dataset(size("in_dim"), size("num_classes")),
    };
    Arc::new(if model.get("edge_widths").is_some() { with_edge_features(dataset) } else { dataset })
}

/// Checks the operator on vector registers and, where the processor has them and the model is wide, on AMX tiles.
fn check(model: &Value, nodes: &[usize], dtype: Dtype, importance: bool) {
    let size = |name: &str| model[name].as_u64().expect("a size") as usize;
    let sizes = (size("in_dim"), size("num_classes"));
    let dataset = dataset_of(model);
    let of_threads = |threads| context(model, &dataset, threads);
    let operators = [CpuNative::new(&of_threads(3)).ok(), CpuNative::on_tiles(&of_threads(2)).ok()];
    assert!(operators[0].is_some(), "{:?}", CpuNative::new(&of_threads(3)).err());
    for mut native in operators.into_iter().flatten() {
        let what = format!("{native:?}, {model}, {nodes:?}, {dtype}, importance {importance}");
        let mut burn = CpuBurn::new(&of_threads(2)).expect("burn's operator is built");
        assert_eq!(native.parameters().expect("parameters"), burn.parameters().expect("parameters"), "{what}");
        for seed in 0..2 {
            let mut batch = typed_batch(nodes, sizes, (dtype, importance), seed);
            if model.get("input_widths").is_some() {
                batch.features = None;
            }
            if model.get("edge_widths").is_some() {
                add_edge_ids(&mut batch, seed);
            }
            let batch = host(batch);
            assert_step(&what, &mut native, &mut burn, &batch);
        }
    }
}

const NODES: [usize; 4] = [700, 410, 230, 101];
const KINDS: [&str; 3] = ["rgcn", "rsage", "rgat"];

#[test]
fn models_agree_with_burn() {
    for kind in KINDS {
        for (dim, hidden, classes) in [(20, 24, 6), (100, 8, 7), (7, 68, 40), (128, 96, 100)] {
            for dropout in [0.0, 0.5] {
                let model = typed_model(kind, dim, classes, json!({"hidden": hidden, "dropout": dropout, "heads": 2}));
                check(&model, &NODES, Dtype::F32, false);
            }
        }
    }
}

#[test]
fn options_agree_with_burn() {
    for kind in KINDS {
        for (more, dtype) in [
            (json!({"hidden": 32, "activation": "elu"}), Dtype::F16),
            (json!({"hidden": 32, "input_dropout": 0.3}), Dtype::Bf16),
            (json!({"layers": 1}), Dtype::U8),
        ] {
            let nodes = if more.get("layers").is_some() { &NODES[2..] } else { &NODES };
            check(&typed_model(kind, 40, 6, more), nodes, dtype, kind != "rgat");
        }
        check(&typed_model(kind, 40, 6, json!({"layers": 2})), &[5, 3, 1], Dtype::F32, false);
    }
    for more in [json!({"output_heads": 3}), json!({"heads": 3, "hidden": 33, "output_heads": 2, "layers": 2})] {
        let nodes = if more.get("layers").is_some() { &NODES[1..] } else { &NODES };
        check(&typed_model("rgat", 40, 6, more), nodes, Dtype::F32, false);
    }
    for more in [json!({"bases": 2}), json!({"bases": 9}), json!({"diagonal_blocks": 2}), json!({"diagonal_blocks": 1})]
    {
        let mut model = typed_model("rgcn", 40, 6, more);
        model["hidden"] = json!(32);
        check(&model, &NODES, Dtype::F32, false);
    }
}

/// R-GAT that reads features of edges.
fn model_with_edges(more: Value) -> Value {
    let mut model = typed_model("rgat", 24, 6, more);
    model["edge_widths"] = json!(EDGE_WIDTHS);
    model
}

/// PyG's `edge_dim` per edge type: widths, heads, averaged ones included, inputs per node type, and a single edge.
#[test]
fn edge_features_agree_with_burn() {
    for more in [
        json!({"hidden": 32, "heads": 4}),
        json!({"hidden": 33, "heads": 3, "output_heads": 2, "input_dropout": 0.3, "dropout": 0.5, "activation": "elu"}),
        json!({"hidden": 100, "heads": 100, "activation": "elu"}),
        json!({"hidden": 24, "layers": 1, "output_heads": 8}),
        json!({"hidden": 24, "layers": 2, "input_widths": WIDTHS}),
    ] {
        let nodes = match more["layers"].as_u64() {
            Some(layers) => &NODES[3 - layers as usize..],
            None => &NODES,
        };
        check(&model_with_edges(more), nodes, Dtype::F32, false);
    }
    check(&model_with_edges(json!({"layers": 1})), &[2, 1], Dtype::F32, false);
}

#[test]
fn rows_of_edge_features_are_checked() {
    let model = model_with_edges(json!({"layers": 1}));
    let mut native = CpuNative::new(&context(&model, &dataset_of(&model), 1)).expect("the operator is built");
    let mut batch = typed_batch(&[40, 20], (24, 6), (Dtype::F32, false), 1);
    let error = native.accumulate(&host(batch.clone())).expect_err("no ids").to_string();
    assert!(error.contains("its edges have no ids"), "{error}");
    add_edge_ids(&mut batch, 1);
    let edge = batch.blocks[0].edge_types.as_ref().expect("types").iter().position(|&edge_type| edge_type == 2);
    batch.blocks[0].edge_ids.as_mut().expect("ids")[edge.expect("an edge with features")] = 40;
    let error = native.accumulate(&host(batch)).expect_err("a row that is not there").to_string();
    assert!(error.contains("has row 40 of their features, there are 40; batch it"), "{error}");
}

/// A model with inputs per node type.
fn model_by_type(kind: &str, more: Value) -> Value {
    let mut model = typed_model(kind, 24, 6, more);
    model["input_widths"] = json!(WIDTHS);
    model
}

#[test]
fn inputs_per_node_type_agree_with_burn() {
    for kind in ["rgcn", "rsage", "rgat", "sage", "gcn", "gat"] {
        for more in [
            json!({"hidden": 32}),
            json!({"hidden": 24, "input_dropout": 0.3, "activation": "elu"}),
            // ELU: a pre-activation near 0 may round to either side.
            json!({"hidden": 200, "layers": 2, "heads": 1, "activation": "elu"}),
        ] {
            let nodes = if more.get("layers").is_some() { &NODES[1..] } else { &NODES };
            check(&model_by_type(kind, more), nodes, Dtype::F32, false);
        }
        check(&model_by_type(kind, json!({"layers": 1})), &[300, 290], Dtype::F32, false);
    }
    check(&model_by_type("mlp", json!({"input_dropout": 0.2})), &NODES[3..], Dtype::F32, false);
}

/// A model without layers: inputs per node type, or the features of all nodes, straight to the decoder. Scores, gradients and steps are
/// burn's, threads change no bit, and gradients are derivatives of the loss.
#[test]
fn inputs_alone_are_scored_by_the_decoder() {
    let links = |more: Value| {
        let mut model = json!({"layers": 1, "task": "link", "loss": "bce"});
        more.as_object().expect("an object").iter().for_each(|(name, value)| model[name] = value.clone());
        model
    };
    let by_relation = || json!({"decoder": "distmult", "relations": 6});
    let by_type = |more: Value| {
        let mut model = typed_model("embedding", 24, 24, links(more));
        model["input_widths"] = json!(WIDTHS);
        model
    };
    for model in [
        by_type(by_relation()),
        by_type(json!({"decoder": "dot"})),
        by_type(json!({"decoder": "mlp", "input_dropout": 0.3})),
        typed_model("embedding", 24, 24, links(by_relation())),
    ] {
        let batch = |seed: u64| {
            let mut random = Random(seed);
            let mut batch = typed_batch(&NODES[3..], (24, 24), (Dtype::F32, false), seed);
            batch.features = batch.features.filter(|_| model.get("input_widths").is_none());
            let ends = (0..300).map(|_| [0; 2].map(|_: u32| random.below(101) as u32)).collect();
            let edge_types = (0..300).map(|_| random.below(6) as u16).collect();
            let pairs = Some(Box::new(BatchPairs { num_positives: 100, ends, edge_types }));
            HostBatch { pairs, labels: Vec::new(), ..batch }
        };
        let of_threads = |threads| context(&model, &dataset_of(&model), threads);
        let mut native = CpuNative::new(&of_threads(3)).expect("the operator is built");
        let mut burn = CpuBurn::new(&of_threads(2)).expect("burn's operator is built");
        for seed in 0..3 {
            assert_step(&model.to_string(), &mut native, &mut burn, &host(batch(seed)));
        }
        let one = gradients(&model, 1, &batch(7));
        assert!((2..5).all(|threads| gradients(&model, threads, &batch(7)) == one), "{model}: threads change bits");
        if model.get("input_dropout").is_none() {
            assert_derivatives(&model.to_string(), &mut native, &host(batch(8)));
        }
        let nodes: Vec<u32> = (0..1000).rev().collect();
        let tensor = |values: Vec<f32>| morphgl_registry::NamedTensor {
            name: "embeddings".to_string(),
            shape: vec![nodes.len(), 24],
            values,
        };
        burn.set_parameters(&native.parameters().expect("parameters")).expect("parameters are set");
        let [found, expected] = [native.infer(&nodes), burn.infer(&nodes)].map(|rows| [tensor(rows.expect("rows"))]);
        assert_close(&model.to_string(), &found, &expected, 1e-5);
    }
    // Over the dataset's features a dot product has nothing to learn.
    let model = typed_model("embedding", 24, 24, links(json!({})));
    let error = CpuNative::new(&context(&model, &dataset_of(&model), 1)).expect_err("nothing to learn").to_string();
    assert!(error.contains("learns nothing; use distmult or mlp"), "{error}");
    let model = typed_model("embedding", 24, 6, links(by_relation()));
    let error = CpuNative::new(&context(&model, &dataset_of(&model), 1)).expect_err("another width").to_string();
    assert!(error.contains("the 24 features of a node are its embedding as they are, not 6"), "{error}");
}

/// Of tables of embeddings, a step moves the rows of the mini-batch's nodes, whether it accumulated the gradients itself or was given them.
#[test]
fn rows_without_a_gradient_stay() {
    let model = model_by_type("rsage", json!({"hidden": 24, "dropout": 0.0}));
    for optimizer in [
        json!({"kind": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
        json!({"kind": "adamw", "lr": 0.01, "eps": 0.01, "weight_decay": 0.1}),
        json!({"kind": "sgd", "lr": 0.1, "clip_norm": 0.5}),
    ] {
        let mut context = context(&model, &dataset_of(&model), 3);
        context.spec["optimizer"] = optimizer;
        let mut native = CpuNative::new(&context).expect("the operator is built");
        let mut given = CpuNative::new(&context).expect("the operator is built");
        let mut burn = CpuBurn::new(&context).expect("burn's operator is built");
        let before = native.parameters().expect("parameters");
        let mut seen = vec![false; 1000];
        for seed in 0..3 {
            let batch = typed_batch(&[120, 60, 40, 20], (24, 6), (Dtype::F32, false), seed);
            let batch = HostBatch { features: None, ..batch };
            batch.input_nodes.iter().for_each(|&node| seen[node as usize] = true);
            let batch = host(batch);
            native.accumulate(&batch).expect("accumulated");
            given.set_gradients(&native.gradients().expect("gradients")).expect("gradients are set");
            burn.accumulate(&batch).expect("accumulated");
            for trainer in [&mut native as &mut dyn Training, &mut given, &mut burn] {
                trainer.step().expect("a step");
            }
        }
        let after = native.parameters().expect("parameters");
        assert!(given.parameters().expect("parameters") == after, "given gradients move other rows");
        assert!(given.optimizer_state().expect("a state") == native.optimizer_state().expect("a state"));
        assert_close("three steps", &after, &burn.parameters().expect("parameters"), 1e-4);
        let table = |all: &[morphgl_registry::NamedTensor]| {
            all.iter().find(|p| p.name == "emb_dict.author.weight").expect("a table").values.clone()
        };
        let [before, after] = [&before, &after].map(|all| table(all));
        let same = |author: usize| before[author * 24..(author + 1) * 24] == after[author * 24..(author + 1) * 24];
        // Authors come after 500 papers.
        assert!((0..400).all(|author| seen[500 + author] || same(author)));
        assert!((0..400).filter(|&author| !same(author)).count() > 50);
    }
}

/// Loss and gradients of one mini-batch.
fn gradients(model: &Value, threads: usize, batch: &HostBatch) -> (f64, Vec<morphgl_registry::NamedTensor>) {
    let mut native = CpuNative::new(&context(model, &dataset_of(model), threads)).expect("the operator is built");
    let (score, _) = native.accumulate(&host(batch.clone())).and_then(|h| h.wait()).expect("a score");
    (score.loss_sum, native.gradients().expect("gradients").tensors)
}

#[test]
fn threads_change_no_bit() {
    for kind in KINDS {
        for more in [json!({"hidden": 16}), json!({"hidden": 132, "layers": 2}), json!({"hidden": 8, "layers": 1})] {
            let nodes = &[5_000, 1_500, 400, 90][..=more["layers"].as_u64().unwrap_or(3) as usize];
            let model = typed_model(kind, 33, 6, more);
            let batch = typed_batch(nodes, (33, 6), (Dtype::F32, false), 9);
            let one = gradients(&model, 1, &batch);
            let by_type = model_by_type(kind, json!({"layers": nodes.len() - 1}));
            let without = HostBatch { features: None, ..batch.clone() };
            let one_by_type = gradients(&by_type, 1, &without);
            let mut with_edges = model.clone();
            with_edges["edge_widths"] = json!(EDGE_WIDTHS);
            let mut of_edges = batch.clone();
            add_edge_ids(&mut of_edges, 9);
            let one_of_edges = (kind == "rgat").then(|| gradients(&with_edges, 1, &of_edges));
            for threads in 2..5 {
                assert!(gradients(&by_type, threads, &without) == one_by_type, "{kind}: {threads} threads, by type");
                if let Some(one) = &one_of_edges {
                    assert!(gradients(&with_edges, threads, &of_edges) == *one, "{threads} threads, features of edges");
                }
                assert!(
                    gradients(&model, threads, &batch) == one,
                    "{kind}: {threads} threads give other bits than one"
                );
            }
        }
    }
}

/// The first layer reads the rows of the dataset where the mini-batch has none.
#[test]
fn store_rows_are_those_of_the_mini_batch() {
    for kind in KINDS {
        for input_dropout in [0.0, 0.3] {
            let model = typed_model(kind, 33, 6, json!({"hidden": 16, "input_dropout": input_dropout}));
            let mut batch = typed_batch(&NODES, (33, 6), (Dtype::F32, false), 4);
            let dataset = dataset(33, 6);
            let features = batch.features.as_mut().expect("features");
            let bytes = features.resize(batch.input_nodes.len(), 33, Dtype::F32);
            dataset.features.as_ref().expect("features").gather_rows(&batch.input_nodes, bytes);
            let gathered = gradients(&model, 2, &batch);
            assert!(gradients(&model, 3, &HostBatch { features: None, ..batch }) == gathered, "{kind}");
        }
    }
}

#[test]
fn inference_agrees_with_burn() {
    for kind in KINDS {
        let models = [typed_model(kind, 33, 6, json!({"hidden": 16})), model_by_type(kind, json!({"hidden": 16}))];
        let with_edges = (kind == "rgat").then(|| model_with_edges(json!({"hidden": 16, "heads": 2})));
        for model in models.into_iter().chain(with_edges) {
            let dataset = dataset_of(&model);
            let nodes: Vec<u32> = (0..dataset.num_nodes() as u32).rev().collect();
            let mut native = CpuNative::new(&context(&model, &dataset, 3)).expect("the operator is built");
            let mut burn = CpuBurn::new(&context(&model, &dataset, 3)).expect("burn's operator is built");
            let tensor = |values: Vec<f32>| morphgl_registry::NamedTensor {
                name: "logits".to_string(),
                shape: vec![nodes.len(), 6],
                values,
            };
            let [found, expected] =
                [native.infer(&nodes), burn.infer(&nodes)].map(|logits| [tensor(logits.expect("logits"))]);
            assert_close(kind, &found, &expected, 1e-5);
        }
    }
}

#[test]
fn wrong_types_are_refused() {
    let model = typed_model("rsage", 8, 3, json!({"layers": 1}));
    let dataset = Arc::new(dataset(8, 3));
    let mut native = CpuNative::new(&context(&model, &dataset, 1)).expect("the operator is built");
    let batch = || typed_batch(&[9, 4], (8, 3), (Dtype::F32, false), 1);
    let mut refused = |batch: HostBatch, expected: &str| {
        let error = native.accumulate(&host(batch)).expect_err("refused").to_string();
        assert!(error.contains(expected), "{error}");
    };
    let mut unknown_type = batch();
    unknown_type.blocks[0].edge_types.as_mut().expect("types").iter_mut().for_each(|edge_type| *edge_type = 6);
    refused(unknown_type, "an edge of type 6, there are 6");
    let mut unknown_node = batch();
    unknown_node.input_nodes[8] = 1000;
    refused(unknown_node, "node 1000 is not in the graph");
    let mut short = batch();
    short.input_nodes.pop();
    refused(short, "it has 8 input nodes, its blocks read 9");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Any sizes, with blocks of no destination and groups of one row.
    #[test]
    fn random_blocks_agree_with_burn(
        kind in prop::sample::select(&KINDS[..]),
        sources in 1usize..300,
        share in 0usize..=100,
        dim in 1usize..40,
        classes in 2usize..9,
        hidden in 1usize..20,
        importance in any::<bool>(),
    ) {
        let middle = (sources * share / 100).max(1);
        let nodes = [sources, middle, (middle * share / 100).max(1)];
        let model = typed_model(kind, dim, classes, json!({"layers": 2, "hidden": 2 * hidden, "heads": 2, "activation": "elu"}));
        check(&model, &nodes, Dtype::F32, importance && kind != "rgat");
    }
}

/// The derivative of the loss by each parameter along the gradient.
#[test]
fn gradients_are_derivatives_of_the_loss() {
    for (kind, more) in [
        ("rgcn", json!({})),
        ("rgcn", json!({"bases": 2})),
        ("rgcn", json!({"diagonal_blocks": 2})),
        ("rsage", json!({})),
        ("rgat", json!({"heads": 2, "output_heads": 3})),
        ("rgat", json!({"heads": 2, "output_heads": 3, "edge_widths": EDGE_WIDTHS})),
    ] {
        let mut model = typed_model(kind, 12, 4, more);
        model["hidden"] = json!(8);
        model["dropout"] = json!(0.0);
        model["activation"] = json!("elu");
        let mut native = CpuNative::new(&context(&model, &dataset_of(&model), 2)).expect("the operator is built");
        let mut batch = typed_batch(&[60, 40, 30, 20], (12, 4), (Dtype::F32, false), 2);
        if model.get("edge_widths").is_some() {
            add_edge_ids(&mut batch, 2);
        }
        assert_derivatives(kind, &mut native, &host(batch));
    }
}

/// Asserts that the gradient of each parameter is the derivative of the loss along it.
#[track_caller]
fn assert_derivatives(what: &str, native: &mut CpuNative, batch: &MiniBatch) {
    native.accumulate(batch).expect("accumulated");
    let gradients = native.gradients().expect("gradients").tensors;
    let parameters = native.parameters().expect("parameters");
    for (at, gradient) in gradients.iter().enumerate() {
        let squares: f64 = gradient.values.iter().map(|&g| f64::from(g).powi(2)).sum();
        if squares < 1e-6 {
            continue;
        }
        let step = 1e-2 / squares.sqrt();
        let mut loss = |sign: f64| {
            let mut moved = parameters.clone();
            let values = moved[at].values.iter_mut().zip(&gradient.values);
            values.for_each(|(p, &g)| *p += (sign * step * f64::from(g)) as f32);
            native.set_parameters(&moved).expect("parameters are set");
            native.score(batch).and_then(|h| h.wait()).expect("a score").0.loss_sum
        };
        let slope = (loss(1.0) - loss(-1.0)) / (2.0 * step);
        let name = &gradient.name;
        // The logits are rounded to f32, and scores of attention cross the kink of the leaky ReLU.
        let tolerance = 2e-2 * squares + 1e-2 * squares.sqrt();
        assert!((slope - squares).abs() <= tolerance, "{what}, {name}: slope {slope}, gradient {squares}");
    }
    native.set_parameters(&parameters).expect("parameters are set");
}
