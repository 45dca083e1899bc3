//! Tasks besides the class of a node: labels and values of nodes, from training to predictions, and what is refused.
#![cfg(all(unix, feature = "cpu"))]

#[path = "support/runs.rs"]
mod runs;
mod support;

use std::fs;

use morphgl_graph_store::{Dataset, DatasetWriter, FeatureMatrix, OpenOptions};
use runs::{Training, alike};
use serde_json::{Map, Value, json};
use support::{Bench, number, words};

const TRAIN: &str =
    "--threads 2 --hidden 16 --fanouts 5,5 --batch-size 8 --profile-seconds 0.1 --plan sequential --lr 0.05";

/// The graph of `small` with targets instead of labels: functions of a node's class and its first feature, of which a tenth is not
/// known.
fn write(bench: &Bench, name: &str, target_names: &[&str], target: &dyn Fn(f32, f32, usize) -> f32) {
    let small = Dataset::open(bench.path().join("small"), OpenOptions::default()).expect("sound");
    let Some(FeatureMatrix::F32 { data, dim }) = &small.features else { panic!("f32 features") };
    let labels = small.labels.as_ref().expect("labels");
    let width = target_names.len();
    let value = |i: usize| match i % 10 {
        7 => f32::NAN,
        _ => target(labels[i / width] as f32, data[i / width * dim], i % width),
    };
    let targets: Vec<f32> = (0..small.num_nodes() * width).map(value).collect();
    let mut writer = DatasetWriter::create(bench.path().join(name), false).expect("a fresh path");
    writer.array("indptr", small.topology.indptr(), None).expect("room");
    writer.array("indices", small.topology.indices(), None).expect("room");
    writer.array("features", data, Some(*dim)).expect("room");
    writer.array("targets", &targets, Some(width)).expect("room");
    for (split, nodes) in [("train", &small.splits.train), ("valid", &small.splits.valid), ("test", &small.splits.test)]
    {
        writer.array(split, nodes, None).expect("room");
    }
    let mut provenance = Map::new();
    provenance.insert("target_names".to_string(), json!(target_names));
    writer.finish(name, 0, provenance.into_iter().collect()).expect("arrays that fit");
}

fn bench() -> Bench {
    let bench = Bench::new();
    bench.small();
    write(&bench, "values", &["height", "weight"], &|class, first, column| match column {
        0 => 2.0 * class - first,
        _ => 10.0 - class,
    });
    write(&bench, "labels", &["low", "odd", "positive"], &|class, first, column| {
        f32::from(u8::from(match column {
            0 => class < 2.0,
            1 => class % 2.0 == 1.0,
            _ => first > 0.0,
        }))
    });
    bench
}

/// Every loss of labels and values learns, by both operators of the host; the best model is the one of the best score, and
/// `evaluate` says the same as training did.
#[test]
fn labels_and_values_are_learned() {
    let bench = bench();
    for (data, options, score, highest) in [
        ("labels", "--task multilabel", "micro-f1", true),
        ("labels", "--task multilabel --loss-option positive_weight=2 --score roc-auc", "roc-auc", true),
        ("values", "--task regress", "rmse", false),
        ("values", "--task regress --loss mae --score mae", "mae", false),
        ("values", "--task regress --loss huber --loss-option delta=0.5 --score r2", "r2", true),
        ("small", "--loss-option label_smoothing=0.1 --loss-option class_weights=balanced", "accuracy", true),
    ] {
        for operator in ["Training_CPU_Native", "Training_CPU_Burn"] {
            let run = format!("{}-{operator}", options.replace([' ', '-'], ""));
            let line = format!("train {data} {TRAIN} {options} --training {operator} --epochs 8 --run {run}");
            let trained = bench.json(&words(&line));
            let rows = trained["epochs"].as_array().expect("epochs");
            let [first, last] = [&rows[0], &rows[7]].map(|row| number(&row["loss"]));
            assert!(last < 0.8 * first, "{line}: the loss went from {first} to {last}");
            assert_eq!(trained["score"], score, "{line}");
            let of = |row: &Value| {
                let value = if score == "accuracy" { "valid_accuracy" } else { "valid_score" };
                if highest { number(&row[value]) } else { -number(&row[value]) }
            };
            let best = trained["best_epoch"].as_u64().expect("an epoch") as usize;
            assert!(rows.iter().all(|row| of(row) <= of(&rows[best])), "{line}: epoch {best} of {rows:#?}");
            let evaluated = bench.json(&["evaluate", &run, "--threads", "1", "--score", score]);
            for (split, expected) in [("valid", &trained["best_valid_score"]), ("test", &trained["test_score"])] {
                let found = number(&evaluated[split]["scores"][score]);
                let near = (found - number(expected)).abs() < 1e-5 * found.abs().max(1.0);
                assert!(near, "{line}: {split} {found}, {expected} while training");
            }
            assert_eq!(evaluated["valid"]["accuracy"].is_null(), data == "values", "{line}");
        }
    }
}

/// A run that is killed within an epoch and resumed has the bits of one that is not, for each task.
#[test]
fn killed_runs_give_the_same_bits() {
    let bench = bench();
    for (data, options) in [
        ("labels", "--task multilabel --dropout 0.3"),
        ("values", "--task regress --loss huber --score mae"),
        ("small", "--loss-option label_smoothing=0.1"),
    ] {
        let [whole, run] = ["whole", "run"].map(|name| format!("{name}-{data}"));
        let options = format!("train {data} {TRAIN} {options} --training Training_CPU_Native --epochs 20");
        let expected = bench.json(&words(&format!("{options} --run {whole}")));
        let path = bench.path().join(&run);
        let line = format!("{options} --run {run} --checkpoint-every 5b");
        let mut training = Training::start(bench.command(&words(&line)), &path);
        assert!(!training.wait_for_checkpoint(30), "it has more mini-batches than that");
        training.kill();
        let resumed = bench.json(&["train", "--resume", &run]);
        alike(&path, &bench.path().join(&whole));
        assert_eq!(resumed["best_valid_score"], expected["best_valid_score"], "{line}");
        // A run by the configuration of another one has its task and loss.
        let again = bench.json(&["train", "--config", &format!("{whole}/config.toml"), "--epochs", "20"]);
        assert_eq!(again["score"], expected["score"], "{line}");
    }
}

/// Predictions are the probabilities of labels, values, and the probability of every class, in every format.
#[test]
fn predictions_have_a_column_each() {
    let bench = bench();
    for (data, options) in [("labels", "--task multilabel"), ("values", "--task regress"), ("small", "")] {
        let line = format!("train {data} {TRAIN} {options} --epochs 4 --save {data}.safetensors");
        bench.text(&words(&line));
        let model = format!("{data}.safetensors");
        let predict: &[&str] = match data {
            "small" => &["predict", &model, data, "--nodes", "test", "--probabilities"],
            _ => &["predict", &model, data, "--nodes", "test"],
        };
        let document = bench.json(predict);
        let rows = document["outputs"].as_array().expect("rows");
        let csv = bench.text(predict);
        let mut lines = csv.lines();
        let header = lines.next().expect("a header");
        let columns = match data {
            "labels" => "node,low,odd,positive",
            "values" => "node,height,weight",
            _ => "node,class,probability,0",
        };
        assert!(header.starts_with(columns), "{header}");
        for (line, row) in lines.zip(rows) {
            let values: Vec<f64> = row.as_array().expect("a row").iter().map(number).collect();
            let cells: Vec<f64> = line.split(',').map(|cell| cell.parse().expect("a number")).collect();
            let outputs = &cells[cells.len() - values.len()..];
            assert!(outputs.iter().zip(&values).all(|(a, b)| (a - b).abs() < 1e-5), "{line}: {values:?}");
            match data {
                "labels" => assert!(values.iter().all(|p| (0.0..=1.0).contains(p)), "{line}"),
                "small" => assert!((values.iter().sum::<f64>() - 1.0).abs() < 1e-5, "{line}"),
                _ => {}
            }
        }
        bench.text(&[predict, &["-o", "out.npy"]].concat());
        let bytes = fs::read(bench.path().join("out.npy")).expect("a file");
        let header = String::from_utf8_lossy(&bytes[..128]).to_string();
        let width = rows[0].as_array().expect("a row").len();
        assert!(header.contains("<f4") && header.contains(&format!(", {width})")), "{header}");
    }
}

/// Layers are split and mini-batches are scored of labels and values as of classes.
#[test]
fn layer_split_and_sampled_evaluation_have_tasks() {
    let bench = bench();
    for (data, options) in [("labels", "--task multilabel"), ("values", "--task regress")] {
        for mode in ["--allow-staleness 31 --hot-ratio 0.5", "--plan sequential --evaluation sampled"] {
            let line = TRAIN.replace("--plan sequential", mode);
            let line = format!("train {data} {line} {options} --training Training_CPU_Native --epochs 6");
            let trained = bench.json(&words(&line));
            let rows = trained["epochs"].as_array().expect("epochs");
            let [first, last] = [&rows[0], &rows[5]].map(|row| number(&row["loss"]));
            assert!(last < first, "{line}: the loss went from {first} to {last}");
            assert!(rows.iter().all(|row| number(&row["valid_loss"]) < 100.0), "{line}: {rows:#?}");
            let usual = if data == "labels" { "micro-f1" } else { "rmse" };
            assert_eq!(trained["score"], if mode.contains("sampled") { "loss" } else { usual }, "{line}");
        }
    }
}

/// Asserts that a command fails with one line of error that contains all of `words`.
#[track_caller]
fn fails(bench: &Bench, args: &[&str], words: &[&str]) {
    let output = bench.run(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{args:?} succeeds");
    let error = stderr.lines().find(|line| line.starts_with("error:")).unwrap_or_default();
    assert!(words.iter().all(|word| error.contains(word)), "{args:?}: {stderr}, expected {words:?}");
}

/// What does not fit is refused with the option that does.
#[test]
fn misfits_are_refused_by_name() {
    let bench = bench();
    for (line, text) in [
        ("train small --task regress", "import it with --targets"),
        ("train values", "--task regress"),
        ("train values --task multilabel", "labels of 0 and 1"),
        ("train small --loss mse", "--loss: mse is no loss of the task classify"),
        ("train values --task regress --loss bce", "use one of mse, mae, huber"),
        ("train values --task regress --score accuracy", "use one of loss, mae, rmse, r2"),
        ("train small --score mrr", "--score"),
        ("train small --decoder dot", "--task link"),
        ("train small --negatives 3", "--task link"),
        ("train small --loss-option gamma=2", "gamma"),
        ("train small --loss-option class_weights=1,2", "2 numbers for"),
        ("train small --task edges", "use one of classify, multilabel, regress, link"),
    ] {
        fails(&bench, &words(&format!("{line} --profile-seconds 0.1 --epochs 1")), &[text]);
    }
    bench.text(&words(&format!("train values {TRAIN} --task regress --epochs 1 --save values.safetensors")));
    fails(&bench, &["evaluate", "values.safetensors", "values", "--score", "micro-f1"], &["mae, rmse, r2"]);
    fails(&bench, &["evaluate", "values.safetensors", "values", "--classes"], &["--classes"]);
    fails(&bench, &["predict", "values.safetensors", "values", "--edges", "pairs.csv"], &["give --nodes"]);
    fails(&bench, &["evaluate", "values.safetensors", "labels"], &["targets"]);
}
