//! Names and shapes, validation, files.

use std::path::Path;

use morphgl_graph_store::Schema;
use morphgl_model_core::{
    Attention, ModelFile, ModelKind, ModelSpec, Normalization, OptimizerSpec, OptimizerStep, Steps, Task, TrainingSpec,
    initial_parameters, load_model, load_parameters, save_model,
};
use morphgl_registry::NamedTensor;
use proptest::prelude::*;

#[track_caller]
fn check(spec: &ModelSpec, expected: &[(&str, &[usize])]) {
    let actual: Vec<_> = spec.parameters().into_iter().map(|p| (p.name, p.shape)).collect();
    let expected: Vec<_> = expected.iter().map(|(name, shape)| (name.to_string(), shape.to_vec())).collect();
    assert_eq!(actual, expected);
}

fn two_layers(kind: ModelKind) -> ModelSpec {
    ModelSpec { layers: 2, hidden: 8, heads: 2, ..ModelSpec::new(kind, 5, 3) }
}

/// The `state_dict` of PyG 2.6's GraphSAGE, GCN, GAT, GIN and MLP.
#[test]
fn names_and_shapes_are_pygs() {
    check(
        &two_layers(ModelKind::Sage),
        &[
            ("convs.0.lin_l.weight", &[8, 5]),
            ("convs.0.lin_l.bias", &[8]),
            ("convs.0.lin_r.weight", &[8, 5]),
            ("convs.1.lin_l.weight", &[3, 8]),
            ("convs.1.lin_l.bias", &[3]),
            ("convs.1.lin_r.weight", &[3, 8]),
        ],
    );
    check(
        &ModelSpec { normalization: Normalization::Batch, ..two_layers(ModelKind::Gcn) },
        &[
            ("convs.0.bias", &[8]),
            ("convs.0.lin.weight", &[8, 5]),
            ("convs.1.bias", &[3]),
            ("convs.1.lin.weight", &[3, 8]),
            ("norms.0.module.weight", &[8]),
            ("norms.0.module.bias", &[8]),
            ("norms.0.module.running_mean", &[8]),
            ("norms.0.module.running_var", &[8]),
        ],
    );
    check(
        &ModelSpec { output_heads: 4, ..two_layers(ModelKind::Gat) },
        &[
            ("convs.0.att_src", &[1, 2, 4]),
            ("convs.0.att_dst", &[1, 2, 4]),
            ("convs.0.bias", &[8]),
            ("convs.0.lin.weight", &[8, 5]),
            ("convs.1.att_src", &[1, 4, 3]),
            ("convs.1.att_dst", &[1, 4, 3]),
            ("convs.1.bias", &[3]),
            ("convs.1.lin.weight", &[12, 8]),
        ],
    );
    check(
        &ModelSpec { layers: 1, attention: Attention::Gatv2, ..two_layers(ModelKind::Gat) },
        &[
            ("convs.0.att", &[1, 1, 3]),
            ("convs.0.bias", &[3]),
            ("convs.0.lin_l.weight", &[3, 5]),
            ("convs.0.lin_l.bias", &[3]),
            ("convs.0.lin_r.weight", &[3, 5]),
            ("convs.0.lin_r.bias", &[3]),
        ],
    );
    check(
        &ModelSpec { layers: 1, ..two_layers(ModelKind::Gin) },
        &[
            ("convs.0.eps", &[1]),
            ("convs.0.nn.lins.0.weight", &[3, 5]),
            ("convs.0.nn.lins.0.bias", &[3]),
            ("convs.0.nn.lins.1.weight", &[3, 3]),
            ("convs.0.nn.lins.1.bias", &[3]),
        ],
    );
    check(
        &ModelSpec { normalization: Normalization::Layer, ..two_layers(ModelKind::Mlp) },
        &[
            ("lins.0.weight", &[8, 5]),
            ("lins.0.bias", &[8]),
            ("lins.1.weight", &[3, 8]),
            ("lins.1.bias", &[3]),
            ("norms.0.weight", &[8]),
            ("norms.0.bias", &[8]),
        ],
    );
}

#[test]
fn errors_of_invalid_specs_name_field_and_cure() {
    let good = two_layers(ModelKind::Gat);
    let cases = [
        (ModelSpec { layers: 0, ..good.clone() }, "model.layers: it is 0; give at least one layer"),
        (ModelSpec { hidden: 9, ..good.clone() }, "use a width of 10"),
        (ModelSpec { dropout: 1.0, ..good.clone() }, "model.dropout: 1 is not a share"),
        (ModelSpec { dropout: f32::NAN, ..good.clone() }, "model.dropout: NaN is not a share"),
        (ModelSpec { kind: ModelKind::Gcn, attention_dropout: 0.5, ..good.clone() }, "a gcn drops no attention"),
        (ModelSpec { l2_normalize: true, ..good.clone() }, "model.l2_normalize"),
        (ModelSpec { kind: ModelKind::Sage, self_loops: false, ..good.clone() }, "a sage adds none"),
        (
            ModelSpec { kind: ModelKind::Embedding, ..good.clone() },
            "model.layers: it is 2, and the model embedding has no",
        ),
        (
            ModelSpec { kind: ModelKind::Embedding, layers: 1, ..good.clone() },
            "model.task: the model embedding scores pairs",
        ),
        (
            ModelSpec {
                kind: ModelKind::Embedding,
                layers: 1,
                task: Task::Link,
                loss: Task::Link.losses()[0],
                ..good.clone()
            },
            "model.num_classes: the 5 features of a node are its embedding as they are, not 3",
        ),
    ];
    for (spec, part) in cases {
        let error = spec.validate().expect_err("an invalid spec").to_string();
        assert!(error.contains(part), "{error}");
    }
    assert!(good.validate().is_ok());
    let error = TrainingSpec::from_json(
        &serde_json::json!({"model": {"kind": "gcn", "in_dim": 1, "num_classes": 2, "depth": 3}}),
    );
    assert!(error.expect_err("an unknown field").to_string().contains("unknown field `depth`"));
    for (field, value) in [("lr", -1.0), ("beta1", 1.0), ("eps", 0.0), ("weight_decay", -0.1)] {
        let json = serde_json::json!({
            "model": {"kind": "gcn", "in_dim": 1, "num_classes": 2}, "optimizer": {field: value}
        });
        let error = TrainingSpec::from_json(&json).expect_err("an invalid optimizer").to_string();
        assert!(error.starts_with(&format!("optimizer.{field}: ")), "{error}");
    }
}

#[test]
fn specs_survive_json() {
    let spec = TrainingSpec { model: two_layers(ModelKind::Gat), optimizer: OptimizerSpec::default() };
    assert_eq!(TrainingSpec::from_json(&spec.to_json()).expect("its own JSON"), spec);
}

fn steps(done: u64) -> Steps {
    Steps { done, reductions: 0 }
}

/// With a constant gradient, Adam moves a parameter by the learning rate in each step.
#[test]
fn adam_moves_by_the_learning_rate() {
    let spec = OptimizerSpec { lr: 0.1, ..Default::default() };
    let (mut p, mut m, mut v) = ([1.0f32], [0.0f32], [0.0f32]);
    for step in 1..=3 {
        OptimizerStep::at(&spec, steps(step), true).update(&mut p, [&mut m, &mut v], &[8.0], 0.25);
        assert!((p[0] - (1.0 - 0.1 * step as f32)).abs() < 1e-6, "after step {step}: {}", p[0]);
    }
    // Decay alone is a gradient of weight_decay * parameter.
    let spec = OptimizerSpec { weight_decay: 0.5, ..spec };
    let (mut p, mut m, mut v) = ([2.0f32], [0.0f32], [0.0f32]);
    OptimizerStep::at(&spec, steps(1), true).update(&mut p, [&mut m, &mut v], &[0.0], 1.0);
    assert!((p[0] - 1.9).abs() < 1e-6 && (m[0] - 0.1).abs() < 1e-6, "{} {}", p[0], m[0]);
    OptimizerStep::at(&spec, steps(1), false).update(&mut p, [&mut [0.0], &mut [0.0]], &[0.0], 1.0);
    assert!((p[0] - 1.9).abs() < 1e-6);
}

#[test]
fn a_model_survives_its_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("model.safetensors");
    let spec = ModelSpec { normalization: Normalization::Batch, ..two_layers(ModelKind::Gat) };
    let parameters = initial_parameters(&spec, 3);
    save_model(&path, &spec, &Schema::default(), &parameters).expect("a file");
    assert_eq!(load_model(&path).expect("the file"), (spec.clone(), parameters.clone()));
    let mut sorted = parameters.clone();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(load_parameters(&path).expect("the file"), sorted);
    let names: Vec<_> =
        std::fs::read_dir(dir.path()).expect("a directory").map(|e| e.expect("an entry").file_name()).collect();
    assert_eq!(names, ["model.safetensors"], "no temporary file remains");

    let whole = std::fs::read(&path).expect("the file");
    for _ in 0..8 {
        save_model(&path, &spec, &Schema::default(), &parameters).expect("a file");
        assert_eq!(std::fs::read(&path).expect("the file"), whole, "the same model, the same bytes");
    }
    for len in [0, 4, 20, whole.len() - 1] {
        std::fs::write(&path, &whole[..len]).expect("a truncated file");
        let error = load_model(&path).expect_err("a truncated file").to_string();
        assert!(error.contains("model.safetensors") && error.contains("copy or export it again"), "{error}");
    }
    let error = load_model(&dir.path().join("none")).expect_err("no file").to_string();
    assert!(error.contains("check the path"), "{error}");
    let error = save_model(&dir.path().join("no/such/dir"), &spec, &Schema::default(), &parameters)
        .expect_err("no directory")
        .to_string();
    assert!(error.contains("check that the directory exists"), "{error}");
    let error =
        save_model(&path, &spec, &Schema::default(), &parameters[1..]).expect_err("a missing parameter").to_string();
    assert!(error.contains("convs.0.att_src is missing"), "{error}");
}

/// The bytes of a safetensors file with this header and so many bytes of tensors.
fn safetensors(header: &str, data: usize) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; data]].concat()
}

#[test]
fn a_custom_model_keeps_the_parameters_its_operator_names() {
    let spec = ModelSpec::new("custom".parse().expect("a kind"), 3, 2);
    assert!(spec.parameters().is_empty() && spec.validate().is_ok() && !ModelKind::ALL.contains(&spec.kind));
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("custom.safetensors");
    let tensor = |name: &str, values: &[f32]| NamedTensor {
        name: name.to_string(),
        shape: vec![values.len()],
        values: values.to_vec(),
    };
    let given = [tensor("a.weight", &[1.0, 2.0]), tensor("norm.running_mean", &[0.5])];
    save_model(&path, &spec, &Schema::default(), &given).expect("it is written");
    let (read, parameters) = load_model(&path).expect("it is read");
    assert_eq!((read, &parameters[..]), (spec, &given[..]));
}

#[test]
fn parameters_that_are_no_numbers_are_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("model.safetensors");
    let spec = two_layers(ModelKind::Gcn);
    for (value, text) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (f32::NEG_INFINITY, "-inf")] {
        let mut parameters = initial_parameters(&spec, 3);
        parameters[2].values[1] = value;
        save_model(&path, &spec, &Schema::default(), &parameters).expect("a file");
        let name = &parameters[2].name;
        for error in [load_model(&path).map(drop), load_parameters(&path).map(drop)] {
            let error = error.expect_err("no number").to_string();
            assert!(error.contains(&format!("element 1 of {name} is {text}; ")), "{error}");
        }
    }
    // A number that only f64 holds.
    let header = r#"{"w":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}}"#;
    let mut file = safetensors(header, 8);
    file.splice(file.len() - 8.., 1e300f64.to_le_bytes());
    std::fs::write(&path, file).expect("room");
    assert!(load_parameters(&path).expect_err("too large").to_string().contains("element 0 of w is inf"));
}

#[test]
fn headers_that_lie_are_refused_before_tensors_are_read() {
    let tensor = |name: &str, shape: &str, offsets: &str| {
        format!(r#""{name}":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}"#)
    };
    let one = |shape: &str, offsets: &str| format!("{{{}}}", tensor("w", shape, offsets));
    let two = |first: String, second: String| format!("{{{first},{second}}}");
    let mut long = safetensors("{}", 0);
    long[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    let cases = [
        ("nothing", vec![], "not a whole safetensors file"),
        ("a header without an end", long, "a header of 18446744073709551615 bytes in a file of 10"),
        ("not JSON", safetensors("{]", 0), "not a whole safetensors file"),
        ("nested", safetensors(&"[".repeat(100_000), 0), "not a whole safetensors file"),
        ("a huge shape", safetensors(&one("[4294967296,4294967296,2]", "[0,8]"), 8), "not a whole safetensors file"),
        ("offsets beyond the end", safetensors(&one("[2]", "[0,8]"), 4), "promises 8 bytes of tensors, there are 4"),
        ("bytes behind the end", safetensors(&one("[2]", "[0,8]"), 12), "promises 8 bytes of tensors, there are 12"),
        ("offsets that overflow", safetensors(&one("[2]", "[8,18446744073709551615]"), 8), "not a whole"),
        ("offsets that fall", safetensors(&one("[2]", "[8,0]"), 8), "not a whole safetensors file"),
        ("an overlap", safetensors(&two(tensor("a", "[2]", "[0,8]"), tensor("b", "[2]", "[4,12]")), 12), "not a whole"),
        (
            "a name twice",
            safetensors(&two(tensor("a", "[2]", "[0,8]"), tensor("a", "[2]", "[0,8]")), 8),
            "the tensor \"a\" is there twice",
        ),
    ];
    for (what, bytes, part) in cases {
        let len = bytes.len() as u64;
        let error = ModelFile::new(Path::new("m"), std::io::Cursor::new(bytes), len).expect_err(what).to_string();
        assert!(error.contains(part) && error.len() < 700, "{what}: {error}");
    }
    let spec = two_layers(ModelKind::Gcn);
    // A terabyte of a parameter that should have a few bytes; the file has no blocks on disk.
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("model.safetensors");
    let header = one("[274877906944]", "[0,1099511627776]").replace("\"w\"", "\"convs.0.bias\"");
    std::fs::write(&path, safetensors(&header, 0)).expect("room");
    let whole = std::fs::File::options().write(true).open(&path).expect("there");
    if whole.set_len(8 + header.len() as u64 + (1 << 40)).is_ok() {
        let error = ModelFile::open(&path).expect("a header").parameters(&spec).expect_err("huge").to_string();
        assert!(error.contains("convs.0.lin.weight is missing") || error.contains("[274877906944]"), "{error}");
    }
}

#[cfg(unix)]
#[test]
fn what_is_no_regular_file_is_not_read() {
    for path in ["/dev/zero", "/dev/null", "/"] {
        let error = load_parameters(Path::new(path)).expect_err("no file").to_string();
        assert!(error.contains("this is not a regular file"), "{error}");
    }
}

#[test]
fn specs_of_impossible_sizes_are_refused() {
    let good = two_layers(ModelKind::Gat);
    for (spec, part) in [
        (ModelSpec { layers: 1 << 40, ..good.clone() }, "model.layers: it is 1099511627776; give at most 1024"),
        (ModelSpec { hidden: usize::MAX, ..good.clone() }, "model.hidden: it is 18446744073709551615"),
        (ModelSpec { output_heads: usize::MAX, ..good.clone() }, "model.output_heads: it is"),
        (ModelSpec { in_dim: usize::MAX, ..good.clone() }, "model.in_dim: it is"),
    ] {
        let error = spec.validate().expect_err("impossible").to_string();
        assert!(error.contains(part), "{error}");
    }
    let most = ModelSpec {
        in_dim: i32::MAX as usize,
        num_classes: i32::MAX as usize,
        layers: 1,
        output_heads: 1 << 16,
        ..good
    };
    most.validate().expect("possible, if not useful");
    assert!(most.parameters().iter().any(|p| p.len() == usize::MAX), "more than can be counted");
}

proptest! {
    #[test]
    fn initial_parameters_are_within_their_bound(kind in 0usize..5, in_dim in 1usize..40, layers in 1usize..4, seed: u64) {
        let spec = ModelSpec { layers, ..two_layers(ModelKind::ALL[kind]) };
        let spec = ModelSpec { in_dim, ..spec };
        prop_assert!(spec.validate().is_ok());
        let values = initial_parameters(&spec, seed);
        prop_assert_eq!(&values, &initial_parameters(&spec, seed));
        for (p, t) in spec.parameters().iter().zip(&values) {
            prop_assert_eq!(p.len(), t.values.len());
            let bound = match p.init {
                morphgl_model_core::Init::Constant(c) => c.abs(),
                morphgl_model_core::Init::Uniform(b) => b,
            };
            prop_assert!(t.values.iter().all(|v| v.abs() <= bound));
        }
    }
}

/// As in PyG, epsilon is there and stays 0 unless it is trained; files of versions that always trained it say nothing of it.
#[test]
fn epsilon_of_gin_is_trained_on_request() {
    let trained = |spec: &ModelSpec| {
        let parameters = spec.parameters();
        let eps: Vec<bool> = parameters.iter().filter(|p| p.name.ends_with(".eps")).map(|p| p.trainable).collect();
        assert_eq!(eps.len(), 2);
        eps[0] && eps[1]
    };
    let spec = two_layers(ModelKind::Gin);
    assert!(!trained(&spec));
    assert!(trained(&ModelSpec { train_eps: true, ..spec.clone() }));
    let mut json = serde_json::to_value(&spec).expect("JSON");
    assert_eq!(serde_json::from_value::<ModelSpec>(json.clone()).expect("a spec"), spec);
    json.as_object_mut().expect("an object").remove("train_eps");
    assert!(trained(&serde_json::from_value(json).expect("a spec of old")));
}
