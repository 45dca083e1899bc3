//! Typed models: the same numbers as Training_CPU_Burn.

use std::sync::Arc;

use crate::blocks::{WIDTHS, dataset, dataset_by_type, typed_batch, types};
use crate::common::agreement::{close, step};
use crate::common::{context, model, place, transfer};
use morphgl_conformance::available;
use morphgl_graph_store::{Dataset, Dtype, EdgeType, NodeType, Topology, Types};
use morphgl_registry::{HostBatch, MiniBatch, ModelState, NamedTensor, Place, Training};
use morphgl_training_cpu_burn::CpuBurn;
use morphgl_training_cuda_native::{CudaNative, DESCRIPTION};
use serde_json::{Value, json};

const NODES: [usize; 4] = [390, 270, 130, 61];

fn typed_model(kind: &str, dim: usize, classes: usize, more: Value) -> Value {
    let mut model = model(kind, dim, classes, more);
    model["types"] = serde_json::to_value(types()).expect("JSON");
    model
}

/// The operator and burn's, of the same model.
fn pair(model: &Value, dataset: &Arc<Dataset>) -> (CudaNative, CpuBurn) {
    let native = CudaNative::new(&context(model, place(), Arc::clone(dataset))).expect("the operator is built");
    let burn = CpuBurn::new(&context(model, Place::Host, Arc::clone(dataset))).expect("burn's operator is built");
    (native, burn)
}

fn check(model: &Value, nodes: &[usize], dtype: Dtype, importance: bool) {
    let size = |name: &str| model[name].as_u64().expect("a size") as usize;
    let sizes = (size("in_dim"), size("num_classes"));
    let by_type = model.get("input_widths").is_some();
    let dataset = if by_type { dataset_by_type(sizes.1) } else { dataset(sizes.0, sizes.1) };
    let (mut native, mut burn) = pair(model, &Arc::new(dataset));
    let what = format!("{model}, {nodes:?}, {dtype}, importance {importance}");
    for seed in 0..2 {
        let mut batch = typed_batch(nodes, sizes, (dtype, importance), seed);
        batch.features = batch.features.filter(|_| !by_type);
        step(&what, (model, batch), (&mut native, &mut burn));
    }
}

const MODELS: [(&str, &str); 4] =
    [("rsage", "{}"), ("rgcn", "{}"), ("rgcn", r#"{"bases": 3}"#), ("rgat", r#"{"output_heads": 3}"#)];

fn fields(text: &str, more: Value) -> Value {
    let mut fields: Value = serde_json::from_str(text).expect("JSON");
    fields.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    fields
}

#[test]
fn models_agree_with_burn() {
    if !available(&DESCRIPTION) {
        return;
    }
    for (kind, text) in MODELS {
        for (dim, hidden, classes, dropout, heads) in [(20, 24, 5, 0.5, 2), (7, 33, 40, 0.0, 3), (130, 8, 3, 0.5, 1)] {
            let more = fields(text, json!({"hidden": hidden, "dropout": dropout, "heads": heads}));
            check(&typed_model(kind, dim, classes, more), &NODES, Dtype::F32, false);
        }
    }
}

#[test]
fn options_agree_with_burn() {
    if !available(&DESCRIPTION) {
        return;
    }
    for (kind, text) in MODELS {
        for (more, dtype) in [
            (json!({"hidden": 32, "activation": "elu", "residual": true}), Dtype::F16),
            (json!({"hidden": 32, "input_dropout": 0.3, "normalization": "layer"}), Dtype::Bf16),
            (json!({"hidden": 16, "normalization": "batch"}), Dtype::F32),
            (json!({"layers": 1}), Dtype::U8),
        ] {
            let nodes = if more.get("layers").is_some() { &NODES[2..] } else { &NODES };
            check(&typed_model(kind, 40, 6, fields(text, more)), nodes, dtype, kind != "rgat");
        }
        check(&typed_model(kind, 40, 6, fields(text, json!({"layers": 2}))), &[5, 3, 1], Dtype::F32, false);
    }
}

/// A graph of one node type and 300 edge types, more than a digit of a sort tells apart; few of them have an edge.
#[test]
fn many_edge_types_agree_with_burn() {
    if !available(&DESCRIPTION) {
        return;
    }
    let (nodes, kinds, dim) = (90u32, 300u32, 5);
    let edge_type = |name: u32| EdgeType { source: "node".into(), name: name.to_string(), target: "node".into() };
    let types =
        Types::new(vec![NodeType { name: "node".into(), count: nodes.into() }], (0..kinds).map(edge_type).collect());
    let types = types.expect("types");
    let (mut indptr, mut indices, mut of_edges) = (vec![0], Vec::new(), Vec::new());
    for node in 0..nodes {
        let mut row: Vec<u16> = (0..node % 9).map(|i| ((node * 37 + i * 101) % kinds) as u16).collect();
        row.sort_unstable();
        indices.extend((0..row.len() as u32).map(|i| (node * 7 + i * 13) % nodes));
        of_edges.extend(row);
        indptr.push(indices.len() as u64);
    }
    let topology = Topology::new(indptr, indices, None).expect("a graph").with_types(types.clone(), of_edges);
    let features = dataset(dim, 3).features;
    let dataset = Dataset { features, num_classes: 3, ..Dataset::new("relations", topology.expect("types")) };
    let seeds: Vec<u32> = (20..50).collect();
    let dataset =
        Dataset { labels: Some((0..nodes as i32).map(|node| node % 3).collect::<Vec<_>>().into()), ..dataset };
    for (kind, text) in MODELS {
        let mut model = model(kind, dim, 3, fields(text, json!({"layers": 2, "hidden": 4})));
        model["types"] = serde_json::to_value(&types).expect("JSON");
        let (mut native, mut burn) = pair(&model, &Arc::new(dataset.clone()));
        let batch = morphgl_conformance::training::batch(&dataset, &seeds, 2, 0);
        step(kind, (&model, batch), (&mut native, &mut burn));
    }
}

/// A model with inputs per node type.
fn model_by_type(kind: &str, classes: usize, more: Value) -> Value {
    let mut model = typed_model(kind, 22, classes, more);
    model["input_widths"] = json!(WIDTHS);
    model
}

/// Projections of f32 and of f16, and learned embeddings, of which one is read by several input rows.
#[test]
fn inputs_per_node_type_agree_with_burn() {
    if !available(&DESCRIPTION) {
        return;
    }
    for kind in ["rsage", "rgcn", "rgat", "sage", "gcn", "gat", "gin"] {
        for more in [
            json!({"hidden": 32, "dropout": 0.0}),
            json!({"hidden": 24, "input_dropout": 0.3, "activation": "elu"}),
            json!({"layers": 1}),
        ] {
            let nodes = if more.get("layers").is_some() { &NODES[2..] } else { &NODES };
            check(&model_by_type(kind, 6, more), nodes, Dtype::F32, false);
        }
    }
    check(&model_by_type("mlp", 6, json!({"input_dropout": 0.2})), &NODES[3..], Dtype::F32, false);
}

/// Of tables of embeddings, a step moves the rows that have a gradient, by every rule.
#[test]
fn rows_without_a_gradient_stay() {
    if !available(&DESCRIPTION) {
        return;
    }
    let model = model_by_type("rsage", 6, json!({"hidden": 24, "dropout": 0.0}));
    for optimizer in [
        json!({"kind": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
        json!({"kind": "adamw", "lr": 0.01, "eps": 0.01, "weight_decay": 0.1}),
        json!({"kind": "sgd", "lr": 0.1, "clip_norm": 0.5}),
    ] {
        let dataset = Arc::new(dataset_by_type(6));
        let of = |place| {
            let mut context = context(&model, place, Arc::clone(&dataset));
            context.spec["optimizer"] = optimizer.clone();
            context
        };
        let mut native = CudaNative::new(&of(place())).expect("the operator is built");
        let mut burn = CpuBurn::new(&of(Place::Host)).expect("burn's operator is built");
        let before = native.parameters().expect("parameters");
        let mut seen = vec![false; 1000];
        for seed in 0..3 {
            // Two mini-batches a step.
            for part in 0..2 {
                let batch = typed_batch(&[60, 40, 20, 10], (22, 6), (Dtype::F32, false), 2 * seed + part);
                let batch = HostBatch { features: None, ..batch };
                batch.input_nodes.iter().for_each(|&node| seen[node as usize] = true);
                native.accumulate(&transfer(batch.clone())).and_then(|h| h.wait()).expect("accumulated");
                burn.accumulate(&MiniBatch::Host(batch)).and_then(|h| h.wait()).expect("accumulated");
            }
            native.step().and_then(|h| h.wait()).expect("a step");
            burn.step().and_then(|h| h.wait()).expect("a step");
        }
        let after = native.parameters().expect("parameters");
        close("three steps", &after, &burn.parameters().expect("parameters"), 1e-4);
        let table = |all: &[NamedTensor]| {
            all.iter().find(|p| p.name == "emb_dict.author.weight").expect("a table").values.clone()
        };
        let [before, after] = [&before, &after].map(|all| table(all));
        let same = |author: usize| before[author * 22..(author + 1) * 22] == after[author * 22..(author + 1) * 22];
        // Authors come after 500 papers.
        assert!((0..400).all(|author| seen[500 + author] || same(author)), "{optimizer}");
        assert!((0..400).filter(|&author| !same(author)).count() > 50, "{optimizer}");
    }
}

#[test]
fn inference_agrees_with_burn() {
    if !available(&DESCRIPTION) {
        return;
    }
    let of = |(kind, text): (&'static str, &str)| {
        [json!({"hidden": 16, "layers": 2}), json!({"hidden": 16})].map(|more| (kind, fields(text, more)))
    };
    for (kind, more) in MODELS.into_iter().flat_map(of).chain([("gat", json!({"hidden": 16, "layers": 2}))]) {
        let by_type = more.get("layers").is_some();
        let model = if by_type { model_by_type(kind, 6, more) } else { typed_model(kind, 33, 6, more) };
        let dataset = Arc::new(if by_type { dataset_by_type(6) } else { dataset(33, 6) });
        let (mut native, mut burn) = pair(&model, &dataset);
        let nodes: Vec<u32> = (0..dataset.num_nodes() as u32).rev().collect();
        let tensor = |values: Vec<f32>| NamedTensor { name: "logits".into(), shape: vec![nodes.len(), 6], values };
        let found = [tensor(native.infer(&nodes).expect("logits"))];
        close(kind, &found, &[tensor(burn.infer(&nodes).expect("logits"))], 1e-5);
    }
}

/// A mini-batch that names what the graph does not have is refused, and the next one trained.
#[test]
fn wrong_types_are_refused() {
    if !available(&DESCRIPTION) {
        return;
    }
    let model = typed_model("rsage", 8, 3, json!({"layers": 1}));
    let (mut native, mut burn) = pair(&model, &Arc::new(dataset(8, 3)));
    let batch = || typed_batch(&[9, 4], (8, 3), (Dtype::F32, false), 1);
    let mut refused = |batch: HostBatch, expected: &str| {
        let error = native.accumulate(&transfer(batch)).and_then(|h| h.wait()).expect_err("refused").to_string();
        assert!(error.contains(expected), "{error}");
    };
    let mut unknown_type = batch();
    unknown_type.blocks[0].edge_types.as_mut().expect("types").iter_mut().for_each(|edge_type| *edge_type = 6);
    refused(unknown_type, "an edge of a type or a node that the graph does not have");
    let mut unknown_node = batch();
    unknown_node.input_nodes[3] = 1000;
    refused(unknown_node, "an edge of a type or a node that the graph does not have");
    let mut short = batch();
    short.input_nodes.pop();
    refused(short, "it has 8 input nodes, its blocks read 9");
    let mut few = batch();
    few.blocks[0].edge_types.as_mut().expect("types").pop();
    refused(few, "--sampler typed");
    step("the next one", (&model, batch()), (&mut native, &mut burn));
}
