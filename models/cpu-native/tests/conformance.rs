//! The conformance suite of training. Models that the operator refuses are trained by the operator that its error names.

use morphgl_conformance::training::{Subject, check, reads_store};
use morphgl_model_core::TrainingSpec;
use morphgl_platform::SimdLevel;
use morphgl_registry::{Registry, Result, TrainingContext};
use morphgl_training_cpu_burn::CpuBurn;
use morphgl_training_cpu_native::{AMX_KEY, CpuNative, DESCRIPTION, KEY, supports};

type Build = fn(&TrainingContext) -> Result<CpuNative>;

fn conforms(native: Build) {
    check(&Subject {
        build: &|context| {
            // The operator refuses invalid specs itself.
            let refused = TrainingSpec::from_json(&context.spec).is_ok_and(|spec| supports(&spec).is_err());
            if refused { Ok(Box::new(CpuBurn::new(context)?)) } else { Ok(Box::new(native(context)?)) }
        },
        takes_types: true,
        ..Subject::new(&DESCRIPTION)
    });
}

#[test]
fn conformance() {
    conforms(CpuNative::new);
}

/// Runs the suite on AMX tiles. `CpuNative::on_tiles` refuses models without a wide layer; those are trained on vector
/// registers, as above.
#[test]
fn conformance_on_tiles() {
    if SimdLevel::current() == SimdLevel::Amx {
        conforms(|context| CpuNative::on_tiles(context).or_else(|_| CpuNative::new(context)));
    }
}

#[test]
fn tiles_are_available_where_the_level_has_them_and_taken_by_wide_models() {
    let registry = Registry::collect().expect("no key twice");
    let has_amx = SimdLevel::current() == SimdLevel::Amx;
    assert!(registry.get(&KEY).is_ok());
    assert_eq!(registry.get(&AMX_KEY).is_ok(), has_amx);
    let dataset = std::sync::Arc::new(morphgl_conformance::training::tiny());
    let model = serde_json::json!({"kind": "gcn", "in_dim": dataset.feature_dim(), "num_classes": 9, "hidden": 16});
    let spec = serde_json::json!({"model": model});
    let context = TrainingContext::new(dataset, spec);
    let error = CpuNative::on_tiles(&context).expect_err("narrow").to_string();
    assert!(error.contains(if has_amx { "a layer of at least 96" } else { "has no AMX tiles" }), "{error}");
}

#[test]
fn mini_batches_need_no_features() {
    let registry = Registry::collect().expect("no key twice");
    assert!(registry.get(&KEY).expect("it is registered").reads_store);
    reads_store(&Subject::new(&DESCRIPTION));
}

#[test]
fn unsupported_options_are_named_in_the_error() {
    let dataset = std::sync::Arc::new(morphgl_conformance::training::tiny());
    for (option, value, name) in [
        ("kind", serde_json::json!("gin"), "gin"),
        ("attention", serde_json::json!("gatv2"), "attention gatv2"),
        ("normalization", serde_json::json!("layer"), "layer normalization"),
        ("normalization", serde_json::json!("batch"), "batch normalization"),
        ("residual", serde_json::json!(true), "residual connections"),
        ("l2_normalize", serde_json::json!(true), "l2_normalize"),
    ] {
        let kind = if option == "attention" { "gat" } else { "sage" };
        let mut model = serde_json::json!({"kind": kind, "in_dim": dataset.feature_dim(), "num_classes": 9});
        model[option] = value;
        let context = TrainingContext::new(std::sync::Arc::clone(&dataset), serde_json::json!({"model": model}));
        let error = CpuNative::new(&context).expect_err("it is refused").to_string();
        let expected =
            format!("Training_CPU_Native does not do {name}; leave --training out for an operator that does");
        assert!(error.contains(&expected), "{error}");
    }
}
