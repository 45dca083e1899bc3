//! Models and losses that crates submit, in specs and model files.

use morphgl_graph_store::Schema;
use morphgl_model_core::{
    Init, LossDescription, LossKind, ModelDescription, ModelKind, ModelSpec, TrainingSpec, initial_parameters,
    load_model, refuse_submitted, save_model,
};
use morphgl_registry::{OptionSpec, OptionType};
use serde_json::{Value, json};

const SCALES: OptionSpec = OptionSpec::new("scales", OptionType::Count, "2", "number of scales");
const MODEL: ModelDescription = ModelDescription::new("scaled", "a model of this test", |settings, shape, list| {
    list.linear("lin", shape.out_dim, shape.in_dim);
    list.push("scales", &[settings.number("scales") as usize], Init::Constant(1.0));
})
.with_settings(&[SCALES], |settings| match settings.number("scales") {
    0.0 => Err("scales is 0; give at least 1".to_string()),
    _ => Ok(()),
});
const LOSS: LossDescription = LossDescription::new("squared", "a loss of this test");

inventory::submit! { MODEL }
inventory::submit! { LOSS }

fn read(model: Value) -> Result<ModelSpec, String> {
    let spec = TrainingSpec::from_json(&json!({ "model": model })).map_err(|e| e.to_string())?;
    Ok(spec.model)
}

#[test]
fn a_spec_names_them() {
    let model = json!({"kind": "scaled", "in_dim": 3, "num_classes": 2, "layers": 1, "settings": {"scales": 5}, "loss": "squared"});
    let spec = read(model).expect("both are linked");
    assert_eq!((spec.kind, spec.loss), (ModelKind::Submitted(&MODEL), LossKind::Submitted(&LOSS)));
    let parameters: Vec<_> = spec.parameters().into_iter().map(|p| (p.name, p.shape)).collect();
    let named = |name: &str, shape: &[usize]| (format!("convs.0.{name}"), shape.to_vec());
    assert_eq!(parameters, [named("lin.weight", &[2, 3]), named("lin.bias", &[2]), named("scales", &[5])]);
    let written = serde_json::to_value(&spec).expect("JSON");
    assert_eq!((&written["kind"], &written["loss"]), (&json!("scaled"), &json!("squared")));
    assert_eq!(read(written), Ok(spec.clone()));
    assert_eq!(spec.loss_title(), "squared loss");
    assert!(refuse_submitted(&spec).expect_err("it is submitted").to_string().starts_with("the model scaled: "));
    let sage = ModelSpec { kind: ModelKind::Sage, settings: Default::default(), ..spec };
    assert!(refuse_submitted(&sage).expect_err("its loss is").to_string().starts_with("the loss squared: "));
    assert!(refuse_submitted(&ModelSpec::new(ModelKind::Sage, 3, 2)).is_ok());
}

/// Specs of versions without submissions are read, and those that need none are written as they were.
#[test]
fn built_in_models_keep_their_form() {
    for (kind, name) in
        ModelKind::ALL.into_iter().zip(["gcn", "sage", "gat", "gin", "mlp", "rgcn", "rsage", "rgat", "hgt"])
    {
        let spec = ModelSpec::new(kind, 3, 2);
        let written = serde_json::to_value(&spec).expect("JSON");
        let fields: Vec<&str> = written.as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!((written["kind"].as_str(), fields.len()), (Some(name), 17), "{fields:?}");
        assert_eq!(read(written), Ok(spec));
    }
    assert_eq!("custom".parse::<ModelKind>().expect("a kind"), ModelKind::Custom);
}

#[test]
fn what_is_wrong_is_named() {
    let refused = |fields: Value, words: &str| {
        let mut model = json!({"in_dim": 3, "num_classes": 2});
        model.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
        let error = read(model).expect_err("it is wrong");
        assert!(error.contains(words), "{error}, expected {words}");
    };
    refused(
        json!({"kind": "scale"}),
        "\"scale\": not a kind of model; use one of gcn, sage, gat, gin, mlp, rgcn, rsage, rgat, hgt, embedding, custom, scaled",
    );
    refused(
        json!({"kind": "gcn", "loss": "cubed"}),
        "\"cubed\": not a loss; use one of cross-entropy, bce, mse, mae, huber, bpr, margin, squared",
    );
    refused(json!({"kind": "gcn", "settings": {"scales": 1}}), "model.settings: \"scales\" is none of its options");
    refused(json!({"kind": "scaled", "settings": {"scale": 1}}), "did you mean \"scales\"");
    refused(json!({"kind": "scaled", "settings": {"scales": "many"}}), "give whole number");
    refused(json!({"kind": "scaled", "settings": {"scales": 0}}), "model.settings: scales is 0; give at least 1");
    refused(json!({"kind": "gcn", "loss": "squared", "loss_settings": {"p": 1}}), "model.loss_settings: \"p\"");
    refused(json!({"kind": "custom", "loss": "squared"}), "model.loss: a custom model has a loss of its own");
    refused(
        json!({"kind": "custom", "task": "link", "loss": "bpr", "decoder": "mlp"}),
        "model.decoder: a custom model has a decoder",
    );
    refused(json!({"kind": "custom", "task": "link", "loss": "mse"}), "mse is no loss of the task link");
    refused(json!({"kind": "custom", "settings": {"losses": "mine"}}), "did you mean \"loss\"");
}

#[test]
fn a_custom_model_has_every_task_and_says_what_its_own_loss_is_called() {
    let spec = |spec: Value| serde_json::from_value::<ModelSpec>(spec).expect("a spec");
    for (task, loss) in [("classify", "cross-entropy"), ("multilabel", "bce"), ("regress", "huber"), ("link", "margin")]
    {
        let own = spec(json!({"kind": "custom", "in_dim": 3, "num_classes": 2, "task": task, "loss": loss}));
        own.validate().unwrap_or_else(|e| panic!("{task}: {e}"));
        assert_eq!(own.loss_title(), "");
        let named = ModelSpec { settings: [("loss".to_string(), json!("tilted"))].into_iter().collect(), ..own };
        named.validate().unwrap_or_else(|e| panic!("{task}: {e}"));
        assert_eq!(named.loss_title(), "tilted");
    }
}

#[test]
fn a_model_file_has_the_settings_and_the_loss() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("model.safetensors");
    let settings = json!({"scales": 3}).as_object().expect("an object").clone();
    let new = ModelSpec::new(ModelKind::Submitted(&MODEL), 3, 2);
    let spec = ModelSpec { hidden: 4, layers: 2, settings, loss: LossKind::Submitted(&LOSS), ..new };
    let parameters = initial_parameters(&spec, 1);
    save_model(&path, &spec, &Schema::default(), &parameters).expect("it is saved");
    assert_eq!(load_model(&path).expect("it is read"), (spec.clone(), parameters.clone()));
    let missing = save_model(&path, &spec, &Schema::default(), &parameters[1..]).expect_err("one is missing");
    assert!(missing.to_string().contains("convs.0.lin.weight is missing"), "{missing}");
}
