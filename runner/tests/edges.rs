//! Classes, labels and values of edges on the command line: learned, scored, predicted, resumed to the same bits, and what is refused.
#![cfg(all(unix, feature = "cpu"))]

#[path = "support/runs.rs"]
mod runs;
mod support;

use std::fmt::Write;
use std::fs;

use runs::{Training, alike};
use support::{Bench, number, words};

const NODES: u64 = 240;
const TRAIN: &str = "train graph --on edges --threads 2 --hidden 32 --fanouts 5,5 --batch-size 64 --profile-seconds 0.1 \
     --lr 0.01 --plan sequential --dropout 0";

/// The block of a node, of three.
fn block(node: u64) -> u64 {
    node * 7 % 3
}

/// A number from -1 to 1, of its position.
fn noise(i: u64) -> f64 {
    let bits = (i.wrapping_add(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((bits ^ (bits >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

/// What an edge is: `same`, `next` or `last` by the blocks of its ends.
fn kind(source: u64, target: u64) -> &'static str {
    ["same", "next", "last"][((block(target) + 3 - block(source)) % 3) as usize]
}

/// Nodes with noisy features of their block; edges with a class, two labels and a value that follow from the blocks.
fn bench() -> Bench {
    let bench = Bench::new();
    let mut nodes = "id,f0,f1,f2\n".to_string();
    for v in 0..NODES {
        let of = |b: u64| f64::from(u8::from(block(v) == b)) + 0.4 * noise(3 * v + b);
        writeln!(nodes, "{v},{},{},{}", of(0), of(1), of(2)).expect("memory");
    }
    let mut edges = "src,dst,kind,same,first,cost\n".to_string();
    for i in 0..2400u64 {
        let end = |i: u64| ((noise(i) + 1.0) / 2.0 * NODES as f64) as u64 % NODES;
        let (u, v) = (end(2 * i + 10_000), end(2 * i + 10_001));
        // Some labels are not known.
        let first = if i % 7 == 0 { String::new() } else { u8::from(block(v) == 0).to_string() };
        let cost = 3.0 * block(u) as f64 - 2.0 * block(v) as f64 + 0.1 * noise(i);
        writeln!(edges, "{u},{v},{},{},{first},{cost}", kind(u, v), u8::from(block(u) == block(v))).expect("memory");
    }
    fs::write(bench.path().join("nodes.csv"), nodes).expect("room");
    fs::write(bench.path().join("edges.csv"), edges).expect("room");
    import(&bench, "graph", "--edge-label-column kind --edge-target-columns same,first,cost");
    bench
}

fn import(bench: &Bench, dataset: &str, columns: &str) {
    let line = format!(
        "import edges edges.csv -o {dataset} --force --nodes nodes.csv --src src --dst dst {columns} --symmetrise --edge-split 0.7,0.1,0.2"
    );
    bench.text(&words(&line));
}

/// The class of an edge is learned by both operators of the host, on mini-batches of every sampler, and evaluated as in training.
#[test]
fn classes_of_edges_are_learned() {
    let bench = bench();
    for (options, operator) in [
        ("", "Training_CPU_Native"),
        ("--loss-option class_weights=balanced --keep-target-edges", "Training_CPU_Burn"),
        (
            "--sampler shadow --embedding 16 --loss-option label_smoothing=0.05 --score macro-f1 --evaluation full",
            "Training_CPU_Native",
        ),
        ("--sampler walk --layers 2 --evaluation full", "Training_CPU_Native"),
        ("--batching Batching_CPU+Disk_Neighbor --evaluation none", "Training_CPU_Native"),
    ] {
        let run = format!("run{}", options.replace([' ', '-', '=', '_', '.', '+'], ""));
        // Walks have no fanouts.
        let train = if options.contains("walk") { TRAIN.replace("--fanouts 5,5", "") } else { TRAIN.to_string() };
        let line = format!("{train} {options} --training {operator} --epochs 12 --run {run}");
        let trained = bench.json(&words(&line));
        let evaluated =
            bench.json(&["evaluate", &run, "--threads", "1", "--evaluation", "full", "--score", "macro-f1"]);
        let accuracy = number(&evaluated["test"]["accuracy"]);
        // Guessing is right for a third.
        assert!(accuracy > 0.8, "{line}: {accuracy}");
        assert!(number(&evaluated["test"]["scores"]["macro-f1"]) > 0.8, "{line}: {evaluated}");
        assert!(number(&evaluated["train"]["accuracy"]) > 0.8, "{line}: training edges are scored, too");
        if !options.contains("none") {
            let expected =
                if options.contains("macro") { number(&evaluated["test"]["scores"]["macro-f1"]) } else { accuracy };
            let found = number(&trained["test_score"]);
            assert!((expected - found).abs() < 1e-5, "{line}: {expected}, {found} while training");
        }
    }
}

/// Several labels, of which some are not known, one label and values.
#[test]
fn labels_and_values_of_edges_are_learned() {
    let bench = bench();
    let test = |options: &str, score: &str| {
        bench.text(&words(&format!("{TRAIN} {options} --epochs 20 --run run")));
        let evaluated = bench.json(&["evaluate", "run", "--score", score]);
        fs::remove_dir_all(bench.path().join("run")).expect("a run");
        number(&evaluated["test"]["scores"][score])
    };
    import(&bench, "graph", "--edge-target-columns same,first");
    let f1 = test("--task multilabel", "micro-f1");
    assert!(f1 > 0.85, "{f1}");
    import(&bench, "graph", "--edge-target-columns same");
    for decoder in ["dot", "distmult", "mlp"] {
        let area = test(&format!("--task multilabel --decoder {decoder} --training Training_CPU_Native"), "roc-auc");
        assert!(area > 0.9, "{decoder}: {area}");
    }
    import(&bench, "graph", "--edge-target-columns cost");
    for (options, operator) in
        [("", "Training_CPU_Burn"), ("--loss huber --loss-option delta=0.5", "Training_CPU_Native")]
    {
        // Their deviation is about 2.9.
        let error = test(&format!("--task regress {options} --training {operator}"), "rmse");
        assert!(error < 1.2, "{options}: {error}");
    }
}

/// Sampled evaluation embeds each end of an edge by a mini-batch: with all neighbours sampled the scores of each task are those of
/// inference, and where subgraphs or walks are trained on, or the dataset is left on disk, it is the default, by every score.
#[test]
fn sampled_evaluation_scores_edges() {
    let bench = bench();
    let train = TRAIN.replace("--fanouts 5,5", "--fanouts=-1,-1");
    for (columns, task, scores) in [
        ("--edge-label-column kind", "classify", ["accuracy", "macro-f1", "roc-auc"]),
        ("--edge-target-columns same,first", "multilabel", ["accuracy", "micro-f1", "average-precision"]),
        ("--edge-target-columns cost", "regress", ["rmse", "mae", "r2"]),
    ] {
        import(&bench, "graph", columns);
        bench.text(&words(&format!("{train} --task {task} --epochs 3 --run {task}")));
        let asked: String = scores.iter().map(|score| format!(" --score {score}")).collect();
        let [full, sampled] = ["full", "sampled"].map(|how| {
            let scored = bench.json(&words(&format!("evaluate {task} --evaluation {how} --threads 2{asked}")));
            assert_eq!(scored["evaluation"], how);
            scored
        });
        for split in ["train", "valid", "test"] {
            let [full, sampled] = [&full, &sampled].map(|scored| &scored[split]);
            assert!((number(&full["loss"]) - number(&sampled["loss"])).abs() < 1e-5, "{split}: {sampled}, {full}");
            for score in scores {
                let [a, b] = [full, sampled].map(|of| number(&of["scores"][score]));
                // Equal outputs may be ranked otherwise by rounding.
                assert!((a - b).abs() < 2e-3, "{task}, {split}: {score} {b} on mini-batches, {a} by inference");
            }
        }
    }
    import(&bench, "graph", "--edge-label-column kind");
    for options in [
        "--sampler shadow --fanouts 5,5",
        "--sampler walk --layers 2",
        "--fanouts 5,5 --batching Batching_CPU+Disk_Neighbor",
    ] {
        let run = format!("run{}", options.len());
        let train = TRAIN.replace("--fanouts 5,5", "");
        let line = format!("{train} {options} --score macro-f1 --epochs 12 --run {run}");
        let trained = bench.json(&words(&line));
        assert_eq!(trained["training"]["evaluation"], "sampled", "{line}");
        let best = number(&trained["best_valid_score"]);
        assert!(best > 0.8, "{line}: {best}");
        // What was on disk in training is in memory here.
        let evaluated =
            bench.json(&words(&format!("evaluate {run} --evaluation sampled --threads 2 --score macro-f1")));
        let again = number(&evaluated["valid"]["scores"]["macro-f1"]);
        assert!((best - again).abs() < 2e-3, "{line}: {again} after {best} in training");
    }
}

/// A run that is killed within an epoch and resumed has the bits of one that is not; a run can be repeated by its configuration.
#[test]
fn killed_runs_give_the_same_bits() {
    let bench = bench();
    let options = format!("{TRAIN} --training Training_CPU_Native --epochs 15");
    let expected = bench.json(&words(&format!("{options} --run whole")));
    let path = bench.path().join("run");
    let line = format!("{options} --run run --checkpoint-every 5b");
    let mut training = Training::start(bench.command(&words(&line)), &path);
    assert!(!training.wait_for_checkpoint(30), "it has more mini-batches than that");
    training.kill();
    let resumed = bench.json(&["train", "--resume", "run"]);
    alike(&path, &bench.path().join("whole"));
    assert_eq!(resumed["test_score"], expected["test_score"]);
    let again = bench.json(&["train", "--config", "whole/config.toml", "--epochs", "15"]);
    assert_eq!(again["test_score"], expected["test_score"]);
}

/// The class of each edge of a file, by its name, with probabilities; values of edges.
#[test]
fn edges_of_a_file_are_predicted() {
    let bench = bench();
    bench.text(&words(&format!("{TRAIN} --epochs 15 --run run")));
    let pairs: Vec<[u64; 2]> = (0..60).map(|i| [i, (i * 31 + 5) % NODES]).collect();
    let text: String = pairs.iter().map(|[u, v]| format!("{u} {v}\n")).collect();
    fs::write(bench.path().join("pairs.txt"), text).expect("room");
    let predict = ["predict", "run", "--edges", "pairs.txt", "--probabilities"];
    let document = bench.json(&predict);
    assert_eq!(document["class_names"], serde_json::json!(["last", "next", "same"]));
    assert_eq!(document["pairs"][1], serde_json::json!([1, 36]));
    let csv = bench.text(&predict);
    assert_eq!(csv.lines().next(), Some("source,target,class,probability,last,next,same"));
    let mut right = 0;
    for (row, &[u, v]) in csv.lines().skip(1).zip(&pairs) {
        let cells: Vec<&str> = row.split(',').collect();
        assert_eq!(cells[..2], [u.to_string(), v.to_string()]);
        right += usize::from(cells[2] == kind(u, v));
        let probabilities: Vec<f64> = cells[3..].iter().map(|cell| cell.parse().expect("a number")).collect();
        let most = probabilities[1..].iter().copied().fold(0.0, f64::max);
        assert!((probabilities[0] - most).abs() < 1e-5, "{row}");
        assert!((probabilities[1..].iter().sum::<f64>() - 1.0).abs() < 1e-5, "{row}");
    }
    assert!(right > 48, "{right} of 60");
    let written = bench.json(&["predict", "run", "--edges", "pairs.txt", "-o", "classes.npy"]);
    assert_eq!(number(&written["pairs"]), 60.0);
    bench.text(&["predict", "run", "--nodes", "all", "--embeddings", "rows.npy"]);
    import(&bench, "graph", "--edge-target-columns cost");
    bench.text(&words(&format!("{TRAIN} --task regress --epochs 2 --run values")));
    let csv = bench.text(&["predict", "values", "--edges", "pairs.txt"]);
    assert_eq!((csv.lines().next(), csv.lines().count()), (Some("source,target,cost"), 61));
}

#[test]
fn what_does_not_hold_is_refused() {
    let bench = bench();
    bench.text(&["import", "edges", "edges.csv", "-o", "bare", "--nodes", "nodes.csv", "--src", "src", "--dst", "dst"]);
    let train = |dataset: &str, options: &str| format!("train {dataset} --epochs 1 --fanouts 5,5 {options}");
    bench.refused(&words(&train("bare", "--on edges")), &["no labels of edges", "--edge-label-column"]);
    bench.refused(
        &words(&train("bare", "--on edges --task regress")),
        &["no targets of edges", "--edge-target-columns"],
    );
    bench.refused(&words(&train("graph", "")), &["labels of edges, and no training nodes", "--on edges"]);
    bench.refused(&words(&train("graph", "--task regress")), &["--on edges"]);
    bench.refused(&words(&train("graph", "--on edges --task multilabel")), &["learns labels of 0 and 1"]);
    bench.refused(&words(&train("graph", "--on edges --decoder dot")), &["decoder", "use mlp"]);
    bench.misused(&words(&train("graph", "--on edges --task link")), &["--on edges"]);
    bench.misused(&words(&train("graph", "--on edges --negatives 2")), &["--negatives", "without negatives"]);
    bench.misused(&words(&train("graph", "--decoder mlp")), &["--task link or --on edges"]);
    bench.misused(&words(&train("graph", "--on edges --allow-staleness 7")), &["--allow-staleness", "--on edges"]);
    // Without a device there is no second place for a group.
    bench.misused(&words(&train("graph", "--on edges --plan unified")), &["one place alone can train"]);
    bench.text(&words(&train("graph", "--on edges --run run --threads 1 --profile-seconds 0.1")));
    bench.misused(&["predict", "run"], &["the model predicts edges", "--edges FILE"]);
    bench.misused(&["predict", "run", "--top", "3"], &["not whether they do"]);
    bench.misused(&["evaluate", "run", "--score", "mrr"], &["mrr"]);
    bench.refused(&["evaluate", "run", "bare"], &["has no splits", "--edge-split"]);
    // The dataset's links are its labelled edges.
    bench.text(&words(&train("graph", "--task link --threads 1 --profile-seconds 0.1")));
}
