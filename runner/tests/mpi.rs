//! `mpirun morphgl train`: the losses of one process, and a message on every rank when one fails.
#![cfg(feature = "mpi")]

#[path = "support/mpi.rs"]
mod mpi;
mod support;

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use std::{fs, thread};

use mpi::{bound, cora, has_mpirun, is_alive, losses, mpirun, ranks_of, same, say, stderr};
use serde_json::Value;
use support::Bench;

/// One step of all training nodes per epoch, by one operator:
/// choosing it by measurement would leave it open.
const TRAIN: [&str; 10] = [
    "--epochs",
    "10",
    "--fanouts",
    "10,5",
    "--hidden",
    "16",
    "--profile-seconds",
    "0.1",
    "--training",
    "Training_CPU_Native",
];

/// Ranks that split layers compute the rows of the same hot nodes. With all neighbours and parameters that stay as they are, their losses
/// are those of one process; else nearly so: a seed's own row is fresh, and a given one in the shares of other ranks that reach it as a
/// hot neighbour.
#[test]
fn ranks_split_layers() {
    if !has_mpirun() {
        return;
    }
    let bench = Bench::new();
    bench.text(&["import", "planetoid", &cora(), "-o", "cora"]);
    let args = "train cora --json --epochs 3 --fanouts 10,200 --hidden 16 --batch-size 16 --profile-seconds 0.1 \
                --training Training_CPU_Native --dropout 0 --allow-staleness 31";
    let args: Vec<&str> = args.split_whitespace().collect();
    let split = [&args[..], &["--hot-ratio", "0.5"]].concat();
    for (lr, apart) in [("1e-9", 1e-7), ("0.01", 1e-2)] {
        let split = [&split[..], &["--lr", lr]].concat();
        let alone = losses(bench.text(&split).as_bytes());
        for ranks in [1, 2, 3] {
            let output = same(&bench, ranks, &split).output().expect("mpirun starts");
            assert!(output.status.success(), "{ranks} ranks: {}", stderr(&output));
            for (a, b) in alone.iter().zip(losses(&output.stdout)) {
                assert!((a - b).abs() <= apart * a, "{ranks} ranks, a learning rate of {lr}: {b}, one process {a}");
            }
            let document: Value = serde_json::from_slice(&output.stdout).expect("checked above");
            let given = document["layer_split"]["given_share"].as_f64().expect("a share");
            assert!(given > 0.1 && document["layer_split"]["super_batches"].as_u64() >= Some(3), "{given}");
            assert_eq!(document["ranks"].as_array().map(Vec::len), Some(ranks));
        }
    }
    let output = same(&bench, 2, &args).output().expect("mpirun starts");
    say(&output, &[0, 1], &["--allow-staleness", "give --hot-ratio and no --max-hot-ratio"]);
    let (program, other) = (Path::new(env!("CARGO_BIN_EXE_morphgl")), [&args[..], &["--hot-ratio", "0.3"]].concat());
    let output = mpirun(&bench, &[(program, &split[..]), (program, &other[..])]).output().expect("mpirun starts");
    say(&output, &[0, 1], &["--hot-ratio", "0.5", "0.3"]);
}

/// Ranks that are bound to cores, as to the cores of a socket, have as many threads, and the losses of ranks that are not.
#[test]
fn ranks_have_the_cores_that_they_are_bound_to() {
    if !has_mpirun() {
        return;
    }
    let bench = Bench::new();
    bench.text(&["import", "planetoid", &cora(), "-o", "cora"]);
    let args = [&["train", "cora", "--json"], &TRAIN[..]].concat();
    let document = |to: &str| -> Value {
        let rank = (Path::new(env!("CARGO_BIN_EXE_morphgl")), &args[..]);
        let output = bound(&bench, to, &[rank, rank]).output().expect("mpirun starts");
        assert!(output.status.success(), "bound to {to}: {}", stderr(&output));
        serde_json::from_slice(&output.stdout).expect("one document")
    };
    let machine = bench.json(&["ops"]);
    let nodes: Vec<&Value> =
        machine["numa_nodes"].as_array().expect("a list").iter().map(|node| &node["node"]).collect();
    let (free, on_cores) = (document("none"), document("core:overload-allowed"));
    let loss = |of: &Value| of["epochs"].as_array().expect("epochs").last().expect("an epoch")["loss"].clone();
    let (free_loss, bound_loss) = (loss(&free).as_f64().expect("a loss"), loss(&on_cores).as_f64().expect("a loss"));
    assert!((free_loss - bound_loss).abs() <= 1e-5 * free_loss, "{free_loss}, bound {bound_loss}");
    let ranks = on_cores["ranks"].as_array().expect("ranks");
    assert_eq!(ranks.len(), 2);
    for rank in ranks {
        assert_eq!(rank["threads"], 1, "{rank}");
        let of_rank = rank["numa_nodes"].as_array().expect("a list");
        assert_eq!(of_rank.len(), nodes.len().min(1), "{rank}");
        assert!(of_rank.iter().all(|node| nodes.contains(&node)), "{rank}: not of {nodes:?}");
    }
}

/// Eight mini-batches of validation nodes.
const SAMPLED: [&str; 4] = ["--evaluation", "sampled", "--batch-size", "64"];

#[test]
fn losses_are_those_of_one_process() {
    if !has_mpirun() {
        return;
    }
    let bench = Bench::new();
    bench.text(&["import", "planetoid", &cora(), "-o", "cora"]);
    let args = [&["train", "cora", "--json"], &TRAIN[..]].concat();
    let alone = losses(bench.text(&args).as_bytes());
    for ranks in [1, 2, 4] {
        // That parameters have the same bits at all ranks is checked by the ranks themselves, at the end.
        let run: &[&str] = if ranks == 2 { &["--run", "run"] } else { &[] };
        let output = same(&bench, ranks, &[&args[..], run].concat()).output().expect("mpirun starts");
        assert!(output.status.success(), "{ranks} ranks: {}", stderr(&output));
        if ranks == 2 {
            let trace = std::fs::read_to_string(bench.path().join("run/trace.json")).expect("it was written");
            for lane in ["rank 0 (", "rank 1 (", "): CPU training", "): CPU worker 1"] {
                assert!(trace.contains(lane), "lanes of both ranks: no {lane:?}");
            }
        }
        let together = losses(&output.stdout);
        assert_eq!(together.len(), alone.len());
        for (a, b) in alone.iter().zip(&together) {
            assert!((a - b).abs() <= 1e-5 * a, "{ranks} ranks: {together:?}, one process {alone:?}");
        }
        let document: Value = serde_json::from_slice(&output.stdout).expect("checked above");
        let sent = |rank: &Value| rank["bytes_sent_per_epoch"].as_f64().expect("bytes") > 0.0;
        let senders = document["ranks"].as_array().expect("ranks").iter().filter(|r| sent(r)).count();
        assert_eq!(senders, if ranks == 1 { 0 } else { ranks });
        let seconds = |rank: &Value, name: &str| rank[name].as_f64().expect("seconds");
        for rank in document["ranks"].as_array().expect("ranks") {
            let all = seconds(rank, "exchange_seconds_per_epoch");
            assert!((0.0..=all).contains(&seconds(rank, "exchange_hidden_seconds_per_epoch")), "{rank}");
            let imbalance = &document["ranks"][0]["imbalance_seconds_per_epoch"];
            assert_eq!(&rank["imbalance_seconds_per_epoch"], imbalance, "the same at all ranks");
            assert!(ranks > 1 || imbalance == 0.0, "{rank}");
            assert!(seconds(rank, "batching_seconds_per_epoch") * seconds(rank, "training_seconds_per_epoch") > 0.0);
        }
        // All gradients after backward, and each tensor for itself while it goes on.
        for bucket in ["0", "1"].iter().filter(|_| ranks == 2) {
            let output = same(&bench, ranks, &[&args[..], &["--gradient-bucket", bucket]].concat()).output();
            assert_eq!(losses(&output.expect("mpirun starts").stdout), together, "--gradient-bucket {bucket}");
        }
    }
}

/// Labels, values, weighted and smoothed classes: ranks have the losses and the scores of one process.
#[test]
fn every_task_of_nodes_has_the_losses_of_one_process() {
    if !has_mpirun() {
        return;
    }
    let bench = Bench::new();
    let write = |name: &str, text: String| fs::write(bench.path().join(name), text).expect("room");
    let n = 240;
    write("e.txt", (0..n).flat_map(|v| [1, 7, 31].map(|step| format!("{v} {}\n", (v + step) % n))).collect());
    let nodes = (0..n).map(|v| format!("{v},{},{},{}\n", v % 3, f64::from(v % 17) / 17.0, f64::from(v % 5) / 5.0));
    write("n.csv", format!("id,label,f0,f1\n{}", nodes.collect::<String>()));
    // A tenth of the values and of the labels is not known, so that ranks have different numbers of them.
    let cell = |v: i32, text: String| if v % 10 == 3 { String::new() } else { text };
    let values = (0..n).map(|v| format!("{v},{},{}\n", cell(v, format!("{}", v % 17)), f64::from(v % 5) - 2.0));
    write("values.csv", format!("id,a,b\n{}", values.collect::<String>()));
    let labels = (0..n).map(|v| format!("{v},{},{}\n", v % 2, cell(v, format!("{}", v / 2 % 2))));
    write("labels.csv", format!("id,a,b\n{}", labels.collect::<String>()));
    for targets in ["values", "labels"] {
        let file = format!("{targets}.csv");
        let import = ["import", "edges", "e.txt", "--symmetrise", "--split", "0.6,0.2,0.2", "--nodes", "n.csv"];
        bench.text(&[&import[..], &["--targets", &file, "-o", targets]].concat());
    }
    let weights = "class_weights=balanced";
    for (data, options) in [
        ("values", &["--task", "regress", "--score", "r2"][..]),
        ("values", &["--task", "regress", "--loss", "huber", "--evaluation", "sampled", "--score", "loss"]),
        ("labels", &["--task", "multilabel", "--loss-option", "positive_weight=2.0"]),
        ("labels", &["--task", "classify", "--loss-option", weights, "--loss-option", "label_smoothing=0.1"]),
    ] {
        let args = [&["train", data, "--json", "--batch-size", "50"], &TRAIN[..], options].concat();
        let alone: Value = serde_json::from_str(&bench.text(&args)).expect("one JSON document");
        for ranks in [2, 3] {
            let output = same(&bench, ranks, &args).output().expect("mpirun starts");
            assert!(output.status.success(), "{options:?}, {ranks} ranks: {}", stderr(&output));
            let together: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
            let near = |a: &Value, b: &Value| {
                let (a, b) = (a.as_f64().expect("a number"), b.as_f64().expect("a number"));
                (a - b).abs() <= 1e-4 * a.abs().max(0.1)
            };
            for (a, b) in
                alone["epochs"].as_array().expect("epochs").iter().zip(together["epochs"].as_array().expect("epochs"))
            {
                assert!(near(&a["loss"], &b["loss"]), "{options:?}, {ranks} ranks: {b}, one process {a}");
                assert!(near(&a["valid_loss"], &b["valid_loss"]), "{options:?}, {ranks} ranks: {b}, one process {a}");
            }
            if options.contains(&"sampled") {
                let output = same(&bench, ranks, &[&args[..], &["--shard"]].concat()).output().expect("mpirun starts");
                assert!(output.status.success(), "{options:?}, {ranks} ranks: {}", stderr(&output));
                let whole = together["epochs"].as_array().expect("epochs").iter().map(|e| e["loss"].as_f64());
                let divided: Vec<Option<f64>> = losses(&output.stdout).into_iter().map(Some).collect();
                assert_eq!(divided, whole.collect::<Vec<_>>(), "features divided among {ranks} ranks");
            }
            if options.contains(&"r2") {
                let score = "best_valid_score";
                assert!(near(&alone[score], &together[score]), "{ranks} ranks: {}, {}", together[score], alone[score]);
            }
        }
    }
}

/// Ranks that divide the pairs of each mini-batch have the losses of one process and its scores, and the same bits with divided features
/// where mini-batches are evaluated.
fn pairs_are_learned_as_by_one_process(bench: &Bench, data: &[&str], options: &[&str]) {
    let args = [&["train", "--json"], data, &TRAIN[..], options].concat();
    let alone: Value = serde_json::from_str(&bench.text(&args)).expect("one JSON document");
    for ranks in [2, 3] {
        let output = same(bench, ranks, &args).output().expect("mpirun starts");
        assert!(output.status.success(), "{options:?}, {ranks} ranks: {}", stderr(&output));
        let together: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
        let near = |name: &str, a: &Value, b: &Value| {
            let number = |of: &Value| of[name].as_f64().expect("a number");
            let (a, b) = (number(a), number(b));
            assert!((a - b).abs() <= 1e-4 * a.abs().max(0.1), "{options:?}, {ranks} ranks: {name} {b}, alone {a}");
        };
        let epochs = |of: &Value| of["epochs"].as_array().expect("epochs").clone();
        assert_eq!(epochs(&alone).len(), epochs(&together).len());
        for (a, b) in epochs(&alone).iter().zip(&epochs(&together)) {
            ["loss", "valid_loss"].iter().for_each(|name| near(name, a, b));
        }
        // A rank may fall by one where scores are as near as rounding.
        let score = |of: &Value| of["best_valid_score"].as_f64().expect("a number");
        let (a, b) = (score(&alone), score(&together));
        assert!((a - b).abs() <= 0.01, "{options:?}, {ranks} ranks: score {b}, one process {a}");
        for shard in [&["--shard"][..], &["--shard", "in-degree:8KiB"]].iter().filter(|_| options.contains(&"sampled"))
        {
            let output = same(bench, ranks, &[&args[..], shard].concat()).output().expect("mpirun starts");
            assert!(output.status.success(), "{shard:?}, {ranks} ranks: {}", stderr(&output));
            let divided: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
            let bits = |run: &Value| -> Vec<[Option<f64>; 3]> {
                let numbers = |epoch: &Value| ["loss", "valid_loss", "valid_score"].map(|name| epoch[name].as_f64());
                epochs(run).iter().map(numbers).collect()
            };
            assert_eq!(bits(&divided), bits(&together), "features divided among {ranks} ranks");
        }
    }
}

#[test]
fn links_have_the_losses_of_one_process() {
    if !has_mpirun() {
        return;
    }
    let bench = Bench::new();
    let text = (0..240).flat_map(|v| [1, 7, 31].map(|step| format!("{v} {}\n", (v + step) % 240))).collect::<String>();
    fs::write(bench.path().join("e.txt"), text).expect("room");
    bench.text(&["import", "edges", "e.txt", "--symmetrise", "--edge-split", "0.8,0.1,0.1", "-o", "links"]);
    for options in [
        &["--negatives", "3", "--batch-size", "200"][..],
        &["--evaluation", "sampled", "--batch-size", "100", "--score", "average-precision"],
        &["--loss", "bpr", "--decoder", "distmult", "--negative-distribution", "degree", "--score", "mrr"],
        &["--decoder", "mlp", "--sampler", "shadow", "--evaluation", "full", "--score", "filtered-mrr"],
    ] {
        pairs_are_learned_as_by_one_process(&bench, &["links", "--task", "link"], options);
    }
}

/// Classes and values of edges, also of a run that ranks resume, to the same bits, and evaluate together.
#[test]
fn labelled_edges_have_the_losses_of_one_process() {
    if !has_mpirun() {
        return;
    }
    let bench = Bench::new();
    let mut text = "src,dst,kind,cost\n".to_string();
    for (u, v) in (0..240).flat_map(|u| [1, 7, 31].map(|step| (u, (u + step) % 240))) {
        // A tenth of the values is not known, so that ranks have different numbers of them.
        let cost = if (u + v) % 10 == 3 { String::new() } else { format!("{}", f64::from(u % 5) - f64::from(v % 3)) };
        text += &format!("{u},{v},{},{cost}\n", ["a", "b", "c"][((2 * u + v) % 3) as usize]);
    }
    fs::write(bench.path().join("e.csv"), text).expect("room");
    let columns = ["--src", "src", "--dst", "dst", "--edge-label-column", "kind", "--edge-target-columns", "cost"];
    let split = ["--symmetrise", "--edge-split", "0.7,0.15,0.15", "-o", "kinds"];
    bench.text(&[&["import", "edges", "e.csv"], &columns[..], &split].concat());
    for options in [
        &["--loss-option", "class_weights=balanced", "--batch-size", "100", "--score", "macro-f1"][..],
        &["--evaluation", "sampled", "--batch-size", "100", "--score", "macro-f1"],
        &["--task", "regress", "--evaluation", "sampled", "--batch-size", "150", "--score", "rmse"],
        &["--task", "regress", "--loss", "huber", "--sampler", "shadow", "--evaluation", "full", "--score", "rmse"],
    ] {
        pairs_are_learned_as_by_one_process(&bench, &["kinds", "--on", "edges"], options);
    }
    let ranks = |args: &[&str]| -> Value {
        let output = same(&bench, 2, &[args, &["--json"]].concat()).output().expect("mpirun starts");
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        serde_json::from_slice(&output.stdout).expect("one JSON document")
    };
    let sampled = ["--evaluation", "sampled", "--score", "macro-f1", "--batch-size", "100"];
    let train = [&["train", "kinds", "--on", "edges"], &TRAIN[2..], &sampled].concat();
    let whole = ranks(&[&train[..], &["--epochs", "6"]].concat());
    ranks(&[&train[..], &["--epochs", "3", "--run", "run"]].concat());
    let resumed = ranks(&["train", "--resume", "run", "--epochs", "6"]);
    for name in ["loss", "valid_loss", "valid_score"] {
        let of = |run: &Value| -> Vec<Option<f64>> {
            run["epochs"].as_array().expect("epochs").iter().map(|epoch| epoch[name].as_f64()).collect()
        };
        assert_eq!(of(&resumed), of(&whole), "{name}");
    }
    for how in ["full", "sampled"] {
        let evaluate = ["evaluate", "run", "--evaluation", how, "--score", "macro-f1"];
        let (alone, together) = (bench.json(&evaluate), ranks(&evaluate));
        for split in ["train", "valid", "test"] {
            let score = |of: &Value| of[split]["scores"]["macro-f1"].as_f64().expect("a number");
            assert!((score(&alone) - score(&together)).abs() < 0.01, "{how}, {split}: {together}, alone {alone}");
            let loss = |of: &Value| of[split]["loss"].as_f64().expect("a number");
            assert!((loss(&alone) - loss(&together)).abs() < 1e-5, "{how}, {split}: {together}, alone {alone}");
        }
    }
}

/// Typed models with inputs per node type: ranks have the losses of one process; features per node type are not divided among them.
#[test]
fn typed_models_have_the_losses_of_one_process() {
    if !has_mpirun() {
        return;
    }
    let bench = Bench::new();
    bench.text(&["generate", "typed", "-o", "typed", "--nodes", "1000", "--classes", "4", "--dim", "16"]);
    for model in ["rgcn", "rsage", "rgat"] {
        let options = ["--training", "Training_CPU_Burn", "--model", model, "--lr", "0.01"];
        let args = [&["train", "typed", "--json"], &TRAIN[..8], &options].concat();
        let alone = losses(bench.text(&args).as_bytes());
        let output = same(&bench, 2, &args).output().expect("mpirun starts");
        assert!(output.status.success(), "{model}: {}", stderr(&output));
        let together = losses(&output.stdout);
        let near = alone.iter().zip(&together).all(|(a, b)| (a - b).abs() < 1e-4 * a.abs().max(0.1));
        assert!(near && alone.len() == together.len(), "{model}: {together:?}, one process {alone:?}");
        let output = same(&bench, 2, &[&args[..], &["--shard"]].concat()).output().expect("mpirun starts");
        assert!(
            !output.status.success() && stderr(&output).contains("features are per node type"),
            "{}",
            stderr(&output)
        );
    }
}

/// Rows of a task: ranks have the losses, the scores and the predictions of one process.
#[test]
fn rows_have_the_losses_of_one_process() {
    if !has_mpirun() {
        return;
    }
    let bench = Bench::new();
    let source = morphgl_testdata::path("typed/shop/churn.toml");
    bench.text(&["import", "manifest", source.to_str().expect("a path"), "-o", "churn"]);
    let options = ["--training", "Training_CPU_Burn", "--model", "rsage", "--lr", "0.01", "--batch-size", "50"];
    let args = [&["train", "churn", "--json"], &TRAIN[..8], &options, &["--score", "roc-auc"]].concat();
    let near = |found: &[f64], expected: &[f64]| {
        let pairs = found.iter().zip(expected);
        found.len() == expected.len() && { pairs }.all(|(a, b)| (a - b).abs() < 1e-4 * b.abs().max(0.1))
    };
    let alone = losses(bench.text(&[&args[..], &["--run", "alone"]].concat()).as_bytes());
    let output = same(&bench, 2, &[&args[..], &["--run", "together"]].concat()).output().expect("mpirun starts");
    assert!(output.status.success(), "{}", stderr(&output));
    let together = losses(&output.stdout);
    assert!(near(&together, &alone), "{together:?}, one process {alone:?}");
    let json = |args: &[&str]| -> [Value; 2] {
        let args = [args, &["--json"]].concat();
        let output = same(&bench, 2, &args).output().expect("mpirun starts");
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        [bench.text(&args).as_bytes(), &output.stdout].map(|text| serde_json::from_slice(text).expect("a document"))
    };
    let scores = json(&["evaluate", "alone", "--score", "roc-auc"]);
    let [alone, together] = scores.map(|scores| ["valid", "test"].map(|split| scores[split]["scores"].clone()));
    assert_eq!(alone, together, "scores of mini-batches that ranks divide");
    let [alone, together] = json(&["predict", "alone", "--rows", "test"]);
    assert_eq!((&alone["rows"], &alone["classes"]), (&together["rows"], &together["classes"]));
}

/// Ranks that each hold a part of the features train to the same bits as ranks that hold all, and read less of others' rows with
/// copies of the hottest.
#[test]
fn divided_features_are_those_of_the_dataset() {
    if !has_mpirun() {
        return;
    }
    let bench = Bench::new();
    bench.text(&["import", "planetoid", &cora(), "-o", "cora"]);
    let run = |options: &[&str]| -> Value {
        let args = [&["train", "cora", "--json"], &SAMPLED[..], &TRAIN[..], options].concat();
        let output = same(&bench, 4, &args).output().expect("mpirun starts");
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).expect("one JSON document, by rank 0")
    };
    let curve = |run: &Value| -> Vec<(f64, f64)> {
        let number = |epoch: &Value, name: &str| epoch[name].as_f64().expect("a number");
        let epochs = run["epochs"].as_array().expect("epochs");
        epochs.iter().map(|epoch| (number(epoch, "loss"), number(epoch, "valid_loss"))).collect()
    };
    let of_ranks = |run: &Value, name: &str| -> Vec<f64> {
        let ranks = run["ranks"].as_array().expect("ranks");
        ranks.iter().map(|rank| rank["features"][name].as_f64().expect("a number")).collect()
    };
    let (whole, divided, copied) = (run(&[]), run(&["--shard"]), run(&["--shard", "inclusion:2MiB"]));
    assert_eq!(whole["ranks"][0]["features"], Value::Null);
    // Each rank evaluates its part of the mini-batches.
    let alone = bench.json(&[&["train", "cora"], &SAMPLED[..], &TRAIN[..]].concat());
    let accuracies = |run: &Value| -> Vec<f64> {
        let epochs = run["epochs"].as_array().expect("epochs");
        epochs.iter().map(|epoch| epoch["valid_accuracy"].as_f64().expect("an accuracy")).collect()
    };
    let apart = curve(&alone).iter().zip(curve(&whole)).map(|((_, a), (_, b))| (a - b).abs()).fold(0.0, f64::max);
    assert!(apart < 1e-4, "losses of the validation nodes are {apart} apart");
    let apart = accuracies(&alone).iter().zip(accuracies(&whole)).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(apart < 1.5 / 500.0, "accuracies of the 500 validation nodes are {apart} apart");
    assert_eq!(curve(&divided), curve(&whole));
    assert_eq!(curve(&copied), curve(&whole));
    // Of 43 blocks of 64 rows of 1,433 values, ten or eleven, and their map; and the copies.
    let block = 64.0 * 1433.0 * 4.0;
    let (part, copies) = (9.0 * block..11.0 * block + 1e5, 2.0 * 1024.0 * 1024.0);
    assert!(of_ranks(&divided, "held_bytes").iter().all(|held| part.contains(held)));
    // Of the hottest rows, a rank copies those that it does not hold.
    let with_copies = part.start..part.end + copies;
    let held = of_ranks(&copied, "held_bytes");
    assert!(held.iter().all(|held| with_copies.contains(held)), "{held:?}");
    assert!(held.iter().sum::<f64>() > of_ranks(&divided, "held_bytes").iter().sum(), "{held:?}");
    let read = |run: &Value| of_ranks(run, "read_bytes_per_epoch");
    assert!(read(&copied).iter().zip(read(&divided)).all(|(&copied, divided)| copied > 0.0 && copied < divided));
}

#[test]
fn ranks_that_differ_are_named_on_every_rank() {
    if !has_mpirun() {
        return;
    }
    let bench = Bench::new();
    bench.small();
    let other = ["generate", "sbm", "-o", "other", "--nodes", "300", "--classes", "3", "--dim", "8", "--degree", "7"];
    bench.text(&other);
    let program = Path::new(env!("CARGO_BIN_EXE_morphgl"));
    let (small, other) = (["train", "small", "--epochs", "1"], ["train", "other", "--epochs", "1"]);
    let output = mpirun(&bench, &[(program, &small[..]), (program, &other[..])]).output().expect("mpirun starts");
    say(&output, &[0, 1], &["dataset: rank 1 (", "rank 0 (", "digest", "give all ranks the same"]);

    let longer = ["train", "small", "--epochs", "2"];
    let output = mpirun(&bench, &[(program, &small[..]), (program, &longer[..])]).output().expect("mpirun starts");
    say(&output, &[0, 1], &["epochs: rank 1 (", "has 2", "has 1"]);

    // The same program but for its version.
    let mut bytes = fs::read(program).expect("the binary");
    let (version, patched) = (concat!("morphgl ", env!("CARGO_PKG_VERSION")), "morphgl 9.9.9");
    assert_eq!(version.len(), patched.len());
    let places: Vec<usize> =
        bytes.windows(version.len()).enumerate().filter(|(_, w)| *w == version.as_bytes()).map(|(i, _)| i).collect();
    assert!(!places.is_empty(), "the binary does not have {version:?}");
    places.iter().for_each(|&i| bytes[i..i + version.len()].copy_from_slice(patched.as_bytes()));
    let newer = bench.path().join("newer");
    fs::copy(program, &newer).expect("space");
    fs::write(&newer, bytes).expect("space");
    let output = mpirun(&bench, &[(program, &small[..]), (&newer, &small[..])]).output().expect("mpirun starts");
    say(&output, &[0, 1], &["version: rank 1 (", "morphgl 9.9.9", version]);
}

/// Sends rank 2 of 3 a signal while they train; returns the output, and the exit of all processes is waited for.
fn signalled(signal: &str, options: &[&str]) -> (Bench, Output) {
    signal_to(|_, ranks| ranks[2], signal, options)
}

/// Sends a signal to one of these processes: `mpirun` and its three ranks.
fn signal_to(whom: fn(u32, &[u32]) -> u32, signal: &str, options: &[&str]) -> (Bench, Output) {
    let bench = Bench::new();
    bench.small();
    let args =
        [&["train", "small", "--run", "run", "--epochs", "1000000", "--profile-seconds", "0.1"], options].concat();
    let mut command = same(&bench, 3, &args);
    if signal == "-INT" {
        // As the docs advise, so that ranks have time to end by themselves.
        command.env("OMPI_MCA_odls_base_sigkill_timeout", "10");
    }
    let mut child = command.spawn().expect("mpirun starts");
    let ids = ranks_of(child.id(), 3);
    let metrics = bench.path().join("run/metrics.jsonl");
    let start = Instant::now();
    while fs::metadata(&metrics).map_or(0, |m| m.len()) == 0 {
        assert!(start.elapsed() < Duration::from_secs(300), "no epoch in time");
        if child.try_wait().expect("it can be waited for").is_some() {
            let output = child.wait_with_output().expect("it has ended");
            panic!("mpirun has ended before an epoch: {}", stderr(&output));
        }
        thread::sleep(Duration::from_millis(20));
    }
    let sent = Command::new("kill").args([signal, &whom(child.id(), &ids).to_string()]).status().expect("kill runs");
    assert!(sent.success());
    let output = child.wait_with_output().expect("mpirun ends");
    // The kernel takes a moment to end a killed process.
    let start = Instant::now();
    while ids.iter().any(|&id| is_alive(id)) {
        assert!(start.elapsed() < Duration::from_secs(120), "of {ids:?} some are left:\n{}", stderr(&output));
        thread::sleep(Duration::from_millis(20));
    }
    (bench, output)
}

/// Stops rank 2 while it trains, and checks that ranks 0 and 1 name it. On a machine under load healthy ranks wait for one another for
/// seconds, so the time limit is longer.
fn names_the_rank_that_hangs(options: &[&str]) {
    if has_mpirun() {
        let (_bench, output) = signalled("-STOP", &[&["--time-limit", "20"], options].concat());
        // A rank that the stopped one had answered goes on to wait for another rank, which is stuck: it names both.
        say(&output, &[0, 1], &["no answer from trainer", "2 for 20 s"]);
    }
}

#[test]
fn a_rank_that_hangs_is_named() {
    names_the_rank_that_hangs(&[]);
}

/// Ranks that wait for features from the stopped rank, not for its gradients, name it too.
#[test]
fn an_owner_of_rows_that_hangs_is_named() {
    names_the_rank_that_hangs(&["--shard"]);
}

/// Interrupts `mpirun`, as Ctrl-C does: it forwards none of the ranks' output any more, and asks all of them to stop after its timeout.
/// They end after the same step, and a single process resumes from their checkpoint.
#[test]
fn an_interrupt_of_mpirun_keeps_a_checkpoint() {
    if has_mpirun() {
        let (bench, output) = signal_to(|mpirun, _| mpirun, "-INT", &["--json"]);
        let status = fs::read_to_string(bench.path().join("run/status.json")).expect("a status");
        assert!(status.contains("interrupted"), "{status}{}", stderr(&output));
        let metrics = fs::read_to_string(bench.path().join("run/metrics.jsonl")).expect("metrics");
        let trained = metrics.lines().count();
        let resumed = bench.json(&["train", "--resume", "run", "--epochs", &(trained + 1).to_string()]);
        assert_eq!(resumed["ended"], "epochs", "{resumed}");
        assert!(resumed["epochs"].as_array().expect("epochs").len() > trained, "{resumed}");
    }
}

#[test]
fn features_are_divided_among_ranks_alone() {
    let bench = Bench::new();
    bench.small();
    bench.misused(&["train", "small", "--shard"], &["--shard: features are divided among ranks; start them by mpirun"]);
    let full = ["train", "small", "--shard", "--evaluation", "full"];
    bench.misused(&full, &["--evaluation full: no rank of --shard has all features; give sampled or none"]);
}

#[test]
fn a_rank_that_is_killed_is_named() {
    if has_mpirun() {
        let (_bench, output) = signalled("-KILL", &[]);
        say(&output, &[0, 1], &["rank 2"]);
    }
}

#[test]
fn a_request_to_one_rank_stops_all() {
    if has_mpirun() {
        let (bench, output) = signalled("-TERM", &[]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("interrupted"), "{text}{}", stderr(&output));
        let status = fs::read_to_string(bench.path().join("run/status.json")).expect("a status");
        assert!(status.contains("interrupted"), "{status}");
    }
}
