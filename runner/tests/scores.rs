//! Scores other than accuracy: what training goes by, what `evaluate` prints, and what is refused.
#![cfg(feature = "cpu")]

mod support;

use serde_json::Value;
use support::{Bench, number};

/// The operator that trains is given: which one is faster is measured.
const TRAIN: [&str; 15] = [
    "train",
    "small",
    "--training=Training_CPU_Native",
    "--threads",
    "1",
    "--hidden",
    "8",
    "--fanouts",
    "5,5",
    "--batch-size",
    "16",
    "--profile-seconds",
    "0.1",
    "--lr",
    "0.05",
];

/// The best epoch is that of the best score, and the figures of the run, of its rows and of `evaluate` agree.
#[test]
fn training_goes_by_every_score() {
    let bench = Bench::new();
    bench.small();
    for (score, sign) in [
        ("accuracy", 1.0),
        ("loss", -1.0),
        ("balanced-accuracy", 1.0),
        ("macro-f1", 1.0),
        ("roc-auc", 1.0),
        ("average-precision", 1.0),
    ] {
        let run = bench.json(&[&TRAIN[..], &["--epochs", "6", "--score", score, "--run", score]].concat());
        let rows = run["epochs"].as_array().expect("epochs");
        let column = match score {
            "accuracy" => "valid_accuracy",
            "loss" => "valid_loss",
            _ => "valid_score",
        };
        let best = run["best_epoch"].as_u64().expect("an epoch") as usize;
        let of = |row: &Value| (sign * number(&row[column]), -number(&row["valid_loss"]));
        assert!(rows.iter().all(|row| of(row) <= of(&rows[best])), "{score}: epoch {best} of {rows:#?}");
        assert_eq!((&run["score"], &run["best_valid_score"]), (&score.into(), &rows[best][column]));
        let evaluated = bench.json(&["evaluate", score, "--threads", "1", "--score", score]);
        for (split, expected) in [("valid", &run["best_valid_score"]), ("test", &run["test_score"])] {
            let found = number(&evaluated[split]["scores"][score]);
            assert!((found - number(expected)).abs() < 1e-6, "{score} of {split}: {found}, {expected} while training");
        }
    }
}

/// The counts of classes are those of the confusion matrix, and accuracy is its diagonal.
#[test]
fn evaluation_has_scores_and_classes() {
    let bench = Bench::new();
    bench.small();
    bench.json(&[&TRAIN[..], &["--epochs", "3", "--run", "run"]].concat());
    let args = ["evaluate", "run", "--threads", "1", "--score", "macro-f1", "--score", "loss", "--classes"];
    let json = bench.json(&args);
    let test = &json["test"];
    let confusion: Vec<Vec<u64>> = serde_json::from_value(test["confusion"].clone()).expect("a matrix");
    let correct: u64 = (0..confusion.len()).map(|class| confusion[class][class]).sum();
    let nodes: u64 = confusion.iter().flatten().sum();
    assert_eq!((confusion.len(), Some(nodes)), (3, test["nodes"].as_u64()));
    assert_eq!(number(&test["accuracy"]), correct as f64 / nodes as f64);
    assert_eq!(test["scores"]["loss"], test["loss"]);
    let text = bench.text(&args);
    assert!(text.contains("macro-f1") && text.contains("precision"), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("test")).count(), 1 + 3, "{text}");
    let plain = bench.json(&["evaluate", "run", "--threads", "1"]);
    assert!(plain["test"].get("confusion").is_none() && plain["test"]["scores"] == serde_json::json!({}));
    assert_eq!(plain["test"]["accuracy"], test["accuracy"]);
    // The report of the run shows that matrix.
    let page = page(&bench, "run");
    for (class, row) in confusion.iter().enumerate() {
        for (predicted, nodes) in row.iter().enumerate() {
            assert!(
                page.contains(&format!("title=\"{class} as {predicted}: {nodes}\"")),
                "{class}, {predicted}: {nodes}"
            );
        }
    }
}

fn page(bench: &Bench, run: &str) -> String {
    std::fs::read_to_string(bench.path().join(run).join("report.html")).expect("a report")
}

/// The confusion matrix of a page.
fn matrix(page: &str) -> &str {
    let from = page.find("<table class=\"confusion\">").expect("a matrix");
    &page[from..from + page[from..].find("</table>").expect("its end")]
}

/// A run is resumed by the score that it began with, to the same bits.
#[test]
fn a_resumed_run_goes_by_the_same_score() {
    let bench = Bench::new();
    bench.small();
    let train = [&TRAIN[..], &["--score", "macro-f1"]].concat();
    let whole = bench.json(&[&train[..], &["--epochs", "5", "--run", "whole"]].concat());
    bench.json(&[&train[..], &["--epochs", "2", "--run", "parts"]].concat());
    let parts = bench.json(&["train", "--resume", "parts", "--epochs", "5"]);
    for field in ["score", "best_epoch", "best_valid_score", "test_score", "test_accuracy"] {
        assert_eq!(parts[field], whole[field], "{field}");
    }
    let model = |run: &str| std::fs::read(bench.path().join(run).join("model.safetensors")).expect("a model");
    assert!(model("parts") == model("whole"), "the same model");
    assert_eq!(matrix(&page(&bench, "parts")), matrix(&page(&bench, "whole")), "the best model may be an earlier one");
}

#[test]
fn what_cannot_be_scored_is_refused() {
    let bench = Bench::new();
    bench.small();
    let with = |more: &[&'static str]| [&TRAIN[..], more].concat();
    let sampled = with(&["--epochs", "1", "--score", "roc-auc", "--evaluation", "sampled"]);
    bench.misused(&sampled, &["--score roc-auc", "--evaluation full"]);
    bench.misused(&with(&["--score", "loss", "--evaluation", "none"]), &["--score", "--evaluation none"]);
    // Scores of the sums of mini-batches are those of sampled evaluation too.
    bench.json(&with(&["--epochs", "1", "--score", "loss", "--evaluation", "sampled", "--run", "run"]));
    bench.misused(&["evaluate", "run", "--evaluation", "sampled", "--score", "macro-f1"], &["--score macro-f1"]);
    bench.misused(&["evaluate", "run", "--evaluation", "sampled", "--classes"], &["--classes", "--evaluation full"]);
    let loss = bench.json(&["evaluate", "run", "--evaluation", "sampled", "--score", "loss"]);
    assert_eq!(loss["test"]["scores"]["loss"], loss["test"]["loss"]);
}
