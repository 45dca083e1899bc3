//! The operator has its row in `morphgl ops`, forms a route, and trains.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

fn morphgl(args: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_morphgl-checked")).args(args).output().expect("the binary starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

#[test]
fn it_is_listed_and_forms_a_route() {
    let ops = morphgl(&["ops", "--json"]);
    let row = ops["operators"].as_array().expect("a list").iter().find(|o| o["key"] == "Transferring_CPU_Checked");
    assert_eq!(row.expect("the operator is listed")["available"], true);
    let routes = ops["routes"].as_array().expect("a list");
    let through = |key: &str| routes.iter().filter(|r| r["transferring"] == key).count();
    // It can replace the host's transfer in every route.
    assert!(through("Transferring_CPU_Checked") > 0, "{routes:?}");
    assert_eq!(through("Transferring_CPU_Checked"), through("Transferring_CPU_Host"), "{routes:?}");
}

#[test]
fn it_trains_as_the_host_transfer_does() {
    let train = |key: &str| {
        let args = ["train", "--json", "--epochs", "1", "--hidden", "8", "--layers", "2", "--fanouts", "3,3"];
        // Of two trainers that are about as fast the choice may be either, and their losses differ by rounding.
        let one = ["--training", "Training_CPU_Native", "--transferring", key];
        let report = morphgl(&[&args[..], &["--evaluation", "none", "--profile-seconds", "0.1"], &one].concat());
        report["epochs"][0]["loss"].as_f64().expect("a loss")
    };
    assert_eq!(train("Transferring_CPU_Checked"), train("Transferring_CPU_Host"));
}

#[test]
fn its_option_is_listed_set_and_checked_and_its_counter_is_reported() {
    let ops = morphgl(&["ops", "--json"]);
    let row = ops["operators"].as_array().expect("a list").iter().find(|o| o["key"] == "Transferring_CPU_Checked");
    let row = row.expect("the operator is listed");
    assert_eq!(row["options"][0]["name"], "every");
    assert_eq!(row["counters"][0]["name"], "checked_batches");

    let small = ["train", "--json", "--epochs", "2", "--hidden", "8", "--layers", "2", "--fanouts", "3,3"];
    let quick = ["--evaluation", "none", "--profile-seconds", "0.1", "--transferring", "Transferring_CPU_Checked"];
    let train = |set: &[&str]| morphgl(&[&small[..], &quick, set].concat());
    let counted =
        |report: &Value| report["counters"]["Transferring_CPU_Checked"]["checked_batches"].as_u64().expect("a count");
    let all = train(&[]);
    let batches = all["epochs"][0]["report"]["batches"].as_u64().expect("a count");
    assert!(batches > 3);
    assert_eq!(counted(&all), 2 * batches);
    let third = train(&["--set", "Transferring_CPU_Checked.every=3"]);
    assert_eq!(counted(&third), 2 * batches.div_ceil(3));
    assert_eq!(third["config"]["options"]["Transferring_CPU_Checked"]["every"], 3);
    // A training operator that lacks the model (GIN) is left out, even where another operator of its route has an option set.
    let gin = train(&["--model", "gin", "--set", "Transferring_CPU_Checked.every=3"]);
    assert_eq!(counted(&gin), 2 * batches.div_ceil(3));

    for (set, words) in [("evry=3", "did you mean \"every\""), ("every=often", "give whole number of mini-batches")] {
        let set = format!("Transferring_CPU_Checked.{set}");
        let mut wrong = Command::new(env!("CARGO_BIN_EXE_morphgl-checked"));
        let output = wrong.args(small).args(["--set", &set]).output().expect("the binary starts");
        assert_eq!(output.status.code(), Some(2));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(words), "{stderr}");
    }
}

#[test]
fn its_sampler_reads_from_disk_is_planned_and_counts() {
    let key = "Batching_CPU+Disk_Mapped";
    let ops = morphgl(&["ops", "--json"]);
    let row = ops["operators"].as_array().expect("a list").iter().find(|o| o["key"] == key).expect("it is listed");
    assert_eq!((&row["reads"], &row["counters"][0]["name"]), (&"disk".into(), &"sampled_edges".into()));

    let dir = tempfile::tempdir().expect("a folder");
    let dataset = dir.path().join("graph").display().to_string();
    morphgl(&["generate", "sbm", "-o", &dataset, "--nodes", "3000", "--json"]);
    let small = ["train", &dataset, "--json", "--epochs", "1", "--hidden", "8", "--layers", "2", "--fanouts", "3,3"];
    let quick = ["--evaluation", "none", "--profile-seconds", "0.1", "--batch-size", "256", "--batching"];
    // One trainer: of two that are about as fast, the choice may be either, and their losses differ by rounding.
    let one = ["--training", "Training_CPU_Native"];
    let train = |key: &str| morphgl(&[&small[..], &quick, &[key], &one].concat());
    let (mapped, memory) = (train(key), train("Batching_CPU_Neighbor"));
    assert_eq!(mapped["plan"]["schedule"]["shares"][0]["keys"]["batching"], key);
    assert!(mapped["counters"][key]["sampled_edges"].as_u64().expect("a count") > 0);
    assert_eq!(mapped["epochs"][0]["loss"], memory["epochs"][0]["loss"]);
}

/// `morphgl-checked` on a line of arguments, of which `@name` is a path in `dir`: its status, stdout and stderr.
fn run(dir: &Path, line: &str) -> (Option<i32>, String, String) {
    let arg = |word: &str| word.strip_prefix('@').map_or(word.to_string(), |name| dir.join(name).display().to_string());
    let mut command = Command::new(env!("CARGO_BIN_EXE_morphgl-checked"));
    let output = command.args(line.split_whitespace().map(arg)).output().expect("the binary starts");
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (output.status.code(), stdout, stderr)
}

fn text(dir: &Path, line: &str) -> String {
    let (status, stdout, stderr) = run(dir, line);
    assert_eq!(status, Some(0), "{line}: {stderr}");
    stdout
}

fn document(dir: &Path, line: &str) -> Value {
    serde_json::from_str(&text(dir, &format!("{line} --json"))).expect("one JSON document")
}

const LABOR: &str = "Batching_CPU_Labor";

/// The kind of sampling that a crate declares is listed, its settings are checked, and `auto` chooses it for no other kind.
#[test]
fn its_kind_of_sampling_is_listed_and_its_settings_are_checked() {
    let dir = tempfile::tempdir().expect("a folder");
    let ops = document(dir.path(), "ops");
    let find = |list: &str, field: &str, value: &str| {
        ops[list].as_array().expect("a list").iter().find(|o| o[field] == value).expect("it is listed").clone()
    };
    let operator = find("operators", "key", LABOR);
    assert_eq!((&operator["interchangeable"], &operator["samplers"]), (&true.into(), &json!(["labor"])));
    let settings = find("samplers", "name", "labor")["settings"].clone();
    assert_eq!((&settings[0]["name"], &settings[1]["unit"]), (&"layer_dependency".into(), &"mini-batches".into()));
    let listed = text(dir.path(), "ops --options");
    assert!(
        listed.contains("--sampler labor\n") && listed.contains("  batch_dependency = whole number (mini-batches)")
    );
    assert!(text(dir.path(), "train --help").contains("labor:"), "the help lists the kinds that are linked");

    document(dir.path(), "generate sbm -o @graph --nodes 3000");
    let small = "train @graph --epochs 1 --hidden 8 --layers 2 --profile-seconds 0.1 --batch-size 256";
    for (options, words) in [
        ("--sampler labour", "neighbor, shadow, walk, labor"),
        ("--sampler labor --sampler-option layer_dependence=true", "did you mean \"layer_dependency\""),
        ("--sampler labor --sampler-option layer_dependency=1", "--sampler-option: sampler labor: "),
        ("--sampler-option layer_dependency=true", "sampler neighbor: \"layer_dependency\" is none of its options"),
        ("--sampler labor --walks 3", "--walks: --sampler labor does not read it"),
        ("--sampler labor --fanouts 3", "give one fanout per layer"),
        ("--sampler labor --batching Batching_CPU_Neighbor", "does not sample by labor; give --sampler neighbor"),
        ("--batching Batching_CPU_Labor", "does not sample by neighbor; give --sampler labor"),
    ] {
        let (status, stdout, stderr) = run(dir.path(), &format!("{small} {options}"));
        assert_eq!((status, &*stdout), (Some(2), ""), "{options}: {stderr}");
        assert!(stderr.contains(words), "{options}: {stderr}");
    }
    let auto = document(dir.path(), &format!("{small} --evaluation sampled --fanouts 3,3"));
    let routes = auto["profile"]["routes"].as_array().expect("routes");
    assert!(routes.iter().all(|r| r["route"]["batching"] != LABOR), "not even measured: {routes:?}");
    assert_eq!(auto["training"]["sampled_by"], "Batching_CPU_Neighbor");
}

/// A kind of sampling of another crate is planned, trained, resumed, configured and evaluated as those of this repository are.
#[test]
fn its_kind_of_sampling_trains_as_others_do() {
    let dir = tempfile::tempdir().expect("a folder");
    document(dir.path(), "generate sbm -o @graph --nodes 3000");
    let quick = "--hidden 8 --layers 2 --profile-seconds 0.1 --batch-size 256 --training Training_CPU_Native";
    let labor = "--sampler labor --fanouts 3,4 --sampler-option batch_dependency=2";
    let train = |more: &str| document(dir.path(), &format!("train @graph {quick} {labor} {more}"));
    let sampling = |report: &Value| report["config"]["sampler"].clone();

    // Planned by its operator alone, which samples for the evaluation as well; settings that are not given have their defaults.
    let whole = train("--epochs 2 --run @whole");
    let routes = whole["profile"]["routes"].as_array().expect("routes");
    assert!(!routes.is_empty() && routes.iter().all(|r| r["route"]["batching"] == LABOR), "{routes:?}");
    assert_eq!(whole["training"]["sampled_by"], LABOR);
    let settings = sampling(&whole);
    assert_eq!((&settings["sampler"], &settings["fanouts"]), (&"labor".into(), &"3,4".into()));
    assert_eq!(settings["settings"], json!({ "batch_dependency": 2, "layer_dependency": false }));
    let counted = |report: &Value, name: &str| report["counters"][LABOR][name].as_u64().expect("a count");
    assert!(counted(&whole, "kept_edges") > 0);
    // The option changes no mini-batch, the setting does.
    let reserved = train("--epochs 2 --set Batching_CPU_Labor.reserve=5000");
    assert_eq!(reserved["epochs"][1]["loss"], whole["epochs"][1]["loss"]);
    let layers = train("--epochs 2 --sampler-option layer_dependency=true");
    assert_ne!(counted(&layers, "input_nodes"), counted(&whole, "input_nodes"));
    // A run of one epoch that is resumed ends where the whole one does.
    train("--epochs 1 --run @half");
    let resumed = document(dir.path(), "train --resume @half --epochs 2");
    assert_eq!((sampling(&resumed), &resumed["epochs"][1]["loss"]), (settings.clone(), &whole["epochs"][1]["loss"]));
    let configured = document(dir.path(), "train --config @whole/config.toml --profile-seconds 0.1 --epochs 1");
    assert_eq!((sampling(&configured), &configured["epochs"][0]["loss"]), (settings, &whole["epochs"][0]["loss"]));

    // An evaluation samples as the run did, but for what is given.
    let evaluated = document(dir.path(), "evaluate @whole");
    assert_eq!((&evaluated["evaluation"], &evaluated["sampled_by"]), (&"sampled".into(), &LABOR.into()));
    let words = format!(
        "sampled by {LABOR}: labor, fanouts 3,4, expanding all nodes found, batch_dependency=2, layer_dependency="
    );
    for (options, end) in [("", "false\n"), ("--sampler-option layer_dependency=true", "true\n")] {
        let text = text(dir.path(), &format!("evaluate @whole {options}"));
        assert!(text.contains(&format!("{words}{end}")), "{text}");
    }
    let report = fs::read_to_string(dir.path().join("whole/report.html")).expect("a report");
    assert!(report.contains("labor") && report.contains("kept_edges"), "the report names the kind and its counters");
    let shown = text(dir.path(), &format!("train @graph {quick} {labor} --epochs 1"));
    assert!(shown.contains("kept_edges") && shown.contains("mini-batches sampled by labor, fanouts 3,4"), "{shown}");

    // A program that does not link the kind says which it has.
    let config = fs::read_to_string(dir.path().join("whole/config.toml")).expect("the configuration");
    fs::write(dir.path().join("other.toml"), config.replace("\"labor\"", "\"labour\"")).expect("room");
    let (status, _, stderr) = run(dir.path(), "train --config @other.toml");
    assert!(status != Some(0) && stderr.contains("\"labour\"; there are neighbor, shadow, walk, labor"), "{stderr}");
}
