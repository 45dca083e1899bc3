//! Rows of a task: nodes at times as examples, from import to predictions, and what is refused.
#![cfg(all(unix, feature = "cpu"))]

#[path = "support/runs.rs"]
mod runs;
mod support;

use std::fs;

use runs::{Training, alike};
use serde_json::Value;
use support::{Bench, number, words};

const TRAIN: &str = "--threads 2 --hidden 16 --layers 2 --batch-size 16 --profile-seconds 0.1 --plan sequential --lr 0.02 \
                     --training Training_CPU_Burn";

/// The shop's task: 200 rows of 40 customers, of which 120 train.
fn bench() -> Bench {
    let bench = Bench::new();
    let source = morphgl_testdata::path("typed/shop/churn.toml");
    bench.text(&["import", "manifest", source.to_str().expect("a path"), "-o", "churn"]);
    bench
}

fn train(bench: &Bench, more: &str) -> Value {
    bench.json(&words(&format!("train churn {TRAIN} {more}")))
}

fn losses(trained: &Value) -> Vec<f64> {
    trained["epochs"].as_array().expect("epochs").iter().map(|epoch| number(&epoch["loss"])).collect()
}

/// What the import says, in text and as JSON; a run learns, is scored as training said, by scores of outputs, too, and predicts each row.
#[test]
fn rows_are_imported_learned_scored_and_predicted() {
    let bench = bench();
    let text = bench.text(&["info", "churn", "--check"]);
    for line in [
        "task      200 rows of 40 nodes, at times from 240 to 360; labels, targets and splits are of rows",
        "labels    2 classes, 200 rows labelled",
        "targets   1 per row (bought), 200 rows with any, 0 values unknown",
        "splits    train 120, valid 40, test 40",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let info = bench.json(&["info", "churn"]);
    let expected = serde_json::json!({ "rows": 200, "nodes": 40, "first_time": 240, "last_time": 360 });
    assert_eq!((&info["task"], &info["version"]), (&expected, &3.into()));

    let trained = train(&bench, "--model rsage --fanouts 5,5 --epochs 12 --score roc-auc --run run");
    assert_eq!(trained["training"]["evaluation"], "sampled", "{}", trained["training"]);
    let report = &trained["epochs"][0]["report"];
    assert_eq!(
        (&report["seeds"], &report["batches"]),
        (&120.into(), &8.into()),
        "an epoch is planned and trained by rows"
    );
    let losses = losses(&trained);
    assert!(losses[11] < 0.97 * losses[0], "{losses:?}");
    let evaluated = bench.json(&words("evaluate run --score roc-auc --score macro-f1 --classes"));
    let best = number(&trained["best_valid_score"]);
    let valid = number(&evaluated["valid"]["scores"]["roc-auc"]);
    assert!((best - valid).abs() < 1e-9, "{best} in training, {valid} evaluated");
    assert_eq!(evaluated["test"]["nodes"], 40, "{evaluated}");
    assert!(evaluated["test"]["confusion"].is_array(), "{evaluated}");
    let table = bench.text(&words("evaluate run"));
    assert!(table.contains("rows") && table.contains("Batching_CPU_Typed"), "{table}");

    let predicted = bench.text(&words("predict run --rows test --probabilities"));
    let lines: Vec<&str> = predicted.lines().collect();
    assert_eq!((lines[0], lines.len()), ("node,time,class,probability,no,yes", 41));
    assert!(lines[1].starts_with("customer:100,360,"), "{}", lines[1]);
    let all = bench.json(&words("predict run"));
    assert_eq!(all["rows"].as_array().map(Vec::len), Some(200));
    assert_eq!(all["rows"][0], serde_json::json!(["customer:100", 240]));
    let written = bench.text(&words("predict run --rows all -o rows.csv"));
    assert!(written.contains("200 rows predicted, written to rows.csv"), "{written}");
}

/// A generated database has rows that a model learns from the customers' earlier events.
#[test]
fn generated_rows_are_learned() {
    let bench = Bench::new();
    bench.text(&words("generate relational -o orders --task next-order --nodes 6000 --classes 4 --dim 16"));
    let info = bench.json(&["info", "orders"]);
    assert!(number(&info["task"]["rows"]) > 2000.0 && info["types"].is_object(), "{info}");
    let trained = bench.json(&words(
        "train orders --model rsage --fanouts 8,4 --hidden 32 --layers 2 --batch-size 256 --epochs 4 --lr 0.01 --threads 2 \
         --profile-seconds 0.1 --plan sequential",
    ));
    // One class in four by chance, and at most as many as the share of a customer's own class.
    let accuracy = number(&trained["test_accuracy"]);
    assert!((0.5..0.78).contains(&accuracy), "{accuracy}");
    bench.misused(&words("generate typed -o other --task next-order"), &["--task: relational alone reads it"]);
}

/// With all neighbours sampled, predictions on mini-batches are those with all neighbours.
#[test]
fn predictions_on_sampled_mini_batches() {
    let bench = Bench::new();
    bench.text(&words("generate sbm -o small --nodes 600 --dim 8 --classes 4"));
    bench.text(&words(&format!("train small {TRAIN} --model sage --fanouts 4,4 --epochs 2 --run run")));
    let outputs = |more: &str| -> Vec<f64> {
        let predicted = bench.json(&words(&format!("predict run --nodes test --probabilities {more}")));
        let rows = predicted["outputs"].as_array().expect("outputs");
        rows.iter().flat_map(|row| row.as_array().expect("a row")).map(number).collect()
    };
    let (full, all) = (outputs("--evaluation full"), outputs("--evaluation sampled --fanouts -1,-1"));
    assert_eq!(full.len(), 120 * 4);
    assert!(full.iter().zip(&all).all(|(a, b)| (a - b).abs() < 1e-4), "the same neighbours");
    let few = outputs("--evaluation sampled");
    assert!(full.iter().zip(&few).any(|(a, b)| (a - b).abs() > 1e-3), "fewer neighbours, as the run sampled");
    bench.misused(&words("predict run --evaluation sampled --embeddings rows.npy"), &["--evaluation sampled"]);
    let shop = self::bench();
    train(&shop, "--model rsage --fanouts 5,5 --epochs 1 --run run");
    shop.misused(&words("predict run --evaluation full"), &["within their times"]);
}

/// Values are learned of the same rows; other models than typed ones sample by edge type for them, too.
#[test]
fn targets_and_untyped_models() {
    let bench = bench();
    let trained = train(&bench, "--model rgcn --task regress --fanouts 5,5 --epochs 6 --run values");
    let losses = losses(&trained);
    assert!(losses[5] < losses[0], "{losses:?}");
    let scored = bench.json(&words("evaluate values --score mae --score r2"));
    assert!(number(&scored["test"]["scores"]["mae"]) > 0.0, "{scored}");
    let predicted = bench.text(&words("predict values --rows valid"));
    assert!(predicted.starts_with("node,time,bought\ncustomer:100,330,"), "{predicted}");
    let trained = train(&bench, "--model sage --fanouts 5,5 --epochs 2");
    let sampler = &trained["training"]["evaluation"];
    assert_eq!(sampler, "sampled", "{}", trained["training"]);
}

/// Nothing later than a row has a part in what is learned and predicted of it: with a hundred orders more, all behind the last row, losses
/// and predictions are the same; with one before a row, another customer's rows are the same and its own are not.
#[test]
fn the_future_changes_nothing() {
    let bench = bench();
    let shop = bench.path().join("shop");
    fs::create_dir(&shop).expect("room");
    for entry in fs::read_dir(morphgl_testdata::path("typed/shop")).expect("the shop") {
        let entry = entry.expect("an entry");
        fs::copy(entry.path(), shop.join(entry.file_name())).expect("room");
    }
    let orders = fs::read_to_string(shop.join("orders.csv")).expect("orders");
    // Weights are normalised by nothing that the graph has later.
    let later: String =
        (0..100).map(|i| format!("{},{},tea-1,{},3\n", 1000 + i, 100 + 7 * (i % 40), 361 + i)).collect();
    fs::write(shop.join("orders.csv"), orders + &later).expect("room");
    bench.text(&words("import manifest shop/churn.toml -o longer"));
    let run = |dataset: &str, options: &str| {
        let run = format!("{dataset}-{}", options.replace([' ', '='], ""));
        let trained = bench.json(&words(&format!("train {dataset} {TRAIN} {options} --epochs 3 --run {run}")));
        (losses(&trained), bench.text(&words(&format!("predict {run} --rows all --probabilities"))))
    };
    for options in [
        "--model rsage --fanouts 4,4",
        "--model rgat --fanouts 4,4 --sampler-option temporal=last",
        "--model sage --fanouts 4,4 --weighted",
        "--model hgt --fanouts -1,3",
    ] {
        assert_eq!(run("churn", options), run("longer", options), "{options}");
    }
}

/// The same node at two times is predicted by two graphs; rows of a file are those of the task where all neighbours are sampled.
#[test]
fn rows_of_a_file_are_any_nodes_at_any_times() {
    let bench = bench();
    train(&bench, "--model rsage --fanouts -1,-1 --epochs 3 --run run");
    let of = |text: &str| {
        fs::write(bench.path().join("rows.txt"), text).expect("room");
        let predicted = bench.json(&words("predict run --rows rows.txt --probabilities"));
        predicted["outputs"].as_array().expect("outputs").clone()
    };
    let all = bench.json(&words("predict run --probabilities"));
    let found = of("customer:100,240\n\n107\t240\n100 360\n");
    assert_eq!((&found[0], &found[1], &found[2]), (&all["outputs"][0], &all["outputs"][1], &all["outputs"][160]));
    let times = of("100,200\n100,400\n100,-9000000000\n");
    assert!(times[0] != times[1] && times[2] != times[1], "{times:?}");
    for (text, what) in [
        ("100\n", "\"100\" is no row; give a node and a time"),
        ("100,1.5\n", "is no row"),
        ("5,240\n", "\"5\" is no node"),
    ] {
        fs::write(bench.path().join("rows.txt"), text).expect("room");
        bench.refused(&words("predict run --rows rows.txt"), &["rows.txt, line 1", what]);
    }
}

/// From disk, with and without caches by counting, a reordered dataset, and the threads of the host: the same losses and scores.
#[test]
fn disk_order_and_threads_change_no_bit() {
    let bench = bench();
    const KEY: &str = "Batching_CPU+Disk_Typed";
    let source = morphgl_testdata::path("typed/shop/churn.toml");
    let source = source.to_str().expect("a path");
    bench.text(&["import", "manifest", source, "-o", "churn", "--drop-weights", "--force"]);
    let of_threads = |threads: &str, dataset: &str, more: &str| {
        let train = TRAIN.replace("--threads 2", &format!("--threads {threads}"));
        let args = format!("train {dataset} {train} --model rsage --fanouts 4,4 --epochs 2 --score roc-auc {more}");
        let trained = bench.json(&words(&args));
        (losses(&trained), number(&trained["best_valid_score"]))
    };
    let of = |dataset: &str, more: &str| of_threads("2", dataset, more);
    let expected = of("churn", "");
    for cache in ["none", "presample:1:100KiB", "auto"] {
        assert_eq!(
            of("churn", &format!("--batching {KEY} --memory 400MiB --cache {cache}")),
            expected,
            "--cache {cache}"
        );
    }
    for threads in ["1", "3"] {
        assert_eq!(of_threads(threads, "churn", ""), expected, "--threads {threads}");
    }
    bench.text(&words("reorder churn -o reordered"));
    assert_eq!(of("reordered", "--run reordered-run"), expected, "reordered");
    let rows = bench.json(&words("predict reordered-run --rows test"))["rows"].clone();
    assert_eq!(rows[0], serde_json::json!(["customer:100", 360]));
}

#[test]
fn a_run_that_is_killed_gives_the_same_bits() {
    let bench = bench();
    let run = |name: &str| format!("train churn {TRAIN} --model rgat --fanouts 4,4 --epochs 6 --run {name}");
    bench.json(&words(&run("undisturbed")));
    let path = bench.path().join("killed");
    let command = bench.command(&words(&format!("{} --checkpoint-every 2b", run("killed"))));
    let mut training = Training::start(command, &path);
    assert!(!training.wait_for_checkpoint(3), "it has more mini-batches than that");
    training.kill();
    bench.json(&["train", "--resume", "killed"]);
    alike(&path, &bench.path().join("undisturbed"));
}

#[test]
fn links_of_a_dataset_with_a_task_are_learned_without_it() {
    let bench = bench();
    let trained = train(&bench, "--task link --model rsage --fanouts 4,4 --epochs 1 --run links");
    assert_eq!(losses(&trained).len(), 1);
    bench.text(&words("predict links --top 1"));
    bench.misused(&words("predict links --rows all"), &["--rows all", "predicts pairs", "leave it out"]);
}

#[test]
fn what_does_not_hold_is_refused_by_name() {
    let bench = bench();
    bench.small();
    let refused = |args: &str, of: &[&str]| bench.refused(&words(args), of);
    let misused = |args: &str, of: &[&str]| bench.misused(&words(args), of);
    for (sampler, fanouts) in [("neighbor", "--fanouts 4,4"), ("shadow", "--fanouts 4,4"), ("walk", "")] {
        refused(
            &format!("train churn --model sage --layers 2 --sampler {sampler} {fanouts}"),
            &[
                "churn: no operator here samples rows of a task by",
                sampler,
                "--sampler typed",
                "operators that take rows",
            ],
        );
    }
    for (operator, sampler) in [("Neighbor", "neighbor"), ("Walk", "walk"), ("Shadow", "shadow")] {
        refused(
            &format!("train churn --model sage --layers 2 --sampler {sampler} --batching Batching_CPU_{operator}"),
            &[&format!("Batching_CPU_{operator}"), "does not take rows of a task", "takes_rows"],
        );
    }
    refused(
        "train churn --model rsage --layers 2 --fanouts 4,4 --sampler-option temporal=no",
        &["temporal=no", "rows of a task", "give uniform or last"],
    );
    for model in ["gcn", "gin"] {
        refused(
            &format!("train churn --model {model} --layers 2 --fanouts 4,4"),
            &["churn", model, "in-degrees", "use sage, gat or a typed model"],
        );
    }
    misused(
        "train churn --model rsage --evaluation full",
        &["--evaluation full", "within their times", "sampled or none"],
    );
    misused("train churn --model sage --allow-staleness 8", &["--allow-staleness", "rows of a task", "leave it out"]);
    train(&bench, "--model rsage --fanouts 4,4 --epochs 1 --run run");
    misused("predict run --nodes test", &["rows of its task are predicted, not nodes", "--rows"]);
    misused("predict run --embeddings rows.npy", &["rows of its task are predicted, not nodes", "--rows"]);
    misused("evaluate run --evaluation full", &["--evaluation full", "within their times"]);
    bench.json(&words("train small --threads 2 --epochs 1 --run of-nodes --profile-seconds 0.1"));
    misused("predict of-nodes --rows all", &["--rows all", "no task", "leave it out"]);
}
