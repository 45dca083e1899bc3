//! Agreement with Training_CPU_Burn: loss, gradients, a step, and the exchange of parameters and optimizer state.

mod common;

use common::agreement::assert_step;
use common::{batch, context, host, model};
use morphgl_graph_store::Dtype;
use morphgl_platform::SimdLevel;
use morphgl_registry::ModelState;
use morphgl_training_cpu_burn::CpuBurn;
use morphgl_training_cpu_native::CpuNative;
use serde_json::{Value, json};

/// Checks the operator on vector registers and, where the processor has them and the model is wide, on AMX tiles.
fn check(model: &Value, nodes: &[usize], dtype: Dtype, weighted: bool) {
    let context = context(model, 3);
    check_one(CpuNative::new(&context).expect("the native operator is built"), model, nodes, dtype, weighted);
    if let Ok(on_tiles) = CpuNative::on_tiles(&context) {
        check_one(on_tiles, model, nodes, dtype, weighted);
    }
}

fn check_one(mut native: CpuNative, model: &Value, nodes: &[usize], dtype: Dtype, weighted: bool) {
    let size = |name: &str| model[name].as_u64().expect("a size") as usize;
    let what = format!("{native:?}, {model}, {nodes:?}, {dtype}, weighted {weighted}");
    let mut burn = CpuBurn::new(&context(model, 2)).expect("burn's operator is built");
    assert_eq!(native.parameters().expect("parameters"), burn.parameters().expect("parameters"), "{what}");
    for seed in 0..2 {
        let batch = host(batch(nodes, (size("in_dim"), size("num_classes")), dtype, weighted, seed));
        assert_step(&what, &mut native, &mut burn, &batch);
    }
}

/// More rows than a task's, and no multiples of them.
const NODES: [usize; 4] = [700, 410, 230, 101];

#[test]
fn graph_models() {
    for kind in ["sage", "gcn", "gat"] {
        for (dim, hidden, classes) in [(20, 24, 5), (100, 8, 7), (7, 68, 40), (130, 64, 3)] {
            for dropout in [0.0, 0.5] {
                let model = model(kind, dim, classes, json!({"hidden": hidden, "dropout": dropout, "heads": 2}));
                check(&model, &NODES, Dtype::F32, false);
            }
        }
    }
}

#[test]
fn wide_gemms() {
    let wide = model("sage", 96, 7, json!({"hidden": 96, "layers": 2}));
    assert_eq!(CpuNative::on_tiles(&context(&wide, 1)).is_ok(), SimdLevel::current() == SimdLevel::Amx);
    for kind in ["sage", "gcn", "gat", "mlp"] {
        for (dim, hidden, classes) in [(100, 130, 7), (128, 256, 100)] {
            // ELU, not ReLU: of many elements, one is so near 0 that ReLU may differ between the operators.
            let model = model(kind, dim, classes, json!({"hidden": hidden, "activation": "elu", "heads": 1}));
            check(&model, if kind == "mlp" { &NODES[3..] } else { &NODES }, Dtype::F32, false);
        }
    }
}

/// Blocks have almost as many destinations as sources, so narrow layers transform first.
#[test]
fn transform_first() {
    for kind in ["sage", "gcn"] {
        for (hidden, classes) in [(200, 3), (8, 5)] {
            for dtype in [Dtype::F32, Dtype::Bf16] {
                // ELU, not ReLU: one pre-activation of the wide layer is so near 0 that rounding at the portable level flips
                // its sign, and with it ReLU's gradient.
                let options = json!({"hidden": hidden, "input_dropout": 0.0, "activation": "elu"});
                check(&model(kind, 200, classes, options), &[300, 290, 280, 270], dtype, true);
            }
        }
    }
}

#[test]
fn element_types_and_weights() {
    for kind in ["sage", "gcn", "gat"] {
        for (dim, hidden) in [(33, 48), (128, 16)] {
            for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::U8] {
                let model = model(kind, dim, 6, json!({"hidden": hidden, "input_dropout": 0.0}));
                check(&model, &NODES, dtype, kind != "gat");
            }
        }
    }
}

#[test]
fn options() {
    for kind in ["sage", "gcn", "gat"] {
        for more in [
            json!({"hidden": 32, "activation": "elu"}),
            json!({"hidden": 32, "input_dropout": 0.3}),
            json!({"hidden": 32, "input_dropout": 0.3, "activation": "elu", "dropout": 0.0}),
        ] {
            check(&model(kind, 40, 6, more), &NODES, Dtype::F16, false);
        }
        check(&model(kind, 40, 6, json!({"layers": 1})), &NODES[2..], Dtype::F32, false);
        check(&model(kind, 40, 6, json!({"layers": 2})), &[5, 3, 1], Dtype::F32, false);
    }
    for more in [
        json!({"output_heads": 3}),
        json!({"attention_dropout": 0.4}),
        json!({"attention_dropout": 0.4, "heads": 3, "hidden": 33}),
    ] {
        check(&model("gat", 40, 6, more), &NODES, Dtype::F32, false);
    }
    for (more, dtype) in [(json!({}), Dtype::F32), (json!({"activation": "elu", "input_dropout": 0.2}), Dtype::Bf16)] {
        check(&model("mlp", 40, 6, more), &NODES[3..], dtype, false);
    }
}
