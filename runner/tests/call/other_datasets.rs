//! A model used on a dataset with classes or feature columns renamed, reordered, missing or added: right by name, or refused.

use std::collections::BTreeMap;
use std::path::Path;

use morphgl::cli::Failure;
use morphgl_graph_store::{DatasetWriter, Schema};
use morphgl_model_core::{Attention, ModelKind, ModelSpec, initial_parameters, save_model};
use proptest::prelude::*;
use proptest::sample::subsequence;
use serde_json::{Value, json};

/// Nodes of a dataset, all of them in its test split.
const NODES: usize = 10;

/// Columns of features and classes by name; `None` is an unlabelled node.
#[derive(Debug, Clone)]
struct Data {
    columns: Vec<(String, Vec<f32>)>,
    classes: Vec<String>,
    labels: Vec<Option<String>>,
}

impl Data {
    fn write(&self, path: &Path) {
        let mut writer = DatasetWriter::create(path, true).expect("a fresh place");
        let indptr: Vec<u64> = (0..=NODES as u64).map(|v| 2 * v).collect();
        let indices: Vec<u32> = (0..NODES as u32).flat_map(|v| [(v + 1) % 10, (3 * v + 2) % 10]).collect();
        writer.array("indptr", &indptr, None).expect("room");
        writer.array("indices", &indices, None).expect("room");
        let rows: Vec<f32> = (0..NODES).flat_map(|v| self.columns.iter().map(move |(_, values)| values[v])).collect();
        writer.array("features", &rows, Some(self.columns.len())).expect("room");
        let number = |label: &Option<String>| {
            label.as_ref().map_or(-1, |l| self.classes.iter().position(|c| c == l).expect("a class") as i32)
        };
        writer.array("labels", &self.labels.iter().map(number).collect::<Vec<_>>(), None).expect("room");
        writer.array("train", &[0u32, 1, 2, 3], None).expect("room");
        writer.array("test", &(0..NODES as u32).collect::<Vec<_>>(), None).expect("room");
        let names: Vec<&String> = self.columns.iter().map(|(name, _)| name).collect();
        let facts = [("class_names", json!(self.classes)), ("feature_names", json!(names))];
        let provenance: BTreeMap<String, Value> =
            facts.into_iter().map(|(key, value)| (key.to_string(), value)).collect();
        writer.finish("data", self.classes.len(), provenance).expect("sound");
    }

    fn schema(&self) -> Schema {
        let features = self.columns.iter().map(|(name, _)| name.clone()).collect();
        Schema { classes: Some(self.classes.clone()), features: Some(features), targets: None, normalization: None }
    }
}

fn run(words: &[&str]) -> Result<Value, Failure> {
    super::run(&words.iter().map(|word| word.to_string()).collect::<Vec<_>>(), None)
}

/// Name and probability of each node's class.
fn predicted(model: &str, data: &str) -> Vec<(String, f64)> {
    let json = run(&["predict", model, data, "--threads", "1"]).expect("it predicts");
    let class = |class: &Value| {
        json["class_names"][class.as_u64().expect("a number") as usize].as_str().expect("a name").to_string()
    };
    let classes = json["classes"].as_array().expect("a list").iter().map(class);
    let probabilities = json["probabilities"].as_array().expect("a list").iter().map(|p| p.as_f64().expect("a number"));
    classes.zip(probabilities).collect()
}

fn models() -> impl Strategy<Value = ModelSpec> {
    let kinds = prop::sample::select(ModelKind::UNTYPED.to_vec());
    (kinds, 1..3usize, any::<bool>()).prop_map(|(kind, layers, v2)| ModelSpec {
        layers,
        hidden: 4,
        heads: 2,
        output_heads: 1 + usize::from(v2),
        attention: if v2 { Attention::Gatv2 } else { Attention::Gat },
        ..ModelSpec::new(kind, 0, 0)
    })
}

fn data() -> impl Strategy<Value = Data> {
    (1..6usize, 2..5usize).prop_flat_map(|(columns, classes)| {
        let values = prop::collection::vec(prop::collection::vec(-2.0f32..2.0, NODES), columns);
        let labels = prop::collection::vec(0..classes, NODES);
        (values, labels).prop_map(move |(values, labels)| {
            let classes: Vec<String> = (0..classes).map(|c| format!("class {c}")).collect();
            let labels = labels.into_iter().map(|c| Some(classes[c].clone())).collect();
            let columns = values.into_iter().enumerate().map(|(i, values)| (format!("f{i}"), values)).collect();
            Data { columns, classes, labels }
        })
    })
}

/// The same nodes with columns and classes in another order, some classes left out with their labels, and further columns.
fn rearranged(data: &Data) -> impl Strategy<Value = Data> + use<> {
    let (columns, classes, labels) = (data.columns.clone(), data.classes.clone(), data.labels.clone());
    let kept = subsequence(classes.clone(), 1..=classes.len()).prop_shuffle();
    let added = prop::collection::vec(prop::collection::vec(-9.0f32..9.0, NODES), 0..3);
    (added, kept).prop_flat_map(move |(added, kept)| {
        let added = added.into_iter().enumerate().map(|(i, values)| (format!("added {i}"), values));
        let columns = Just(columns.iter().cloned().chain(added).collect::<Vec<_>>()).prop_shuffle();
        let labels = labels.iter().map(|label| label.clone().filter(|l| kept.contains(l))).collect::<Vec<_>>();
        (columns, Just(kept), Just(labels)).prop_map(|(columns, classes, labels)| Data { columns, classes, labels })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn a_model_finds_classes_and_features_by_name(
        (spec, trained, other) in (models(), data()).prop_flat_map(|(spec, data)| (Just(spec), rearranged(&data), Just(data)))
            .prop_map(|(spec, other, trained)| (spec, trained, other)),
        at in any::<prop::sample::Index>(),
        seed in any::<u64>(),
    ) {
        let dir = tempfile::tempdir().expect("a directory");
        let place = |name: &str| dir.path().join(name).to_str().expect("text").to_string();
        let (model, same, otherwise) = (place("m.safetensors"), place("same"), place("other"));
        let spec = ModelSpec { in_dim: trained.columns.len(), num_classes: trained.classes.len(), ..spec };
        save_model(model.as_ref(), &spec, &trained.schema(), &initial_parameters(&spec, seed)).expect("room");
        trained.write(same.as_ref());
        let expected = predicted(&model, &same);
        // Where all classes are equally probable, as where no hidden unit is active, their order decides.
        let equal = 1.0 / trained.classes.len() as f64;
        prop_assume!(expected.iter().all(|(_, probability)| probability - equal > 1e-4));

        // Rearranged, some classes missing and columns added: the same predictions, and the score of the nodes with a label.
        other.write(otherwise.as_ref());
        for ((class, probability), (wanted, exact)) in predicted(&model, &otherwise).iter().zip(&expected) {
            prop_assert!((probability - exact).abs() < 1e-4, "{probability} of {class}, {exact} of {wanted}");
            prop_assert_eq!(class, wanted);
        }
        let labelled: Vec<_> = other.labels.iter().zip(&expected).filter_map(|(label, (class, _))| Some((label.as_ref()?, class))).collect();
        for how in ["full", "sampled"] {
            let hops = vec!["-1"; spec.layers].join(",");
            let args = ["evaluate", &model, &otherwise, "--threads", "1", "--evaluation", how, &format!("--fanouts={hops}")];
            let scores = run(&args).expect("it evaluates");
            if !labelled.is_empty() {
                let right = labelled.iter().filter(|(label, class)| label == class).count();
                let accuracy = scores["test"]["accuracy"].as_f64().expect("a number");
                prop_assert!((accuracy - right as f64 / labelled.len() as f64).abs() < 1e-9, "{how}: {accuracy} of {labelled:?}");
            }
        }

        // A column of another name is missed by its own.
        let mut renamed = other.clone();
        let lost = trained.columns[at.index(trained.columns.len())].0.clone();
        renamed.columns.iter_mut().filter(|(name, _)| *name == lost).for_each(|(name, _)| name.push_str(" of another name"));
        renamed.write(otherwise.as_ref());
        for command in ["evaluate", "predict"] {
            let failure = run(&[command, &model, &otherwise]).expect_err("a feature is missing");
            prop_assert!(failure.message.contains(&format!("{lost:?}")), "{failure:?}");
        }

        // A class of another name cannot be scored; what is predicted needs no labels.
        let mut renamed = other.clone();
        let (old, new) = (renamed.classes[0].clone(), "a class of another name".to_string());
        renamed.classes[0].clone_from(&new);
        renamed.labels.iter_mut().flatten().filter(|label| **label == old).for_each(|label| label.clone_from(&new));
        renamed.write(otherwise.as_ref());
        let failure = run(&["evaluate", &model, &otherwise]).expect_err("a class is unknown");
        prop_assert!(failure.message.contains(&new), "{failure:?}");
        let classes: Vec<String> = predicted(&model, &otherwise).into_iter().map(|(class, _)| class).collect();
        prop_assert_eq!(classes, expected.iter().map(|(class, _)| class.clone()).collect::<Vec<_>>());
    }
}

/// One side without names: positions decide, as in model files of old, but for classes that are named by numbers.
#[test]
fn without_names_positions_decide() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = |name: &str| dir.path().join(name).to_str().expect("text").to_string();
    let (model, set) = (place("m.safetensors"), place("set"));
    let values = |at: usize| (0..NODES).map(|v| ((v * (at + 2)) as f32).sin()).collect();
    let names = ["a", "b", "c"].map(str::to_string);
    let columns = names.iter().enumerate().map(|(at, name)| (name.clone(), values(at))).collect();
    let labels = (0..NODES).map(|v| Some(names[v % 3].clone())).collect();
    let data = Data { columns, classes: names.to_vec(), labels };
    data.write(set.as_ref());
    let spec = ModelSpec { layers: 1, ..ModelSpec::new(ModelKind::Sage, 3, 3) };
    let evaluate = |schema: &Schema| {
        save_model(model.as_ref(), &spec, schema, &initial_parameters(&spec, 1)).expect("room");
        run(&["evaluate", &model, &set, "--threads", "1"])
    };
    let expected = evaluate(&data.schema()).expect("it evaluates");
    assert_eq!(evaluate(&Schema::default()).expect("a model without names"), expected);
    // Classes 2, 0, 1 of a dataset whose names are numbers are those of the model without names.
    let numbered = Data {
        classes: ["2", "0", "1"].map(str::to_string).to_vec(),
        labels: data
            .labels
            .iter()
            .map(|l| l.as_ref().map(|l| ["0", "1", "2"][names.iter().position(|n| n == l).expect("one")].to_string()))
            .collect(),
        ..data.clone()
    };
    numbered.write(set.as_ref());
    assert_eq!(evaluate(&Schema::default()).expect("names that are numbers"), expected);
    // Features that were normalised otherwise.
    data.write(set.as_ref());
    let mut text: Value =
        serde_json::from_slice(&std::fs::read(dir.path().join("set/graph.json")).expect("there")).expect("JSON");
    text["provenance"]["features_normalized"] = true.into();
    std::fs::write(dir.path().join("set/graph.json"), text.to_string()).expect("room");
    let failure =
        evaluate(&Schema { normalization: Some("none".to_string()), ..data.schema() }).expect_err("other features");
    assert!(failure.message.contains("without --normalize-features"), "{failure:?}");
    let normalised = Schema { normalization: Some("rows".to_string()), ..data.schema() };
    assert_eq!(evaluate(&normalised).expect("the same normalisation"), expected);
}

/// Training that begins with a model takes its parameters in the order of the dataset's features and classes.
#[test]
fn training_begins_with_a_model_of_another_order() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = |name: &str| dir.path().join(name).to_str().expect("text").to_string();
    let (model, set, begun) = (place("m.safetensors"), place("set"), place("begun.safetensors"));
    let values = |at: usize| (0..NODES).map(|v| ((v * (at + 2)) as f32).cos()).collect();
    let names = ["a", "b", "c"].map(str::to_string);
    let columns = names.iter().enumerate().map(|(at, name)| (name.clone(), values(at))).collect();
    let data =
        Data { columns, classes: names.to_vec(), labels: (0..NODES).map(|v| Some(names[v % 3].clone())).collect() };
    let spec = ModelSpec { layers: 1, ..ModelSpec::new(ModelKind::Sage, 3, 3) };
    save_model(model.as_ref(), &spec, &data.schema(), &initial_parameters(&spec, 5)).expect("room");
    data.write(set.as_ref());
    let expected = predicted(&model, &set);

    let mut other = data.clone();
    other.columns.rotate_left(1);
    other.classes.reverse();
    other.write(set.as_ref());
    let train =
        "train --model sage --fanouts 5 --threads 1 --training Training_CPU_Native --epochs 0 --profile-seconds 0.05";
    let train: Vec<&str> = train.split(' ').chain([&*set, "--init", &model, "--save", &begun]).collect();
    run(&train).expect("it trains");
    for ((class, probability), (wanted, exact)) in predicted(&begun, &set).iter().zip(&expected) {
        assert!(class == wanted && (probability - exact).abs() < 1e-5, "{class} {probability}, {wanted} {exact}");
    }
    let labels = (0..NODES).map(|v| Some(format!("{}!", names[v % 3]))).collect();
    let named = Data { classes: names.map(|name| name + "!").to_vec(), labels, ..other };
    named.write(set.as_ref());
    let failure = run(&train).expect_err("other classes");
    assert!(failure.message.contains("train anew, without --init"), "{failure:?}");
}
