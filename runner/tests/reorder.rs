//! `morphgl reorder`: training and predictions on the reordered dataset are those of the original.
#![cfg(feature = "cpu")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use morphgl_graph_store::{Array, Dataset, DatasetWriter, FeatureMatrix, NpyWriter, OpenOptions};
use serde_json::{Value, json};
use support::Bench;

/// A generated graph at `plain`, and at `weighted` the same one with edge weights, a seventh of them 0.
fn graphs(bench: &Bench) {
    let args = ["generate", "sbm", "-o", "plain", "--nodes", "3000", "--classes", "5", "--dim", "20", "--degree", "9"];
    bench.text(&args);
    let plain = Dataset::open(bench.path().join("plain"), OpenOptions::default()).expect("sound");
    let mut writer = DatasetWriter::create(bench.path().join("weighted"), false).expect("a fresh path");
    let weights: Vec<f32> = (0..plain.topology.num_edges()).map(|e| (e % 7) as f32 * 0.3).collect();
    writer.array("indptr", plain.topology.indptr(), None).expect("room");
    writer.array("indices", plain.topology.indices(), None).expect("room");
    writer.array("weights", &weights, None).expect("room");
    let Some(FeatureMatrix::F32 { data, dim }) = &plain.features else { panic!("f32 features") };
    writer.array("features", data, Some(*dim)).expect("room");
    writer.array("labels", plain.labels.as_ref().expect("labels"), None).expect("room");
    for (name, split) in [("train", &plain.splits.train), ("valid", &plain.splits.valid), ("test", &plain.splits.test)]
    {
        writer.array(name, split, None).expect("room");
    }
    writer.finish("weighted", plain.num_classes, Default::default()).expect("arrays that fit");
}

/// Losses and accuracies of an epoch, each as it stands in the JSON, without what the clock says.
fn scores(run: &Value) -> Vec<Value> {
    let epochs = run["epochs"].as_array().expect("a list");
    let row = |e: &Value| json!([e["loss"], e["train_accuracy"], e["valid_loss"], e["valid_accuracy"]]);
    epochs.iter().map(row).chain([run["test_loss"].clone(), run["test_accuracy"].clone()]).collect()
}

/// Class and probability of each node, by its id.
fn predictions(run: &Value) -> BTreeMap<String, (Value, Value)> {
    let list = |name: &str| run[name].as_array().expect("a list").clone();
    let answers = list("classes").into_iter().zip(list("probabilities"));
    list("nodes").iter().map(Value::to_string).zip(answers).collect()
}

fn order_file(path: &Path, nodes: impl Iterator<Item = i64>) {
    let mut writer = NpyWriter::<i64>::create(path).expect("room");
    writer.write(&nodes.collect::<Vec<_>>()).expect("room");
    writer.finish(None).expect("room");
}

#[test]
fn losses_and_predictions_are_those_of_the_original() {
    let bench = Bench::new();
    graphs(&bench);
    order_file(&bench.path().join("order.npy"), (0..3000).map(|i| i * 1777 % 3000));
    for (data, extra) in [("plain", &[][..]), ("weighted", &[]), ("weighted", &["--weighted"])] {
        let hot = format!("{data}-hot");
        let by: &[&str] = match (data, extra) {
            ("plain", _) => &["--by", "in-degree"],
            (_, []) => &["--by", "inclusion", "--fanouts", "4,3", "--batch-size", "256"],
            _ => &["--order", "order.npy"],
        };
        let made = bench.json(&[&["reorder", data, "-o", &hot, "--force"][..], by].concat());
        assert_eq!((&made["num_nodes"], &made["reorder"]["by"]), (&json!(3000), &json!(by[1])));
        assert!(made["reorder"]["edges_per_s"].as_f64().is_some_and(|rate| rate > 0.0));
        for model in ["gcn", "sage"] {
            let run = |dataset: &str, evaluation: &str| {
                let file = format!("{dataset}-{model}.safetensors");
                let args = ["train", dataset, "--model", model, "--layers", "2", "--hidden", "16", "--fanouts", "4,3"];
                let more = ["--batch-size", "256", "--dropout", "0.5", "--epochs", "3", "--profile-seconds", "0.1"];
                let native = ["--training", "Training_CPU_Native", "--evaluation", evaluation, "--save", &file];
                let trained = bench.json(&[&args[..], &more, &native, extra].concat());
                (scores(&trained), fs::read(bench.path().join(&file)).expect("saved"))
            };
            for evaluation in ["full", "sampled"] {
                let (original, reordered) = (run(data, evaluation), run(&hot, evaluation));
                assert_eq!(original.0, reordered.0, "{model} on {data} {extra:?}, evaluation {evaluation}");
                assert!(original.1 == reordered.1, "{model} on {data} {extra:?}: parameters");
            }
            let file = format!("{data}-{model}.safetensors");
            let predict = |dataset: &str| predictions(&bench.json(&["predict", &file, dataset]));
            let (original, reordered) = (predict(data), predict(&hot));
            assert_eq!(original.len(), 3000);
            assert!(original == reordered, "predictions of {model} on {data} {extra:?}");
        }
        // `--nodes` takes the ids of the original dataset.
        fs::write(bench.path().join("ids.txt"), "7\n2999\n0\n").expect("room");
        let ask =
            |dataset: &str| bench.json(&["predict", &format!("{data}-gcn.safetensors"), dataset, "--nodes", "ids.txt"]);
        assert_eq!(ask(data), ask(&hot));
    }
    let hot = Dataset::open(bench.path().join("plain-hot"), OpenOptions::default()).expect("sound");
    assert!(hot.topology.indptr().windows(3).all(|w| w[1] - w[0] >= w[2] - w[1]), "in-degrees descend");
}

/// A typed graph with years, sampled by edge type, in trees too; and links of users and items.
#[test]
fn typed_graphs_train_as_the_originals() {
    let bench = Bench::new();
    bench.text(&["generate", "typed", "-o", "papers", "--nodes", "3000", "--classes", "4", "--features", "all"]);
    let edges: String = (0..3000u32).map(|i| format!("{},{}\n", i % 211, i * i % 83)).collect();
    fs::write(bench.path().join("edges.csv"), format!("user,item\n{edges}")).expect("room");
    let import = ["import", "edges", "edges.csv", "-o", "links", "--src", "user", "--dst", "item", "--bipartite"];
    bench.text(&[&import[..], &["--edge-split", "0.8,0.1,0.1"]].concat());
    for data in ["papers", "links"] {
        bench.text(&["reorder", data, "-o", &format!("{data}-hot"), "--by", "out-degree"]);
    }
    for (data, extra) in [
        ("papers", &["--sampler", "typed", "--sampler-option", "fanouts_by_type=cites=2,1"][..]),
        ("papers", &["--sampler", "typed", "--sampler-option", "temporal=last"]),
        ("links", &["--task", "link", "--sampler", "typed"]),
        ("links", &["--task", "link", "--negative-distribution", "degree"]),
    ] {
        let run = |dataset: &str| {
            let args = ["train", dataset, "--model", "sage", "--layers", "2", "--hidden", "16", "--fanouts", "4,3"];
            let more = ["--batch-size", "256", "--epochs", "2", "--profile-seconds", "0.1", "--save", "m.safetensors"];
            let native = ["--training", "Training_CPU_Native", "--evaluation", "sampled"];
            let trained = bench.json(&[&args[..], &more, &native, extra].concat());
            (scores(&trained), fs::read(bench.path().join("m.safetensors")).expect("saved"))
        };
        let (original, reordered) = (run(data), run(&format!("{data}-hot")));
        assert_eq!(original.0, reordered.0, "{data} {extra:?}");
        assert!(original.1 == reordered.1, "{data} {extra:?}: parameters");
    }
    // Ids are those of the columns, or of the types.
    fs::write(bench.path().join("ids.txt"), "user:7\nuser:0\n").expect("room");
    let top = |dataset: &str| bench.json(&["predict", "m.safetensors", dataset, "--top", "3", "--nodes", "ids.txt"]);
    assert_eq!(top("links"), top("links-hot"));
}

#[test]
fn text_ids_and_a_second_reordering_stay_right() {
    let bench = Bench::new();
    let edges: String = (0..600u32).map(|i| format!("user{} user{}\n", i % 97, i * i % 89)).collect();
    fs::write(bench.path().join("edges.txt"), edges).expect("room");
    let import = ["import", "edges", "edges.txt", "-o", "named", "--ids", "strings", "--columns", "src,dst"];
    let data = ["--random-features", "6", "--random-labels", "3", "--split", "0.6,0.2,0.2"];
    bench.text(&[&import[..], &data].concat());
    let train = ["train", "named", "--epochs", "2", "--layers", "2", "--hidden", "8", "--save", "m.safetensors"];
    bench.text(&[&train[..], &["--profile-seconds", "0.1"]].concat());
    let expected = predictions(&bench.json(&["predict", "m.safetensors", "named"]));
    assert!(expected.contains_key("\"user13\""), "{expected:?}");
    bench.text(&["reorder", "named", "-o", "once"]);
    bench.text(&["reorder", "once", "-o", "twice", "--by", "inclusion"]);
    for dataset in ["once", "twice"] {
        let found = predictions(&bench.json(&["predict", "m.safetensors", dataset]));
        assert!(found == expected, "{dataset}");
    }
    let steps = &bench.json(&["info", "twice", "--check"])["provenance"]["reordered"];
    assert_eq!((&steps[0]["by"], &steps[1]["by"]), (&json!("in-degree"), &json!("inclusion")), "{steps}");
}

#[test]
fn refusals_name_the_cure() {
    let bench = Bench::new();
    bench.small();
    order_file(&bench.path().join("short.npy"), 0..299);
    order_file(&bench.path().join("twice.npy"), (0..300).map(|i| i / 2));
    let run = |extra: &[&'static str]| [&["reorder", "small", "-o", "hot"][..], extra].concat();
    bench.refused(&run(&["--order", "short.npy"]), &["short.npy", "299 nodes", "300", "list every node once"]);
    bench.refused(&run(&["--order", "twice.npy"]), &["twice.npy", "node 0 for the second time"]);
    bench.refused(&run(&["--order", "absent.npy"]), &["absent.npy", "check the path"]);
    bench.misused(&run(&["--fanouts", "5"]), &["--fanouts", "--by inclusion alone reads it"]);
    bench.misused(&run(&["--order", "short.npy", "--by", "inclusion"]), &["--order"]);
    bench.refused(&["reorder", "small", "-o", "small"], &["small", "--force"]);
    let mut names = bench.names();
    names.retain(|name| !name.ends_with(".npy"));
    assert_eq!(names, ["small"], "nothing is left behind");

    // A graph without training nodes has no inclusion probability.
    let small = Dataset::open(bench.path().join("small"), OpenOptions::default()).expect("sound");
    let mut writer = DatasetWriter::create(bench.path().join("bare"), false).expect("a fresh path");
    writer.array("indptr", small.topology.indptr(), None).expect("room");
    writer.array("indices", small.topology.indices(), None).expect("room");
    writer.finish("bare", 0, Default::default()).expect("arrays that fit");
    let args = ["reorder", "bare", "-o", "bare-hot"];
    bench.misused(
        &[&args[..], &["--by", "inclusion"]].concat(),
        &["training nodes, and bare has none", "use --by in-degree"],
    );
    bench.text(&args);

    // Draw keys that are no permutation are found when the dataset is opened.
    let keys: Array<u32> = vec![0; 300].into();
    let mut damaged = NpyWriter::<u32>::create(bench.path().join("bare-hot/draw_keys.npy")).expect("room");
    damaged.write(&keys).expect("room");
    damaged.finish(None).expect("room");
    bench.refused(&["info", "bare-hot"], &["draw_keys.npy, element 1", "node 0 is listed twice", "import it again"]);
}
