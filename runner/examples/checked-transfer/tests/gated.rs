//! The model, the loss and the score of this crate.

mod outside;

use std::fs;
use std::process::{Command, Output};

use morphgl_conformance::training::{Subject, check};
use serde_json::{Value, json};

// Linked for what it submits.
use morphgl_transferring_cpu_checked as _;

#[test]
fn the_model_and_the_loss_conform() {
    let models = [
        json!({"kind": "gated"}),
        json!({"kind": "gated", "settings": {"aggregation": "mean"}, "loss": "focal", "loss_settings": {"gamma": 1.5}}),
        json!({"kind": "sage", "loss": "focal"}),
    ];
    check(&Subject { submitted: &models, ..Subject::new(&morphgl_training_cpu_burn::DESCRIPTION) });
}

/// The walk-through of a model, a loss and a score, outside of the repository.
#[test]
fn the_model_and_the_loss_compile_outside_of_the_workspace() {
    outside::compiles("## A model, a loss and a score\n", include_str!("../src/gated.rs"));
}

struct Morphgl {
    dir: tempfile::TempDir,
}

impl Morphgl {
    /// A folder with the dataset `graph`.
    fn new() -> Self {
        let morphgl = Self { dir: tempfile::tempdir().expect("a folder") };
        morphgl.json("generate sbm -o graph --nodes 1500 --classes 4 --dim 16 --json");
        morphgl
    }

    fn output(&self, line: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_morphgl-checked"));
        command.args(line.split_whitespace()).current_dir(self.dir.path()).output().expect("the binary starts")
    }

    #[track_caller]
    fn json(&self, line: &str) -> Value {
        let output = self.output(line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("one JSON document")
    }

    /// The error line of wrong usage.
    #[track_caller]
    fn refused(&self, line: &str) -> String {
        let output = self.output(line);
        assert_eq!(output.status.code(), Some(2), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.dir.path().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }
}

const SMALL: &str = "--hidden 8 --layers 2 --fanouts 3,3 --batch-size 64 --threads 1 --profile-seconds 0.1 --json";

#[test]
fn they_are_listed_with_their_settings() {
    let morphgl = Morphgl::new();
    let ops = morphgl.json("ops --json");
    let names = |what: &str| -> Vec<&str> {
        ops[what].as_array().expect("a list").iter().map(|entry| entry["name"].as_str().expect("a name")).collect()
    };
    assert_eq!((names("models"), names("losses")), (vec!["gated"], vec!["focal"]));
    assert_eq!(names("scores"), ["worst-recall"]);
    assert_eq!(ops["losses"][0]["settings"][0]["name"], "gamma");
    let text = |line: &str| String::from_utf8(morphgl.output(line).stdout).expect("text");
    assert!(text("ops").contains("--model gated") && text("ops --options").contains("gamma = number, default 2"));
}

/// Planned, trained, resumed to the same bits, evaluated, predicted and reported.
#[test]
fn a_run_is_like_one_of_a_built_in_model() {
    let morphgl = Morphgl::new();
    let submitted = "--model gated --model-option aggregation=mean --loss focal --loss-option gamma=1.5";
    let plan = morphgl.json(&format!("plan graph {submitted} {SMALL}"));
    assert_eq!(plan["plan"]["schedule"]["shares"][0]["keys"]["training"], "Training_CPU_Burn");

    let train = format!("train graph {submitted} {SMALL} --lr 0.03 --evaluation full");
    let whole = morphgl.json(&format!("{train} --epochs 4 --run whole"));
    let losses: Vec<f64> = (0..4).map(|i| whole["epochs"][i]["valid_loss"].as_f64().expect("a loss")).collect();
    assert!(losses[3] < 0.9 * losses[0] && losses[3] > 0.0, "{losses:?}");
    let model = &whole["config"]["spec"]["model"];
    let expected = json!([{"aggregation": "mean"}, "focal", {"gamma": 1.5}]);
    assert_eq!(json!([model["settings"], model["loss"], model["loss_settings"]]), expected);

    // The operators without the model are left out, in one line.
    let words = String::from_utf8(morphgl.output(&format!("{train} --epochs 1")).stderr).expect("text");
    assert_eq!(words.matches("left out").count(), 1, "{words}");
    assert!(words.contains("left out: the model gated: "), "{words}");

    morphgl.json(&format!("{train} --epochs 2 --run parts"));
    morphgl.json("train --resume parts --epochs 4 --json");
    assert_eq!(morphgl.read("parts/model.safetensors"), morphgl.read("whole/model.safetensors"));

    let best = whole["best_epoch"].as_u64().expect("an epoch") as usize;
    let scores = morphgl.json("evaluate whole --json --threads 1");
    let loss = scores["valid"]["loss"].as_f64().expect("a loss");
    assert!((loss - losses[best]).abs() < 1e-6, "{loss} evaluated, {losses:?} while training");
    let sampled = morphgl.json("evaluate whole --evaluation sampled --json")["valid"]["loss"].as_f64().expect("a loss");
    assert!((sampled - loss).abs() < 0.5 * loss, "{sampled} on samples, {loss} with all neighbours");
    morphgl.json("predict whole/model.safetensors graph -o classes.csv --json");
    assert_eq!(String::from_utf8(morphgl.read("classes.csv")).expect("text").lines().count(), 1501);
    let page = String::from_utf8(morphgl.read("whole/report.html")).expect("text");
    assert!(page.contains("Mean focal loss") && page.contains("gated on"), "the loss and the model by name");
}

#[test]
fn a_loss_is_trained_with_built_in_models() {
    let morphgl = Morphgl::new();
    let train = |options: &str| morphgl.json(&format!("train graph {SMALL} --epochs 2 --evaluation sampled {options}"));
    let of = |report: &Value| report["epochs"][1]["valid_loss"].as_f64().expect("a loss");
    let (focal, entropy) = (train("--model sage --loss focal"), train("--model sage"));
    let key = &focal["plan"]["schedule"]["shares"][0]["keys"]["training"];
    assert_eq!(key, "Training_CPU_Burn");
    assert!(of(&focal) < of(&entropy), "a focal loss is below the cross-entropy");
    assert!(entropy["config"]["spec"]["model"].get("loss").is_none(), "the default is not written");
}

/// A submitted loss is the one that early stopping watches: the best epoch is the one with the highest accuracy, then the least loss.
#[test]
fn early_stopping_goes_by_the_loss() {
    let morphgl = Morphgl::new();
    let train = "train graph --model sage --loss focal --loss-option gamma=3 --lr 0.3 --patience 2 --epochs 60 --evaluation full";
    let report = morphgl.json(&format!("{train} {SMALL}"));
    let epochs = report["epochs"].as_array().expect("a list");
    assert!(epochs.len() < 60 && report["ended"] == "patience", "{} epochs, {}", epochs.len(), report["ended"]);
    let score = |epoch: &Value| {
        let of = |name: &str| epoch[name].as_f64().expect("a figure");
        (of("valid_accuracy"), -of("valid_loss"))
    };
    let best = (0..epochs.len()).max_by(|&a, &b| {
        let (a, b) = (score(&epochs[a]), score(&epochs[b]));
        a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    assert_eq!(report["best_epoch"].as_u64().map(|epoch| epoch as usize), best);
    assert_eq!(epochs.len(), best.expect("an epoch") + 3, "two epochs without a better one");
}

/// A submitted score is what the best model and early stopping go by: the best epoch is the one with the highest recall of the worst
/// class, then the least loss. It stands in the run's files, its report, and the scores of an evaluation.
#[test]
fn early_stopping_goes_by_the_score() {
    let morphgl = Morphgl::new();
    let train =
        "train graph --training Training_CPU_Native --score worst-recall --lr 0.1 --patience 3 --evaluation full";
    let train = format!("{train} {SMALL}");
    let report = morphgl.json(&format!("{train} --epochs 60 --run whole"));
    let epochs = report["epochs"].as_array().expect("a list");
    assert!(epochs.len() < 60 && report["ended"] == "patience", "{} epochs, {}", epochs.len(), report["ended"]);
    let of = |epoch: &Value, name: &str| epoch[name].as_f64().expect("a figure");
    let key = |at: &usize| (of(&epochs[*at], "valid_score"), -of(&epochs[*at], "valid_loss"));
    let best = (0..epochs.len()).max_by(|a, b| key(a).partial_cmp(&key(b)).expect("numbers")).expect("an epoch");
    assert_eq!(report["best_epoch"].as_u64().map(|epoch| epoch as usize), Some(best));
    assert_eq!(epochs.len(), best + 4, "three epochs without a better one");
    assert_eq!(report["best_valid_score"], epochs[best]["valid_score"]);

    morphgl.json(&format!("{train} --epochs 1 --run parts"));
    morphgl.json("train --resume parts --epochs 60 --json");
    assert!(morphgl.read("parts/model.safetensors") == morphgl.read("whole/model.safetensors"), "the same model");
    let scores = morphgl.json("evaluate whole --threads 1 --score worst-recall --json");
    let evaluated = scores["valid"]["scores"]["worst-recall"].as_f64().expect("a score");
    assert!((evaluated - of(&epochs[best], "valid_score")).abs() < 1e-6, "{evaluated}");
    let page = String::from_utf8(morphgl.read("whole/report.html")).expect("text");
    assert!(page.contains("Test worst-recall") && page.contains("Validation score"), "the score by its name");
    let again = morphgl.json("train --config whole/config.toml graph --epochs 1 --json");
    assert_eq!(again["score"], "worst-recall");
    let refused = morphgl.refused(&format!("train graph {SMALL} --score worst-recall --evaluation sampled"));
    assert!(refused.contains("--score worst-recall") && refused.contains("--evaluation full"), "{refused}");
}

#[test]
fn what_is_unknown_or_wrong_is_refused_with_what_there_is() {
    let morphgl = Morphgl::new();
    for (options, words) in [
        ("--model gate", ", custom, gated"),
        ("--loss hinge", "use one of cross-entropy, bce, mse, mae, huber, bpr, margin, focal"),
        ("--score f1", "average-precision, mae, rmse, r2, mrr, filtered-mrr, worst-recall, hits@K, filtered-hits@K"),
        (
            "--model gated --model-option agregation=sum",
            "--model-option: \"agregation\" is none of its options; did you mean",
        ),
        ("--model gated --model-option aggregation=max", "option aggregation is \"max\"; give sum, mean"),
        ("--model sage --model-option aggregation=sum", "it has no options"),
        ("--loss focal --loss-option gamma=0.5", "--loss-option: gamma is 0.5; give 1 or more"),
        ("--loss focal --loss-option gamma", "expected NAME=VALUE"),
    ] {
        let refused = morphgl.refused(&format!("train graph {SMALL} {options}"));
        assert!(refused.contains(words), "{options}: {refused}");
    }
    let native = morphgl.output(&format!("train graph {SMALL} --model gated --training Training_CPU_Native"));
    let text = String::from_utf8_lossy(&native.stderr).into_owned();
    assert!(!native.status.success() && text.contains("error: the model gated: "), "{text}");
}
