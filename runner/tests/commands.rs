//! Every command prints one JSON document with the fields that docs/json.md lists, and text that says the same.
#![allow(clippy::print_stdout, reason = "a test that cannot run here says so")]

mod support;

use std::fs;

use serde_json::Value;
use support::Bench;

#[track_caller]
fn has(json: &Value, fields: &[&str]) {
    for field in fields {
        assert!(json.get(field).is_some(), "no field {field:?} in {json:#}");
    }
}

const QUICK: [&str; 8] = ["--layers", "2", "--hidden", "16", "--fanouts", "5,5", "--profile-seconds", "0.2"];

fn quick(args: &[&'static str]) -> Vec<&'static str> {
    [args, &QUICK].concat()
}

#[test]
fn ops() {
    let bench = Bench::new();
    let json = bench.json(&["ops"]);
    has(&json, &["machine", "operators", "routes"]);
    has(&json["machine"], &["cpu", "cores", "memory_bytes", "available_bytes", "accelerators"]);
    for operator in json["operators"].as_array().expect("a list") {
        has(operator, &["key", "phase", "hardware", "operator", "summary", "reads", "writes", "available", "reason"]);
    }
    let text = bench.text(&["ops"]);
    assert!(
        text.contains("Batching_CPU_Neighbor → Transferring_CPU_Host → Training_CPU_Burn (trained at host)"),
        "{text}"
    );
}

#[test]
fn generate_and_info() {
    let bench = Bench::new();
    bench.small();
    let json = bench.json(&["info", "small", "--check"]);
    has(&json, &["name", "num_nodes", "num_edges", "num_classes", "feature_dim", "feature_dtype", "degree", "splits"]);
    has(&json, &["weighted", "labelled", "bytes", "arrays", "provenance", "version", "path"]);
    assert_eq!(
        (&json["num_nodes"], &json["checked"], &json["splits"]["train"]),
        (&300.into(), &true.into(), &180.into())
    );
    let text = bench.text(&["info", "small"]);
    assert!(text.contains("nodes     300\n") && text.contains("splits    train 180, valid 60, test 60\n"), "{text}");
}

#[test]
fn import_describes_what_it_made() {
    let bench = Bench::new();
    fs::write(bench.path().join("e.csv"), "src,dst,weight\n0,1,0.5\n1,2,2\n").expect("room");
    let args = ["import", "edges", "e.csv", "-o", "e", "--symmetrise", "--random-features", "4", "--dtype", "f16"];
    let json = bench.json(&args);
    assert_eq!((&json["num_nodes"], &json["num_edges"], &json["weighted"]), (&3.into(), &4.into(), &true.into()));
    assert_eq!((&json["feature_dim"], &json["feature_dtype"]), (&4.into(), &"f16".into()));

    // Columns by name, isolated nodes, and a note about unused columns.
    fs::write(bench.path().join("t.csv"), "id,to,from,minutes\n0,1,0,7\n1,1,1,9\n").expect("room");
    let args = [
        "import",
        "edges",
        "t.csv",
        "-o",
        "t",
        "--src",
        "from",
        "--dst",
        "to",
        "--num-nodes",
        "4",
        "--drop-self-loops",
    ];
    let json = bench.json(&args);
    assert_eq!((&json["num_nodes"], &json["num_edges"], &json["weighted"]), (&4.into(), &1.into(), &false.into()));
    assert_eq!((&json["degree"]["no_in_edges"], &json["degree"]["isolated"]), (&3.into(), &2.into()));
    let notes = ["columns: source 3, target 2 of 4; left out: id, minutes", "1 self-loop was dropped"];
    assert_eq!(json["provenance"]["notes"], serde_json::json!(notes));
    let text = bench.text(&["info", "t"]);
    assert!(notes.iter().all(|note| text.contains(&format!("note      {note}\n"))), "{text}");
    assert!(text.contains("3 nodes without, 2 of them isolated"), "{text}");
    assert!(text.lines().count() <= 10, "{text}");
    bench.refused(&["import", "edges", "t.csv", "-o", "u"], &["t.csv, line 1", "\"minutes\"", "--src", "--columns"]);
}

/// Nodes with names, and data in a table; the summary has at most ten lines, and predictions have the names.
#[test]
fn nodes_have_files_and_names() {
    let bench = Bench::new();
    let name = |i: usize| format!("user {i:02}");
    let (mut edges, mut nodes) = ("follower,followed\n".to_string(), "name,kind,split,f0,f1,age\n".to_string());
    for i in 0..40 {
        edges += &format!("{},{}\n{},{}\n", name(i), name(i * 7 % 40), name(i), name(i));
        let split = ["train", "valid", "test", ""][i % 4];
        nodes += &format!("{},{},{split},{}.5,{},9\n", name(i), ["cat", "dog"][i % 2], i % 2, i % 5);
    }
    fs::write(bench.path().join("e.csv"), edges).expect("room");
    fs::write(bench.path().join("n.csv"), nodes).expect("room");
    let import = ["import", "edges", "e.csv", "-o", "d", "--force"];
    let columns =
        ["--src", "follower", "--dst", "followed", "--label-column", "kind", "--drop-self-loops", "--symmetrise"];
    let args = [&import[..], &["--ids", "strings", "--nodes", "n.csv"], &columns].concat();
    let json = bench.json(&args);
    assert_eq!((&json["num_nodes"], &json["num_classes"], &json["feature_dim"]), (&40.into(), &2.into(), &2.into()));
    let tens = serde_json::json!({ "train": 10, "valid": 10, "test": 10 });
    assert_eq!((&json["splits"]["train"], &json["splits"]["labelled"]), (&10.into(), &tens));
    assert_eq!(json["provenance"]["feature_names"], serde_json::json!(["f0", "f1"]));
    assert_eq!(json["provenance"]["class_names"], serde_json::json!(["cat", "dog"]));
    assert_eq!(json["provenance"]["feature_names"], serde_json::json!(["f0", "f1"]));
    let notes = json["provenance"]["notes"].as_array().expect("a list").clone();
    assert!(notes.len() > 3, "{notes:?}");
    let text = bench.text(&args);
    assert!(text.lines().count() <= 10, "{text}");
    assert!(notes.iter().all(|note| text.contains(note.as_str().expect("text"))), "{text}");

    bench.json(&quick(&["train", "d", "--epochs", "2", "--save", "m.safetensors"]));
    let predicted = bench.text(&["predict", "m.safetensors", "d"]);
    assert!(predicted.starts_with("node,class,probability\nuser 00,"), "{predicted}");
    let named = |line: &str| line.split(',').nth(1).is_some_and(|class| ["cat", "dog"].contains(&class));
    assert!(predicted.lines().skip(1).all(named), "classes have their names: {predicted}");
    fs::write(bench.path().join("some.txt"), "user 07\nuser 03\n").expect("room");
    let some = bench.json(&["predict", "m.safetensors", "d", "--nodes", "some.txt"]);
    assert_eq!(some["nodes"], serde_json::json!(["user 07", "user 03"]));
    fs::write(bench.path().join("some.txt"), "nobody\n").expect("room");
    bench.refused(
        &["predict", "m.safetensors", "d", "--nodes", "some.txt"],
        &["some.txt, line 1", "\"nobody\"", "names"],
    );

    bench.misused(&[&import[..], &["--id-column", "1"]].concat(), &["--id-column", "--nodes"]);
    bench.misused(&[&import[..], &["--ids", "strings", "--first-id", "1"]].concat(), &["--first-id", "--ids"]);
    bench.refused(&[&import[..], &["--ids", "strings"]].concat(), &["\"follower\"", "--src", "--columns src,dst"]);
}

#[test]
fn profile_and_plan() {
    let bench = Bench::new();
    bench.small();
    let json = bench.json(&quick(&["profile", "small", "--save", "p.json"]));
    has(&json["profile"], &["version", "machine", "num_batches", "routes", "seconds"]);
    for args in [&["plan", "--profile", "p.json"][..], &quick(&["plan", "small"])] {
        let json = bench.json(args);
        has(&json, &["plan", "plans", "what_if", "problem", "profile"]);
        has(&json["plan"], &["strategy", "schedule", "prediction", "memory"]);
        has(&json["plan"]["prediction"], &["epoch_seconds", "bound_seconds", "bottleneck", "utilisation"]);
        let plans = json["plans"].as_array().expect("a list");
        let least =
            plans.iter().map(|p| p["prediction"]["epoch_seconds"].as_f64().expect("seconds")).fold(f64::MAX, f64::min);
        assert_eq!(json["plan"]["prediction"]["epoch_seconds"].as_f64(), Some(least));
    }
    assert!(bench.text(&["plan", "--profile", "p.json"]).contains("predicted"));
}

#[test]
fn train_evaluate_predict() {
    let bench = Bench::new();
    bench.small();
    let args =
        quick(&["train", "small", "--epochs", "12", "--lr", "0.03", "--run", "run", "--save", "model.safetensors"]);
    let json = bench.json(&args);
    has(&json, &["test_accuracy", "best_valid_accuracy", "best_epoch", "predicted_epoch_seconds", "plan", "ended"]);
    has(
        &json,
        &["measured_epoch_seconds", "peak_rss_bytes", "dataset", "config", "profile", "epochs", "run", "test_loss"],
    );
    let epochs = json["epochs"].as_array().expect("a list");
    assert_eq!(epochs.len(), 12);
    has(
        &epochs[0],
        &["epoch", "seconds", "evaluation_seconds", "loss", "train_accuracy", "valid_accuracy", "valid_loss", "report"],
    );
    assert!(json["test_accuracy"].as_f64().expect("a number") > 0.5, "three classes are told apart: {json:#}");

    // The saved model is the best one, and scores as it did.
    let scores = bench.json(&["evaluate", "model.safetensors", "small"]);
    assert_eq!(scores["test"]["accuracy"], json["test_accuracy"]);
    assert_eq!(scores["valid"]["accuracy"], json["best_valid_accuracy"]);
    assert_eq!(bench.json(&["evaluate", "run"]), scores, "a run's model, on its dataset");
    let predicted = bench.text(&["predict", "model.safetensors", "small"]);
    assert_eq!(bench.text(&["predict", "run"]), predicted);
    let sampled = ["evaluate", "model.safetensors", "small", "--evaluation", "sampled", "--fanouts=-1,-1"];
    let difference = |a: &Value, b: &Value| (a.as_f64().expect("a number") - b.as_f64().expect("a number")).abs();
    assert!(
        difference(&bench.json(&sampled)["test"]["accuracy"], &json["test_accuracy"]) < 0.02,
        "all neighbours either way"
    );

    // Another run starts from it: one epoch at a learning rate of almost nothing changes almost nothing.
    let args_init = ["train", "small", "--epochs", "1", "--lr", "1e-9", "--init", "model.safetensors"];
    let again = bench.json(&quick(&args_init));
    assert!(difference(&again["test_accuracy"], &json["test_accuracy"]) < 0.02, "{again:#}");
    let words = ["model.safetensors", "not the parameters of this model", "convs.0"];
    bench.refused(
        &["train", "small", "--model", "gat", "--profile-seconds", "0.1", "--init", "model.safetensors"],
        &words,
    );

    // A graph without labels or splits is predicted on; one with a test split alone is evaluated.
    let small = morphgl_graph_store::Dataset::open(bench.path().join("small"), Default::default()).expect("sound");
    for (name, test, renamed) in [("bare", false, false), ("tested", true, false), ("renamed", false, true)] {
        let mut writer =
            morphgl_graph_store::DatasetWriter::create(bench.path().join(name), false).expect("a fresh path");
        writer.array("indptr", small.topology.indptr(), None).expect("room");
        writer.array("indices", small.topology.indices(), None).expect("room");
        let Some(morphgl_graph_store::FeatureMatrix::F32 { data, dim }) = &small.features else {
            panic!("f32 features")
        };
        writer.array("features", data, Some(*dim)).expect("room");
        if test {
            writer.array("labels", small.labels.as_ref().expect("labels"), None).expect("room");
            writer.array("test", &small.splits.test, None).expect("room");
        }
        if renamed {
            let ids: Vec<u64> = (0..300).map(|v| 1_000_000_000_000 + 7 * v).collect();
            writer.array("node_ids", &ids, None).expect("room");
        }
        writer.finish(name, if test { 3 } else { 0 }, Default::default()).expect("arrays that fit");
    }
    let all = bench.json(&["predict", "model.safetensors", "small"]);
    assert_eq!(bench.json(&["predict", "model.safetensors", "bare"]), all);
    // Nodes have the ids of the graph's source.
    fs::write(bench.path().join("ids.txt"), "1000000000014\n1000000000000\n").expect("room");
    let two = bench.json(&["predict", "model.safetensors", "renamed", "--nodes", "ids.txt"]);
    assert_eq!(two["nodes"], serde_json::json!([1_000_000_000_014u64, 1_000_000_000_000u64]));
    assert_eq!((&two["classes"][0], &two["classes"][1]), (&all["classes"][2], &all["classes"][0]));
    fs::write(bench.path().join("ids.txt"), "2\n").expect("room");
    let words = ["ids.txt, line 1", "give ids as the graph's source has them"];
    bench.refused(&["predict", "model.safetensors", "renamed", "--nodes", "ids.txt"], &words);
    for how in ["full", "sampled"] {
        let scores = bench.json(&["evaluate", "model.safetensors", "tested", "--evaluation", how]);
        assert_eq!((scores.get("valid"), &scores["test"]["nodes"]), (None, &60.into()));
    }

    let csv = bench.text(&["predict", "model.safetensors", "small", "--nodes", "test"]);
    assert_eq!((csv.lines().next(), csv.lines().count()), (Some("node,class,probability"), 61));
    fs::write(bench.path().join("ids.txt"), "5\n3\n\n").expect("room");
    let json = bench.json(&["predict", "model.safetensors", "small", "--nodes", "ids.txt"]);
    assert_eq!(json["nodes"], serde_json::json!([5, 3]));
    bench.text(&["predict", "model.safetensors", "small", "-o", "classes.npy"]);
    assert!(bench.path().join("classes.npy").exists());

    let mut files: Vec<_> =
        fs::read_dir(bench.path().join("run")).expect("there").map(|f| f.expect("there").file_name()).collect();
    files.sort();
    let expected = ["checkpoints", "config.toml", "metrics.jsonl", "model.safetensors", "plan.json", "report.html"];
    assert_eq!(files, [&expected[..], &["status.json", "trace.json"]].concat());
    assert_eq!(fs::read_to_string(bench.path().join("run/metrics.jsonl")).expect("there").lines().count(), 12);
    bench.misused(&args, &["--run run", "it holds a run already"]);
}

/// One epoch of the default model is well above the features alone.
#[test]
fn the_embedded_default_needs_the_graph() {
    let bench = Bench::new();
    let test = |model: &str| {
        let args = ["train", "--epochs", "1", "--profile-seconds", "0.5", "--model", model];
        bench.json(&args)["test_accuracy"].as_f64().expect("a number")
    };
    let (sage, mlp) = (test("sage"), test("mlp"));
    assert!(sage >= 0.85 && sage >= mlp + 0.10, "GraphSAGE {sage}, MLP {mlp}");
}

#[test]
fn a_dataset_without_validation_nodes_is_tested_at_the_end() {
    let bench = Bench::new();
    let args = ["generate", "sbm", "-o", "two", "--nodes", "300", "--classes", "3", "--degree", "6"];
    bench.text(&[&args[..], &["--split", "0.8,0,0.2"]].concat());
    let json = bench.json(&quick(&["train", "two", "--epochs", "2"]));
    assert!(json["test_accuracy"].is_f64() && json["best_epoch"].is_null(), "{json:#}");
}

#[test]
fn training_is_repeatable_whatever_the_threads_and_the_loading() {
    let bench = Bench::new();
    bench.small();
    let losses = |extra: &[&'static str]| {
        let json =
            bench.json(&[&quick(&["train", "small", "--epochs", "2", "--evaluation", "none"])[..], extra].concat());
        let epochs = json["epochs"].as_array().expect("a list").clone();
        epochs.iter().map(|e| e["loss"].as_f64().expect("a number")).collect::<Vec<_>>()
    };
    let first = losses(&["--threads", "1"]);
    for extra in [&["--threads", "1", "--mmap"][..], &["--threads", "3"], &["--plan", "sequential"]] {
        let again = losses(extra);
        let off = first.iter().zip(&again).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(off < 1e-5, "{extra:?}: {again:?} and {first:?}");
    }
}

/// The same run writes the same bytes, on any number of threads.
#[test]
fn a_repeated_run_writes_the_same_model_file() {
    let bench = Bench::new();
    let args = ["generate", "sbm", "-o", "graph", "--nodes", "3000", "--classes", "5", "--dim", "40", "--degree", "8"];
    bench.text(&args);
    for training in ["Training_CPU_Native", "Training_CPU_Burn"] {
        let model = |extra: &[&'static str]| {
            let args = ["train", "graph", "--epochs", "3", "--batch-size", "256", "--training", training];
            bench.text(&[&args[..], &QUICK, &["--save", "model.safetensors"], extra].concat());
            fs::read(bench.path().join("model.safetensors")).expect("there")
        };
        let first = model(&[]);
        for extra in [&[][..], &["--plan", "sequential"], &["--threads", "1"], &["--seed", "1"]] {
            let again = model(extra);
            assert_eq!(first == again, extra != ["--seed", "1"], "{training} {extra:?}");
        }
    }
}

#[test]
fn early_stopping_and_sampled_evaluation() {
    let bench = Bench::new();
    bench.small();
    let args =
        quick(&["train", "small", "--epochs", "200", "--patience", "2", "--evaluation", "sampled", "--lr", "0.05"]);
    let json = bench.json(&args);
    assert_eq!(json["ended"], "patience", "{json:#}");
    let (best, epochs) =
        (json["best_epoch"].as_u64().expect("an epoch"), json["epochs"].as_array().expect("a list").len());
    assert_eq!(epochs as u64, best + 3, "two epochs after the best one");
}

/// Waits until `there`.
#[cfg(unix)]
#[track_caller]
fn wait_for(there: impl Fn() -> bool, what: &str) {
    // Up to ten minutes, for machines under load.
    for _ in 0..12_000 {
        if there() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("timeout: {what}");
}

#[cfg(unix)]
#[track_caller]
fn send(signal: &str, child: &std::process::Child) {
    use nix::sys::signal::{Signal, kill};
    let name = signal.replace('-', "SIG");
    let process = nix::unistd::Pid::from_raw(child.id() as i32);
    kill(process, name.parse::<Signal>().expect("a signal")).expect("it runs");
}

/// Trains, started by a shell after `trap`, until each group of signals, sent when further epochs are written.
#[cfg(unix)]
#[track_caller]
fn stopped(trap: &str, signals: &[&[&str]]) {
    use std::process::{Command, Stdio};
    let bench = Bench::new();
    bench.small();
    let args =
        quick(&["train", "small", "--epochs", "1000000", "--evaluate-every", "1000000", "--run", "run", "--json"]);
    let script = format!("{trap} exec \"$@\"");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_morphgl")]).args(&args).current_dir(bench.path());
    let child = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("sh starts");
    let metrics = bench.path().join("run/metrics.jsonl");
    let written = || fs::metadata(&metrics).map_or(0, |m| m.len());
    for group in signals {
        let before = written();
        // Of two more epochs, at least one began after the previous signals.
        wait_for(|| written() > before, "an epoch");
        let before = written();
        wait_for(|| written() > before, "another epoch");
        group.iter().for_each(|signal| send(signal, &child));
    }
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).expect("one JSON document, interrupted or not");
    assert_eq!(json["ended"], "interrupted");
    assert!(bench.path().join("run/model.safetensors").exists(), "the model so far is saved");
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_cleanly() {
    stopped("", &[&["-INT"]]);
}

/// `timeout` sends two signals, to the process and to its group.
#[cfg(unix)]
#[test]
fn sigterm_ends_as_cleanly() {
    stopped("", &[&["-TERM", "-TERM"]]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_lost_terminal_ends_training_unless_sighup_is_ignored() {
    stopped("trap '' HUP;", &[&["-HUP"], &["-HUP"], &["-TERM"]]);
    let status = fs::read_to_string("/proc/self/status").expect("Linux reports it");
    let ignored = status.lines().find_map(|l| l.strip_prefix("SigIgn:")).expect("signals are listed").trim();
    if u64::from_str_radix(ignored, 16).expect("a mask") & 1 != 0 {
        println!("half of it not run: the tests run under nohup");
        return;
    }
    stopped("", &[&["-HUP", "-HUP"]]);
}

#[cfg(unix)]
#[test]
fn a_stop_leaves_no_incomplete_dataset() {
    let bench = Bench::new();
    let text: String = (0..3_000_000u32).map(|i| format!("{} {}\n", i / 3, i.wrapping_mul(7919) % 1_000_000)).collect();
    fs::write(bench.path().join("edges.txt"), text).expect("room");
    let generate = ["generate", "sbm", "-o", "big", "--nodes", "20000000"];
    // It has half a gigabyte of features to write after the edges.
    let import = ["import", "edges", "edges.txt", "-o", "big", "--memory", "256MiB", "--random-features", "128"];
    for (signal, status) in [("-INT", 130), ("-TERM", 143)] {
        for args in [&generate[..], &import] {
            let child = bench.command(args).stderr(std::process::Stdio::piped()).spawn().expect("the binary starts");
            wait_for(|| bench.names().len() > 1, "the dataset under way");
            send(signal, &child);
            let output = child.wait_with_output().expect("it ends");
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(status), "{args:?}: {stderr}");
            assert!(stderr.lines().count() == 1 && stderr.starts_with("error: interrupted"), "{args:?}: {stderr}");
            assert_eq!(bench.names(), ["edges.txt"], "{args:?}");
        }
    }
}

#[test]
fn every_command_has_help_with_examples() {
    let bench = Bench::new();
    for command in ["ops", "generate", "import", "info", "reorder", "profile", "plan", "train", "evaluate", "predict"] {
        let text = bench.text(&[command, "--help"]);
        assert!(text.contains("Examples:\n  morphgl ") && text.contains("Usage:"), "{command}: {text}");
    }
    assert_eq!(bench.run(&["train", "--no-such-option"]).status.code(), Some(2));
}

#[test]
fn shells_complete_commands_and_options() {
    let bench = Bench::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = bench.text(&["completions", shell]);
        assert!(["evaluate", "quote-formulas"].iter().all(|word| script.contains(word)), "{shell}: {script}");
        assert_eq!(bench.json(&["completions", shell])["script"], script);
    }
    bench.misused(&["completions", "sh"], &["'sh'"]);
    #[cfg(unix)]
    {
        fs::write(bench.path().join("script"), bench.text(&["completions", "bash"])).expect("room");
        let ask = "source ./script; COMP_WORDS=(morphgl eval); COMP_CWORD=1; _morphgl morphgl eval morphgl; echo ${COMPREPLY[@]}";
        let output = std::process::Command::new("bash").args(["-c", ask]).current_dir(bench.path()).output();
        assert_eq!(String::from_utf8_lossy(&output.expect("bash starts").stdout).trim(), "evaluate");
    }
}

#[test]
fn reproduce() {
    let bench = Bench::new();
    let list = bench.json(&["reproduce"]);
    let rows = list["rows"].as_array().expect("a list");
    assert!(rows.len() > 90, "{}", rows.len());
    for row in rows {
        has(row, &["id", "name", "title", "how", "code", "note", "runs", "needs", "recorded"]);
        assert_eq!(row["runs"].as_bool(), Some(row["recorded"]["seconds"].is_f64()), "{row}");
    }
    has(&list, &["processor", "cores"]);
    let json = bench.json(&["reproduce", "G:6", "P:6", "M:5", "--out", "page"]);
    has(&json, &["rows", "statements", "hold"]);
    let [roles, shift, drawing] = [0, 1, 2].map(|i| &json["rows"][i]);
    assert_eq!((&roles["id"], &roles["name"]), (&"G:VI".into(), &"Table VI".into()));
    has(&roles["statements"][0], &["says", "holds", "ours", "differs"]);
    has(&roles["figures"][0], &["name", "unit", "paper", "predicted", "executed", "here"]);
    assert_eq!(shift["figures"][1]["predicted"], 5.0);
    assert_eq!((&drawing["runs"], &drawing["figures"]), (&false.into(), &serde_json::json!([])));
    let read = |file: &str| fs::read_to_string(bench.path().join("page").join(file)).expect("written");
    let written: Value = serde_json::from_str(&read("papers.json")).expect("JSON");
    assert_eq!(written["rows"][1]["figures"], shift["figures"]);
    assert!(read("papers.html").contains("the circular shift"));
    let record: Value = serde_json::from_str(&read("record.json")).expect("JSON");
    has(&record["rows"]["P:6"], &["seconds", "memory_gb"]);
    assert_eq!(record["rows"].as_object().map(|rows| rows.len()), Some(2), "a drawing takes nothing");
    let text = bench.text(&["reproduce", "P:6"]);
    assert!(text.contains("holds (8 and 5)") && text.ends_with("1 of 1 statements hold\n"), "{text}");
    bench.misused(&["reproduce", "M:20"], &["M:20", "lists them"]);
    bench.misused(&["reproduce", "--out", "page"], &["--out", "--all"]);
    let document = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/papers.md")).expect("there");
    assert_eq!(bench.text(&["reproduce", "--document"]), document);
}
