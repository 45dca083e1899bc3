//! Typed models: from a typed dataset to scores, predictions, resumed runs, and what is refused.
#![cfg(all(unix, feature = "cpu"))]

#[path = "support/runs.rs"]
mod runs;
mod support;

use std::fs;

use runs::{Training, alike};
use serde_json::Value;
use support::{Bench, number, words};

const TRAIN: &str = "--threads 2 --hidden 16 --layers 2 --fanouts 8,4 --batch-size 64 --profile-seconds 0.1 \
                     --plan sequential --lr 0.02 --training Training_CPU_Burn";

/// Publications with features of papers alone, of all types, and in one matrix.
fn bench() -> Bench {
    let bench = Bench::new();
    for (name, features) in [("papers", "papers"), ("by-type", "by-type"), ("all", "all")] {
        let args = format!(
            "generate typed -o {name} --nodes 2000 --classes 8 --dim 16 --signal 0.3 --homophily 0.5 --features {features}"
        );
        bench.text(&words(&args));
    }
    bench
}

fn train(bench: &Bench, dataset: &str, model: &str, more: &str) -> Value {
    bench.json(&words(&format!("train {dataset} {TRAIN} --model {model} {more}")))
}

/// Models that know the types of edges score higher than one that takes them as one, whatever the features; `evaluate` says what
/// training said, and predictions have an id of its type for every node.
#[test]
fn typed_models_learn_what_types_say() {
    let bench = bench();
    for dataset in ["papers", "by-type", "all"] {
        let untyped = number(&train(&bench, dataset, "sage", "--epochs 8 --sampler typed")["best_valid_accuracy"]);
        for model in ["rgcn", "rgcn --bases 3", "rsage", "rgat --heads 2"] {
            let run = format!("{dataset}-{}", model.replace(' ', ""));
            let trained = train(&bench, dataset, model, &format!("--epochs 8 --run {run}"));
            let valid = number(&trained["best_valid_accuracy"]);
            // Attention is behind after so few steps.
            let least = if model.starts_with("rgat") { 0.4 } else { untyped + 0.05 };
            assert!(valid > least, "{dataset}, {model}: {valid}, without types {untyped}");
            let evaluated = bench.json(&["evaluate", &run]);
            let [of_run, of_file] = [&trained["test_accuracy"], &evaluated["test"]["accuracy"]].map(number);
            assert!((of_run - of_file).abs() < 1e-9, "{dataset}, {model}: {of_run} in training, {of_file} evaluated");
        }
    }
    bench.text(&["predict", "papers-rsage", "-o", "classes.csv"]);
    let classes = fs::read_to_string(bench.path().join("classes.csv")).expect("predictions");
    assert!(classes.contains("\npaper:0,") && classes.contains("\ninstitution:0,"), "{classes}");
    let sampled = bench.json(&["evaluate", "papers-rsage", "--evaluation", "sampled"]);
    assert!(number(&sampled["test"]["accuracy"]) > 0.4, "{sampled}");
}

/// Links of all edge types, whose own edges are left out of what is sampled.
#[test]
fn links_are_learned_by_edge_type() {
    let bench = bench();
    let trained = train(&bench, "papers", "rsage", "--task link --negatives 3 --epochs 4 --run links");
    let losses: Vec<f64> =
        trained["epochs"].as_array().expect("epochs").iter().map(|epoch| number(&epoch["loss"])).collect();
    assert!(losses[3] < 0.97 * losses[0], "{losses:?}");
    fs::write(bench.path().join("pairs.txt"), "author:3 paper:7\n").expect("room");
    let scores = bench.text(&["predict", "links", "--edges", "pairs.txt"]);
    assert!(scores.contains("author:3,paper:7,"), "{scores}");
}

/// Triples of 48 entities in six groups: `same` within a group, `opposite` to the third group from it; a tenth each to validate and to test
/// on.
fn knowledge() -> Bench {
    let bench = Bench::new();
    fs::create_dir(bench.path().join("triples")).expect("room");
    let mut files = [const { String::new() }; 3];
    let mut number = 0;
    for (relation, shift) in [("same", 0), ("opposite", 3)] {
        for head in 0..48 {
            for tail in (0..48).filter(|tail| *tail != head && tail % 6 == (head + shift) % 6) {
                number += 1;
                let split = match number * 7 % 10 {
                    0 => 1,
                    1 => 2,
                    _ => 0,
                };
                files[split] += &format!("e{head}\t{relation}\te{tail}\n");
            }
        }
    }
    for (name, text) in ["train", "valid", "test"].iter().zip(&files) {
        fs::write(bench.path().join(format!("triples/{name}.txt")), text).expect("room");
    }
    bench.text(&words("import triples triples -o graph --symmetrise"));
    bench
}

/// Relations that contradict each other are told apart by a vector for each, on embeddings alone (with and without a linear map) and with
/// messages, and not by one dot product; predictions are by relation.
#[test]
fn relations_are_learned_apart() {
    let bench = knowledge();
    let train = "--task link --negatives 8 --batch-size 128 --threads 2 --lr 0.05 --hidden 16 --embedding 16 \
                 --profile-seconds 0.1 --plan sequential --score filtered-mrr";
    let trained = |options: &str| bench.json(&words(&format!("train graph {train} {options}")));
    let scored = |options: &str| number(&trained(options)["best_valid_score"]);
    for operator in ["Training_CPU_Native", "Training_CPU_Burn"] {
        for model in ["mlp --layers 1", "embedding"] {
            let run = format!("{operator}-{}", &model[..3]);
            let found =
                scored(&format!("--model {model} --decoder distmult --epochs 30 --training {operator} --run {run}"));
            assert!(found > 0.5, "{run}: {found}");
            let evaluated = bench.json(&["evaluate", &run, "--score", "filtered-mrr", "--score", "mrr"]);
            let valid = number(&evaluated["valid"]["scores"]["filtered-mrr"]);
            assert!((valid - found).abs() < 1e-6, "{run}: {found} in training, {valid} evaluated");
        }
    }
    let messages = scored("--model rgcn --layers 1 --fanouts 5 --decoder distmult --epochs 30 --run messages");
    assert!(messages > 0.3, "{messages}");
    let dot = scored("--model rgcn --layers 1 --fanouts 5 --decoder dot --epochs 30");
    assert!(dot < messages, "{dot} by the dot product, {messages} by a vector per relation");

    // Entity 0 is of group 0.
    let run = "Training_CPU_Native-emb";
    fs::write(bench.path().join("pairs.txt"), "e0\te6\tsame\ne0\te6\topposite\ne0,e3,entity-opposite-entity\n")
        .expect("room");
    let scores = bench.json(&["predict", run, "--edges", "pairs.txt"]);
    let of = |at: usize| number(&scores["scores"][at]);
    assert!(of(0) > of(1) + 1.0 && of(2) > of(1) + 1.0, "{scores}");
    fs::write(bench.path().join("ids.txt"), "e0\n").expect("room");
    let top = |edge_type: &str| {
        let args = format!("predict {run} --top 7 --include-edges --nodes ids.txt --edge-type {edge_type}");
        let found = bench.json(&words(&args));
        let partners = found["partners"][0].as_array().expect("partners").clone();
        let entity =
            |id: &Value| id.as_str().and_then(|id| id.strip_prefix('e')?.parse::<u32>().ok()).expect("an entity");
        partners.iter().map(|id| entity(id) % 6).collect::<Vec<_>>()
    };
    assert_eq!(top("same"), [0; 7]);
    assert_eq!(top("opposite"), [3; 7]);
    let known = bench.json(&words(&format!("predict {run} --top 48 --nodes ids.txt --edge-type same")));
    let partners = known["partners"][0].as_array().expect("partners");
    assert_eq!(partners.len(), 48 - 8, "all but itself and the seven that are known: {known}");

    fs::write(bench.path().join("untyped.txt"), "e0 e6\n").expect("room");
    bench.refused(&["predict", run, "--edges", "untyped.txt"], &["untyped.txt, line 1", "edge type"]);
    bench.misused(&["predict", run, "--top", "2"], &["--edge-type"]);
    bench.misused(&["predict", run, "--top", "2", "--edge-type", "other"], &["no such edge type", "same"]);

    // Embeddings of a model without layers are the rows of its table, by which it scores.
    bench.text(&["predict", run, "--embeddings", "rows.npy"]);
    let rows = fs::read(bench.path().join("rows.npy")).expect("embeddings");
    assert_eq!(rows.len() % 16, 0);
    assert!(rows.len() > 48 * 16 * 4 && rows.len() < 48 * 16 * 4 + 256, "{} bytes", rows.len());
    let misused = |args: &str, expected: &[&str]| bench.misused(&words(args), expected);
    misused("train graph --model embedding", &["--task", "scores pairs of nodes"]);
    misused("train graph --task link --model embedding --layers 2", &["--layers", "has no layers"]);
    misused("train graph --task link --model embedding --fanouts 5,5", &["--fanouts 5,5", "2 hops"]);
    bench.small();
    let refused = |args: &str, expected: &[&str]| bench.refused(&words(args), expected);
    refused("train small --task link --model embedding", &["learns nothing; use distmult or mlp"]);
    refused(
        "train small --task link --model embedding --decoder mlp --embedding 3",
        &["its embedding as they are, not 3"],
    );
    bench.text(&words("train small --task link --model embedding --decoder distmult --epochs 1 --plan sequential"));
    let args = "train graph --task link --model embedding --decoder distmult --epochs";
    bench.text(&words(&format!("{args} 2 --seed 5 --plan sequential --run shorter")));
    bench.text(&words("train --resume shorter --epochs 4"));
    bench.text(&words(&format!("{args} 4 --seed 5 --plan sequential --run whole")));
    alike(&bench.path().join("shorter"), &bench.path().join("whole"));
}

/// Within times, too: what is evaluated then is sampled as it was trained.
#[test]
fn times_bound_training_and_evaluation() {
    let bench = bench();
    let trained = train(&bench, "papers", "rsage", "--epochs 6 --sampler-option temporal=last");
    assert!(number(&trained["best_valid_accuracy"]) > 0.4, "{trained}");
    assert_eq!(trained["training"]["evaluation"], "sampled", "{}", trained["training"]);
}

/// From a dataset left on disk, with caches of any size and within times: the losses of the dataset in memory.
#[test]
fn training_from_disk_gives_the_losses_of_memory() {
    let bench = bench();
    const KEY: &str = "Batching_CPU+Disk_Typed";
    for (dataset, model, more) in [
        ("papers", "rsage", ""),
        ("by-type", "rgcn --bases 2", "--sampler-option fanouts_by_type=cites=6,0"),
        ("all", "rgat --heads 2", "--sampler-option temporal=last"),
    ] {
        let run = |from: &str| {
            let trained = train(&bench, dataset, model, &format!("--epochs 2 --evaluation sampled {more} {from}"));
            let losses: Vec<f64> =
                trained["epochs"].as_array().expect("epochs").iter().map(|epoch| number(&epoch["loss"])).collect();
            (losses, number(&trained["best_valid_accuracy"]), trained)
        };
        let (losses, valid, _) = run("");
        for cache in ["none", "presample:1:100KiB", "auto"] {
            let (from_disk, of_disk, trained) = run(&format!("--batching {KEY} --memory 400MiB --cache {cache}"));
            assert_eq!((&from_disk, of_disk), (&losses, valid), "{dataset}, {model}, --cache {cache}");
            let read = &trained["counters"][KEY]["disk_bytes"];
            assert_eq!(read.as_u64().is_some_and(|bytes| bytes > 0), cache != "auto", "{:#}", trained["counters"]);
        }
    }
}

#[test]
fn a_run_that_is_killed_gives_the_same_bits() {
    let bench = bench();
    for (dataset, model) in [("by-type", "rgat --heads 2"), ("papers", "rgcn --bases 2")] {
        let run = |name: &str| format!("train {dataset} {TRAIN} --model {model} --epochs 4 --run {name}");
        let [undisturbed, killed] = ["undisturbed", "killed"].map(|name| format!("{dataset}-{name}"));
        bench.json(&words(&run(&undisturbed)));
        let path = bench.path().join(&killed);
        let command = bench.command(&words(&format!("{} --checkpoint-every 2b", run(&killed))));
        let mut training = Training::start(command, &path);
        assert!(!training.wait_for_checkpoint(3), "it has more mini-batches than that");
        training.kill();
        bench.json(&["train", "--resume", &killed]);
        alike(&path, &bench.path().join(&undisturbed));
    }
}

#[test]
fn what_does_not_hold_is_refused_by_name() {
    let bench = bench();
    bench.small();
    let misused = |args: String, words_of: &[&str]| bench.misused(&words(&args), words_of);
    misused("train papers --model rsage --sampler neighbor".into(), &["--sampler neighbor", "rsage", "use typed"]);
    misused("train papers --model sage --bases 2".into(), &["--bases", "a sage has none"]);
    misused("train papers --model rgcn --bases 2 --diagonal-blocks 2".into(), &["--diagonal-blocks", "leave one out"]);
    let refused = |args: String, words_of: &[&str]| bench.refused(&words(&args), words_of);
    refused("train small --model rgcn".into(), &["the graph has no types", "train gcn, sage or gat"]);
    // Embeddings are of the nodes of the graph that was trained on.
    bench.json(&words(&format!("train papers {TRAIN} --model rsage --epochs 1 --save model.safetensors")));
    bench.text(&words("generate typed -o more --nodes 2200 --classes 8 --dim 16"));
    refused("evaluate model.safetensors more".into(), &["embeddings of 1170 nodes of type author", "train anew"]);
    refused("evaluate model.safetensors small".into(), &["the graph has no types"]);
    refused("bench gather papers".into(), &["features are per node type"]);
}
