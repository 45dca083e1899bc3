//! Bad input: one line that names the file and the cure, exit status 1, or the option, exit status 2; and no half-written
//! dataset.
#![allow(clippy::print_stdout, reason = "a test that cannot run here says so")]

mod support;

use std::fs;
use std::process::{Command, Output};

use morphgl_graph_store::{DatasetWriter, NpyWriter};
use support::{Bench, fails};

const TRAIN: [&str; 8] = ["train", "small", "--layers", "2", "--hidden", "8", "--epochs", "1"];

fn train(extra: &[&'static str]) -> Vec<&'static str> {
    [&TRAIN[..], extra].concat()
}

/// Overwrites an array of `small`, checksum and all.
fn replace<T: morphgl_graph_store::Element>(bench: &Bench, name: &str, values: &[T], dim: Option<usize>) {
    let mut writer = NpyWriter::create(bench.path().join("small").join(format!("{name}.npy"))).expect("room");
    writer.write(values).expect("room");
    let meta = writer.finish(dim).expect("room");
    let path = bench.path().join("small/graph.json");
    let mut json: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).expect("there")).expect("JSON");
    json["arrays"][name] = serde_json::to_value(meta).expect("plain data");
    fs::write(path, json.to_string()).expect("room");
}

fn arrays(bench: &Bench) -> morphgl_graph_store::Dataset {
    morphgl_graph_store::Dataset::open(bench.path().join("small"), Default::default()).expect("sound")
}

#[test]
fn missing_file() {
    let bench = Bench::new();
    bench.refused(&["train", "nowhere"], &["nowhere", "there is no such dataset", "morphgl import"]);
    bench.refused(&["import", "edges", "none.txt", "-o", "out"], &["none.txt", "check the path"]);
    bench.refused(&["evaluate", "none.safetensors"], &["none.safetensors", "check the path"]);
    bench.refused(&["plan", "--profile", "none.json"], &["none.json", "check the path"]);
    assert_eq!(bench.names(), [""; 0]);
    fs::write(bench.path().join("file"), "").expect("room");
    bench.refused(&["info", "file"], &["file/graph.json", "not a directory", "check the path"]);
}

/// Wrong paths and options fail before reading and training.
#[test]
fn wrong_options_are_refused_before_the_dataset_is_read() {
    let bench = Bench::new();
    bench.refused(&["train", "nowhere", "--save", "none/a.safetensors"], &["--save none/a", "choose another file"]);
    bench.refused(&["train", "nowhere", "--save", "."], &["--save .", "this is a directory; name a file"]);
    #[cfg(unix)]
    bench.refused(&["train", "nowhere", "--save", "/dev/null"], &["--save /dev/null", "this is no regular file"]);
    bench.refused(&["train", "nowhere", "--init", "none.safetensors"], &["none.safetensors", "check the path"]);
    let misused = |extra: &[&'static str], words: &[&str]| {
        bench.misused(&[&["train", "nowhere"], extra].concat(), words);
    };
    for option in ["--lr", "--weight-decay", "--dropout", "--momentum", "--clip-norm", "--lr-min", "--lr-gamma"] {
        misused(&[option, "nan"], &[option, "not a finite number"]);
    }
    let cure = "not a fanout; give a positive number of neighbours, or -1 for all of them";
    misused(&["--fanouts", "5,0"], &["--fanouts", "5,0", "\"0\"", cure]);
    misused(&["--layers", "2", "--fanouts", "5,5,5"], &["--fanouts 5,5,5", "3 hops for a model of 2 layers"]);
    misused(&["--batch-size", "0"], &["--batch-size", "at least 1"]);
    misused(&["--hidden", "0"], &["--hidden: it is 0; give a positive width"]);
    misused(&["--model", "gat", "--hidden", "10"], &["--hidden: 4 heads", "use a width of 12"]);
    misused(&["--lr=-1"], &["--lr: -1", "positive"]);
    misused(&["--optimizer", "lion"], &["--optimizer", "lion"]);
    misused(&["--momentum", "0.9"], &["--momentum: adam", "give --optimizer sgd, or leave it out"]);
    misused(&["--optimizer", "sgd", "--momentum", "1"], &["--momentum: 1", "from 0 to below 1"]);
    misused(&["--optimizer", "sgd", "--nesterov"], &["--nesterov", "--momentum 0.9"]);
    misused(&["--clip-norm", "0"], &["--clip-norm: 0", "positive"]);
    misused(&["--lr-gamma", "0.5"], &["--lr-gamma: --lr-schedule constant does not read it; give step or plateau"]);
    misused(&["--lr-schedule", "step", "--lr-min", "0"], &["--lr-min: --lr-schedule step", "give cosine or plateau"]);
    misused(
        &["--lr-schedule", "cosine", "--epochs", "3", "--lr-patience", "1"],
        &["--lr-patience: --lr-schedule cosine", "give plateau"],
    );
    misused(
        &["--lr-schedule", "plateau", "--lr-step-size", "1"],
        &["--lr-step-size: --lr-schedule plateau", "give step"],
    );
    misused(&["--lr-schedule", "step"], &["--lr-schedule step", "--lr-step-size"]);
    misused(
        &["--lr-schedule", "step", "--lr-step-size", "1", "--lr-gamma", "2"],
        &["--lr-gamma: 2", "between 0 and 1"],
    );
    misused(&["--lr-schedule", "plateau", "--lr-min", "1"], &["--lr-min: 1", "between 0 and the learning rate 0.003"]);
    misused(&["--lr-schedule", "cosine"], &["--lr-schedule cosine", "give --epochs too"]);
    misused(&["--model", "custom", "--optimizer", "sgd"], &["--optimizer", "an optimizer of its own"]);
    misused(&["--input-dropout", "1.5"], &["--input-dropout: 1.5", "from 0 to below 1"]);
    misused(&["--threads", "0"], &["--threads", "give 1 to 512"]);
    misused(&["--threads", "100000"], &["--threads", "give 1 to 512"]);
    misused(&["--time-limit", "0"], &["--time-limit", "positive"]);
    misused(&["--profile-seconds", "1e300"], &["--profile-seconds", "positive"]);
    misused(&["--plan", "pipelin"], &["--plan pipelin", "pipeline", "auto"]);
    misused(&["--patience", "3", "--evaluation", "none"], &["--patience", "nothing is validated"]);
    misused(&["--training", "Training_None_Such"], &["--training", "Training_None_Such", "Training_CPU_Burn"]);
    misused(&["--set", "Training_None_Such.x=1"], &["--set", "Training_None_Such", "Training_CPU_Burn"]);
    misused(&["--set", "Training_CPU_Burn"], &["--set", "KEY.NAME=VALUE"]);
    for command in [&["evaluate", "m.safetensors", "nowhere"][..], &["bench", "step", "nowhere"], &["plan", "nowhere"]]
    {
        bench.misused(&[command, &["--threads", "0"]].concat(), &["--threads", "give 1 to 512"]);
    }
    bench.misused(&["bench", "epoch", "nowhere", "--dropout", "2"], &["--dropout: 2", "below 1"]);
    bench.misused(&["plan", "--durations", "training=10ms"], &["--durations", "no route"]);
    assert_eq!(bench.names(), [""; 0]);
    bench.refused(&["train", "nowhere", "--save", "a.safetensors"], &["nowhere", "there is no such dataset"]);
    assert_eq!(bench.names(), [""; 0], "the temporary file is removed");
}

/// One label of 2,000,000,000, as some use for "none", makes a model of terabytes.
#[test]
fn a_model_larger_than_memory() {
    let bench = Bench::new();
    let path = bench.small().join("graph.json");
    bench.refused(
        &["train", "small", "--hidden", "2000000"],
        &["a width of 2000000", "are free; use a smaller --hidden"],
    );
    let text = fs::read_to_string(&path).expect("there").replace("\"num_classes\": 3", "\"num_classes\": 2000000000");
    fs::write(&path, text).expect("room");
    for command in ["train", "profile", "plan"] {
        let words = ["2,000,000,000 classes take at least", "are free", "look for a label that is too large"];
        bench.refused(&[command, "small", "--hidden", "8"], &words);
    }
    assert_eq!(bench.run(&["train", "small", "--layers", "99999999999"]).status.code(), Some(2));
}

#[test]
fn import_options_that_a_format_does_not_read() {
    let bench = Bench::new();
    let import = |format: &'static str, option: &[&'static str], words: &[&str]| {
        bench.misused(&[&["import", format, "none", "-o", "out"], option].concat(), words);
    };
    import("planetoid", &["--first-id", "1"], &["--first-id", "edges alone"]);
    import("metis", &["--ids", "compact"], &["--ids", "edges alone"]);
    import("mtx", &["--num-nodes", "5"], &["--num-nodes", "edges and numpy alone"]);
    import("edges", &["--rows", "targets"], &["--rows", "numpy and bv alone"]);
    import("edges", &["--ids", "compact", "--num-nodes", "5"], &["--num-nodes", "give one of the two"]);
    import("npz", &["--normalize-features", "--dtype", "u8"], &["--dtype u8", "use f32, f16 or bf16"]);
    import("npz", &["--split", "0.5,0.5,0.5"], &["--split", "sum to at most 1"]);
    import("npz", &["--random-features", "0"], &["--random-features", "at least 1"]);
    import("npz", &["--dtype", "i64"], &["--dtype", "give f32, f16, bf16 or u8"]);
    import("npz", &["--normalize-features", "pyg", "--dtype", "u8"], &["--dtype u8", "use f32, f16 or bf16"]);
    import(
        "edges",
        &["--duplicate-weights", "add"],
        &["--duplicate-weights: no edges are merged", "--drop-duplicates"],
    );
    import("mtx", &["--normalize-features"], &["--normalize-features", "no features; leave it out"]);
    import("edges", &["--dtype", "f16"], &["--dtype", "add --random-features DIM"]);
    let read = ["import", "edges", "none", "-o", "out", "--ids", "compact", "--first-id", "1"];
    bench.refused(&read, &["none", "check the path"]);
}

/// Unread options are errors: silently ignored they would mislead.
#[test]
fn options_that_a_command_does_not_read() {
    let bench = Bench::new();
    bench.misused(
        &["generate", "rmat", "-o", "out", "--homophily", "0.5"],
        &["--homophily", "rmat does not read it", "leave it out"],
    );
    bench.misused(
        &["generate", "sbm", "-o", "out", "--features", "all"],
        &["--features", "typed alone", "leave it out"],
    );
    bench.misused(&["generate", "typed", "-o", "out", "--symmetrise"], &["--symmetrise", "leave it out"]);
    let never = ["train", "nowhere", "--evaluation", "none", "--evaluate-every", "2"];
    bench.misused(&never, &["--evaluate-every", "--evaluation none", "leave one"]);
    for command in [&["train"][..], &["plan"], &["evaluate", "m.safetensors"], &["bench", "sample"]] {
        for option in ["--mmap", "--no-verify"] {
            let output = bench.run(&[command, &[option]].concat());
            assert_eq!(output.status.code(), Some(2), "{command:?} {option}");
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(stderr.contains("<DATASET>") && stderr.contains(option), "{stderr}");
        }
    }
    for (option, value) in [("--model", "gcn"), ("--batch-size", "7"), ("--training", "Training_CPU_Burn")] {
        bench.misused(&["plan", "--profile", "none.json", option, value], &["--profile", option]);
        bench.misused(&["plan", "--durations", "training=1ms", option, value], &["--durations", option]);
    }
    bench.misused(&["plan", "--durations", "training=1ms", "--threads", "2"], &["--durations", "--threads"]);
    bench.refused(&["plan", "--profile", "none.json", "--threads", "2"], &["none.json", "check the path"]);
    assert_eq!(bench.names(), [""; 0]);
}

#[test]
fn truncated_npy() {
    let bench = Bench::new();
    let path = bench.small().join("indices.npy");
    let bytes = fs::read(&path).expect("there");
    fs::write(&path, &bytes[..bytes.len() / 2]).expect("room");
    bench.refused(&train(&[]), &["small/indices.npy, byte", "the header promises", "copy or create it again"]);
}

#[test]
fn wrong_dtype() {
    let bench = Bench::new();
    bench.small();
    let labels: Vec<i64> = arrays(&bench).labels.expect("labels").iter().map(|&l| i64::from(l)).collect();
    replace(&bench, "labels", &labels, None);
    bench.refused(&train(&[]), &["small/labels.npy", "labels is i64, expected i32", "import the dataset again"]);
}

#[test]
fn edge_to_a_node_that_does_not_exist() {
    let bench = Bench::new();
    bench.small();
    let mut indices = arrays(&bench).topology.indices().to_vec();
    indices[5] = 300;
    replace(&bench, "indices", &indices, None);
    bench.refused(&train(&[]), &["small/indices.npy, element 5", "node 300", "import it again"]);
    fs::write(bench.path().join("bad.mtx"), "%%MatrixMarket matrix coordinate pattern general\n3 3 1\n1 4\n")
        .expect("room");
    bench.refused(&["import", "mtx", "bad.mtx", "-o", "out"], &["bad.mtx, line 3", "4"]);
    assert_eq!(bench.names(), ["bad.mtx", "small"]);
}

#[test]
fn indptr_that_decreases() {
    let bench = Bench::new();
    bench.small();
    let mut indptr = arrays(&bench).topology.indptr().to_vec();
    let middle = indptr.len() / 2;
    indptr[middle] = indptr[middle + 1] + 1;
    replace(&bench, "indptr", &indptr, None);
    bench.refused(&train(&[]), &["small/indptr.npy, element", "the offset decreases", "import it again"]);
}

#[test]
fn nan_features_and_labels_out_of_range() {
    let bench = Bench::new();
    bench.small();
    let mut features = vec![0.5f32; 300 * 8];
    features[11] = f32::NAN;
    replace(&bench, "features", &features, Some(8));
    bench.refused(&train(&[]), &["small/features.npy, element 11", "NaN"]);
    // At import too, before anything is in place.
    let dir = bench.path().join("arrays");
    fs::create_dir(&dir).expect("room");
    let write = |name: &str, values: &[f32], dim| {
        let mut w = NpyWriter::create(dir.join(name)).expect("room");
        w.write(values).expect("room");
        w.finish(dim).expect("room");
    };
    let mut w = NpyWriter::<u32>::create(dir.join("src.npy")).expect("room");
    w.write(&[0, 1]).expect("room");
    w.finish(None).expect("room");
    fs::copy(dir.join("src.npy"), dir.join("dst.npy")).expect("room");
    write("features.npy", &[1.0, f32::NAN], Some(1));
    bench.refused(&["import", "numpy", "arrays", "-o", "out"], &["features.npy", "NaN"]);
    // A dimension that does not fit: three rows for two nodes.
    write("features.npy", &[1.0, 2.0, 3.0], Some(1));
    let mut w = NpyWriter::<i32>::create(dir.join("labels.npy")).expect("room");
    w.write(&[0, 1]).expect("room");
    w.finish(None).expect("room");
    bench.refused(&["import", "numpy", "arrays", "-o", "out"], &["arrays", "3", "2"]);
    write("features.npy", &[1.0, 2.0], Some(1));
    let mut w = NpyWriter::<i32>::create(dir.join("labels.npy")).expect("room");
    w.write(&[0, -7]).expect("room");
    w.finish(None).expect("room");
    bench.refused(&["import", "numpy", "arrays", "-o", "out"], &["labels.npy", "-7"]);
    assert_eq!(bench.names(), ["arrays", "small"]);
    let bench = Bench::new();
    bench.small();
    replace(&bench, "labels", &[3i32; 300], None);
    bench.refused(&train(&[]), &["small/labels.npy, element 0", "the label is 3, outside -1 (none) and 0..3"]);
}

#[test]
fn empty_train_split() {
    let bench = Bench::new();
    bench.small();
    replace::<u32>(&bench, "train", &[], None);
    bench.refused(&train(&[]), &["small", "train split", "it is empty", "--split"]);
}

#[test]
fn settings_that_make_no_sense_for_a_dataset() {
    let bench = Bench::new();
    let generate = |extra: &[&'static str], words: &[&str]| {
        bench.misused(&[&["generate", "sbm", "-o", "small", "--nodes", "300"], extra].concat(), words);
    };
    generate(&["--degree", "300"], &["--degree: a mean degree of 300 among 300 nodes"]);
    generate(&["--classes", "0"], &["--classes", "at least 1 class"]);
    generate(&["--split", "0.5,0.5,0.5"], &["--split", "sum to at most 1"]);
    bench.misused(&["generate", "rmat", "-o", "small", "--degree", "0"], &["--degree: 0 edges"]);
    assert_eq!(bench.names(), [""; 0]);
    let args = ["generate", "sbm", "-o", "small", "--nodes", "300", "--classes", "3", "--split", "0.8,0,0.2"];
    bench.text(&args);
    bench.misused(&train(&["--patience", "3"]), &["--patience", "nothing is validated"]);
    // A command that fails at its start leaves no run directory.
    bench.misused(&train(&["--run", "run", "--plan", "device"]), &["--plan device", "sequential"]);
    assert_eq!(bench.names(), ["small"]);
}

#[test]
fn a_model_of_another_dataset() {
    let bench = Bench::new();
    bench.small();
    bench.text(&train(&["--evaluation", "none", "--profile-seconds", "0.1", "--save", "model.safetensors"]));
    let args = ["generate", "sbm", "-o", "other", "--nodes", "100", "--classes", "2", "--dim", "5", "--degree", "4"];
    bench.text(&args);
    let words = ["other", "5 features and 2 classes, the model 8 and 3", "use a model made for it"];
    bench.refused(&["evaluate", "model.safetensors", "other"], &words);
    let bytes = fs::read(bench.path().join("model.safetensors")).expect("there");
    fs::write(bench.path().join("model.safetensors"), &bytes[..bytes.len() / 2]).expect("room");
    bench.refused(&["evaluate", "model.safetensors", "small"], &["model.safetensors", "not a whole safetensors file"]);
}

#[test]
fn dataset_of_a_newer_version() {
    let bench = Bench::new();
    let path = bench.small().join("graph.json");
    let text = fs::read_to_string(&path).expect("there").replace("\"version\": 1", "\"version\": 4");
    fs::write(&path, text).expect("room");
    for command in ["info", "train"] {
        bench.refused(&[command, "small"], &["small/graph.json", "version 4 is newer than 3", "update morphgl"]);
    }
}

#[test]
fn an_output_that_exists() {
    let bench = Bench::new();
    bench.small();
    bench.refused(&["generate", "sbm", "-o", "small"], &["small", "the output exists", "--force"]);
    bench.text(&["generate", "sbm", "-o", "small", "--force", "--nodes", "100", "--classes", "2", "--degree", "4"]);
    assert_eq!(bench.json(&["info", "small"])["num_nodes"], 100);
}

/// Runs a command with a file size limit of 64 KiB, which simulates a full disk: writing fails in the middle.
fn limited(bench: &Bench, line: &str) -> Output {
    // `trap` turns the signal of the limit into the error of a full disk.
    let script = format!("trap '' XFSZ; ulimit -f 64; exec {} {line}", env!("CARGO_BIN_EXE_morphgl"));
    Command::new("bash").args(["-c", &script]).current_dir(bench.path()).output().expect("bash starts")
}

/// The learning rate is named, and not profiling, which meets it first.
#[test]
fn learning_rates_that_are_too_large() {
    let bench = Bench::new();
    bench.small();
    bench.misused(&["train", "small", "--lr", "1e38"], &["--lr", "too large", "0.003"]);
    let args = ["train", "small", "--fanouts", "5,5", "--lr", "1e30", "--profile-seconds", "0.1"];
    bench.refused(&args, &["error: Training_CPU_", "lower the learning rate", "would while it trains"]);
}

#[test]
fn disk_full_while_writing() {
    let bench = Bench::new();
    let line = "generate sbm -o big --nodes 20000";
    fails(&limited(&bench, line), &[line], &["big", ".npy", "file-size limit"]);
    let edges: String = (0..40_000).map(|i| format!("{} {}\n", i, (i * 7) % 40_000)).collect();
    fs::write(bench.path().join("edges.txt"), edges).expect("room");
    let line = "import edges edges.txt -o big";
    fails(&limited(&bench, line), &[line], &["big", "file-size limit"]);
    assert_eq!(bench.names(), ["edges.txt"]);
}

/// The results are printed, and everything that can be written is.
#[test]
fn disk_full_while_training() {
    let bench = Bench::new();
    bench.small();
    let names = |run: &str| {
        let files = fs::read_dir(bench.path().join(run)).expect("there");
        let mut names: Vec<_> = files.map(|f| f.expect("there").file_name().into_string().expect("ASCII")).collect();
        names.sort();
        names
    };
    let train = "train small --fanouts 5,5 --profile-seconds 0.1 --lr 0.001";
    // A model that is too large.
    let line = format!("{train} --epochs 2 --hidden 2048 --run wide --save wide.safetensors");
    let output = limited(&bench, &line);
    let words = ["wide/model.safetensors", "; wide.safetensors: File too large", "has room"];
    fails(&output, &[&line], &words);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("test accuracy") && text.contains("all epochs done"), "{text}");
    let expected =
        ["checkpoints", "config.toml", "metrics.jsonl", "plan.json", "report.html", "status.json", "trace.json"];
    assert_eq!(names("wide"), expected);
    assert_eq!(bench.names(), ["small", "wide"]);
    // More epochs than fit in the file.
    let line = format!("{train} --epochs 400 --evaluation none --hidden 8 --run long --save long.safetensors --json");
    let output = limited(&bench, &line);
    fails(&output, &[&line], &["long/metrics.jsonl", "ulimit -f", "File too large", "long/trace.json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert_eq!((json["epochs"].as_array().map(Vec::len), &json["ended"]), (Some(400), &"epochs".into()));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr.matches("training goes on").count(), 1, "{stderr}");
    assert_eq!(names("long")[..4], ["checkpoints", "config.toml", "metrics.jsonl", "model.safetensors"]);
    assert!(!names("long").contains(&"trace.json".to_string()), "no incomplete trace");
    let metrics = fs::read_to_string(bench.path().join("long/metrics.jsonl")).expect("there");
    assert!(metrics.lines().count() > 10 && metrics.ends_with('\n'), "whole lines: {metrics}");
    assert_eq!(bench.names(), ["long", "long.safetensors", "small", "wide"]);
}

/// Generating onto a real full disk, where the test may mount one.
#[test]
fn disk_full_on_a_tiny_tmpfs() {
    let bench = Bench::new();
    let disk = bench.path().join("disk");
    fs::create_dir(&disk).expect("room");
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"]).arg(&disk).output();
    if !mounted.is_ok_and(|o| o.status.success()) {
        println!("not run: this user may not mount a tmpfs");
        return;
    }
    let args = ["generate", "sbm", "-o", "disk/big", "--nodes", "20000"];
    let output = bench.run(&args);
    let left = fs::read_dir(&disk).expect("readable").count();
    let unmounted = Command::new("umount").arg(&disk).status().expect("umount starts");
    fails(&output, &args, &["disk", "no space left on device", "free some disk space"]);
    assert_eq!(left, 0, "nothing is left behind");
    assert!(unmounted.success());
}

#[test]
fn a_dataset_without_features_or_labels() {
    let bench = Bench::new();
    let mut writer = DatasetWriter::create(bench.path().join("bare"), false).expect("a fresh path");
    writer.array("indptr", &[0u64, 1, 2], None).expect("room");
    writer.array("indices", &[1u32, 0], None).expect("room");
    writer.finish("bare", 0, Default::default()).expect("arrays that fit");
    bench.refused(&["train", "bare"], &["bare", "no features", "--random-features"]);
    bench.text(&["info", "bare"]);
}

/// What is wrong with the data is said before what an operator cannot do.
#[test]
fn splits_without_training_nodes_and_weights_that_overflow() {
    let bench = Bench::new();
    let write = |name: &str, text: String| fs::write(bench.path().join(name), text).expect("room");
    let nodes: String = (0..9).map(|i| format!("{i},{},{},{i}\n", i % 2, ["train", "valid", "test"][i % 3])).collect();
    write("n.csv", format!("id,label,split,f0\n{nodes}"));
    for (name, weight) in [("large", 3e38), ("divided", 3e8)] {
        let edges: String =
            (0..9).map(|i| format!("{i},{},{weight:e}\n{},{i},{weight:e}\n", (i + 1) % 9, (i + 4) % 9)).collect();
        write("e.csv", format!("src,dst,weight\n{edges}"));
        bench.text(&["import", "edges", "e.csv", "-o", name, "--nodes", "n.csv"]);
    }
    let train = ["--model", "gcn", "--layers", "2", "--hidden", "4", "--epochs", "1", "--profile-seconds", "0.1"];
    let train = |set: &'static str| [&["train", set][..], &train, &["--save", "m.safetensors"]].concat();
    let words = ["large", "weights of the edges of node 0 add up to", "divide all weights by a constant"];
    bench.refused(&train("large"), &words);
    bench.text(&train("divided"));
    bench.refused(&["evaluate", "m.safetensors", "large"], &words);

    write("e.csv", "0,1\n1,2\n2,0\n".to_string());
    bench.text(&["import", "edges", "e.csv", "-o", "bare", "--random-features", "4", "--random-labels", "2"]);
    bench.refused(&["train", "bare", "--model", "gin"], &["bare: ", "train split"]);
}
