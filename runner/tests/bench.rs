//! `morphgl bench`: every measurement runs on a tiny graph, and its document has all fields.

mod support;

use std::fs;

use serde_json::Value;
use support::Bench;

const BATCHES: [&str; 6] = ["--fanouts", "5,5", "--batch-size", "32", "--threads", "2"];

/// Runs `morphgl bench WHAT small …`, and checks the fields common to all documents.
#[track_caller]
fn measure(bench: &Bench, what: &str, unit: &str, args: &[&str]) -> Value {
    let json = bench.json(&[&["bench", what, "small"][..], args].concat());
    // The name the generator gave it, not the directory's.
    check(&json, what, unit, "sbm-300");
    json
}

#[track_caller]
fn check(json: &Value, what: &str, unit: &str, data: &str) {
    let text = |field: &str| json[field].as_str().unwrap_or_else(|| panic!("no {field}: {json:#}")).to_string();
    assert_eq!([text("what"), text("unit"), text("peer"), text("data")], [what, unit, "morphgl", data]);
    assert_eq!(json["threads"], 2, "{json:#}");
    let mut all: Vec<f64> =
        json["all"].as_array().expect("a list").iter().map(|v| v.as_f64().expect("a number")).collect();
    assert!(all.iter().all(|v| v.is_finite() && *v > 0.0), "{all:?}");
    all.sort_by(f64::total_cmp);
    let median = (all[(all.len() - 1) / 2] + all[all.len() / 2]) / 2.0;
    assert_eq!(json["median"].as_f64(), Some(median));
    assert_eq!((json["min"].as_f64(), json["max"].as_f64()), (all.first().copied(), all.last().copied()));
    for field in ["cores_own", "cores_others", "load1", "rss_peak_gb", "versions"] {
        assert!(json.get(field).is_some(), "no {field}: {json:#}");
    }
    assert!(json["rss_peak_gb"].as_f64().is_some_and(|gb| gb > 0.0), "{json:#}");
}

#[track_caller]
fn positive(json: &Value, fields: &[&str]) {
    for field in fields {
        assert!(json[field].as_f64().is_some_and(|x| x > 0.0), "{field}: {json:#}");
    }
}

#[test]
fn sample() {
    let bench = Bench::new();
    bench.small();
    // 180 training nodes are 6 mini-batches per epoch; 10 are of two.
    for (extra, batches) in [(&[][..], 6), (&["--within", "--batches", "10"][..], 10), (&["--expansion", "new"], 6)] {
        let args = [&BATCHES[..], &["--repeats", "3", "--warm-up", "0"], extra].concat();
        let json = measure(&bench, "sample", "batches/s", &args);
        positive(&json, &["edges_per_s", "edges_per_batch", "input_nodes_per_batch"]);
        assert_eq!((&json["batches"], json["all"].as_array().map(Vec::len)), (&batches.into(), Some(3)), "{json:#}");
        let settings = (&json["fanouts"], &json["batch_size"], &json["batching"]);
        assert_eq!(settings, (&"5,5".into(), &32.into(), &"Batching_CPU_Neighbor".into()));
        assert_eq!(json["expansion"], if extra.contains(&"new") { "new" } else { "all" });
    }
    let args = [&["bench", "sample", "small", "--repeats", "2"][..], &BATCHES].concat();
    let text = bench.text(&args);
    for words in ["sample of sbm-300, 2 threads", "unit", "median", "spread", "batches/s", "edges/s", "other programs"]
    {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
}

#[test]
fn pairs() {
    let bench = Bench::new();
    bench.small();
    let edges = bench.json(&["info", "small"])["num_edges"].as_u64().expect("a number");
    let link = [&BATCHES[..], &["--task", "link", "--negatives", "3", "--repeats", "2"]].concat();
    // An undirected edge is one pair.
    let batches = edges / 2 / 32;
    let json = measure(&bench, "sample", "batches/s", &link);
    let made = json["batches"].as_u64().expect("a number");
    assert!((batches..=batches + 1).contains(&made), "{made} of {batches}");
    assert_eq!((&json["pairs"]["negatives"], &json["pairs"]["exclude"]), (&3.into(), &true.into()), "{json:#}");
    assert!(measure(&bench, "sample", "batches/s", &[&BATCHES[..], &["--repeats", "2"]].concat())["pairs"].is_null());
    // Negatives of their own are further seeds.
    let one = [&BATCHES[..], &["--task", "link", "--repeats", "2"]].concat();
    let nodes = |json: &Value| json["input_nodes_per_batch"].as_f64().expect("a number");
    assert!(nodes(&measure(&bench, "prepare", "batches/s", &one)) < nodes(&json));
    let json = measure(&bench, "step", "ms/step", &[&link[..], &["--embedding", "16"]].concat());
    assert_eq!(
        (&json["pairs"]["negatives"], &json["params"]),
        (&3.into(), &(8 * 256 * 2 + 256 + 256 * 16 * 2 + 16).into())
    );
    let short = [&link[..], &["--profile-seconds", "0.2", "--batches", "2"]].concat();
    let json = measure(&bench, "epoch", "s/epoch", &short);
    assert_eq!((&json["batches"], &json["pairs"]["negatives"]), (&2.into(), &3.into()), "{json:#}");
    bench.misused(&["bench", "sample", "small", "--negatives", "2"], &["--negatives", "--task link"]);
    bench.misused(&["bench", "sample", "small", "--task", "link", "--negatives", "0"], &["--negatives 0"]);
}

#[test]
fn samples_do_not_depend_on_threads() {
    let bench = Bench::new();
    bench.small();
    let counts = |extra: &[&str]| {
        let args = ["bench", "sample", "small", "--fanouts", "5,5", "--batch-size", "32", "--repeats", "1"];
        let json = bench.json(&[&args[..], extra].concat());
        (json["edges_per_batch"].clone(), json["input_nodes_per_batch"].clone())
    };
    let one = counts(&["--threads", "1"]);
    assert_eq!(counts(&["--threads", "3"]), one);
    assert_eq!(counts(&["--threads", "3", "--within", "--warm-up", "2"]), one);
    assert_ne!(counts(&["--threads", "3", "--seed", "1"]), one);
}

#[test]
fn gather() {
    let bench = Bench::new();
    bench.small();
    for extra in [&[][..], &["--within"]] {
        let json = measure(&bench, "gather", "GB/s", &[&BATCHES[..], extra].concat());
        positive(&json, &["rows_per_s", "rows_per_batch"]);
        assert_eq!((&json["row_bytes"], &json["dtype"], &json["batches"]), (&32.into(), &"f32".into(), &16.into()));
        let (rate, rows) = (json["median"].as_f64().expect("a number"), json["rows_per_s"].as_f64().expect("a number"));
        assert!((rate - rows * 32.0 / 1e9).abs() < 1e-9 * rows, "{json:#}");
    }
}

#[test]
fn prepare() {
    let bench = Bench::new();
    bench.small();
    for (extra, batches) in [(&[][..], 6), (&["--within", "--batches", "4"][..], 4), (&["--batches", "13"], 13)] {
        let json = measure(&bench, "prepare", "batches/s", &[&BATCHES[..], extra].concat());
        positive(&json, &["edges_per_s", "edges_per_batch", "input_nodes_per_batch", "gather_gb_per_s_inside"]);
        assert_eq!((&json["batches"], &json["dtype"]), (&batches.into(), &"f32".into()), "{json:#}");
    }
}

#[test]
fn passes_of_a_step_are_beside_the_peaks() {
    let bench = Bench::new();
    bench.small();
    let native = ["--training", "Training_CPU_Native", "--roofline", "--repeats", "1"];
    for model in ["sage", "gcn", "gat"] {
        let json = measure(&bench, "step", "ms/step", &[&BATCHES[..], &native, &["--model", model]].concat());
        let roofline = &json["roofline"];
        positive(roofline, &["peak_gflop_per_s", "read_gb_per_s"]);
        let passes = roofline["passes"].as_array().expect("passes");
        let names: Vec<_> = passes.iter().filter_map(|pass| pass["pass"].as_str()).collect();
        assert_eq!(names, ["prepare", "forward 0", "forward 1", "loss", "backward 1", "backward 0", "optimizer"]);
        for pass in passes.iter().filter(|pass| pass["bound"].is_string()) {
            positive(pass, &["ms", "mb", "least_ms", "share"]);
        }
        let bounds = passes.iter().filter(|pass| pass["bound"].is_string()).count();
        assert_eq!(bounds, 5, "all but preparation and loss: {roofline:#}");
    }
    let text = bench.text(&[&["bench", "step", "small"][..], &BATCHES, &native].concat());
    assert!(text.contains("of the roofline") && text.contains("forward 1"), "{text}");
}

#[test]
fn step() {
    let bench = Bench::new();
    bench.small();
    // Other systems' widths, or the given ones; parameters of 8 features and 3 classes.
    for (model, extra, hidden, params) in [
        ("sage", &[][..], 256, 8 * 256 * 2 + 256 + 256 * 3 * 2 + 3),
        ("gcn", &[], 16, 8 * 16 + 16 + 16 * 3 + 3),
        ("gat", &[], 64, 8 * 64 + 64 * 3 + 64 * 3 + 3 * 3),
        ("gcn", &["--hidden", "8"], 8, 8 * 8 + 8 + 8 * 3 + 3),
    ] {
        let args = [&BATCHES[..], &["--model", model, "--repeats", "2", "--batches", "3"], extra].concat();
        let json = measure(&bench, "step", "ms/step", &args);
        positive(&json, &["edges_per_batch", "input_nodes_per_batch"]);
        assert_eq!(json["all"].as_array().map(Vec::len), Some(6), "repeats of 3 mini-batches: {json:#}");
        assert_eq!((&json["model"], &json["hidden"], &json["params"]), (&model.into(), &hidden.into(), &params.into()));
        assert!(json["training"].as_str().is_some_and(|key| key.starts_with("Training_CPU_")), "{json:#}");
    }
    let args = [&BATCHES[..], &["--training", "Training_CPU_Burn", "--repeats", "1"]].concat();
    assert_eq!(measure(&bench, "step", "ms/step", &args)["training"], "Training_CPU_Burn");
    let burn = ["bench", "step", "small", "--training", "Training_CPU_Burn", "--roofline"];
    bench.misused(&[&burn[..], &BATCHES[..]].concat(), &["--roofline", "does not time the passes"]);
    bench.misused(&["bench", "step", "small", "--training", "Training_CPU_None"], &["Training_CPU_None", "there are:"]);
    bench.misused(
        &["bench", "step", "small", "--fanouts", "5", "--layers", "2"],
        &["--fanouts 5", "one fanout per layer"],
    );
}

#[test]
fn epoch() {
    let bench = Bench::new();
    bench.small();
    for (extra, batches) in [(&[][..], 6), (&["--batches", "4"][..], 4), (&["--batches", "100"], 6)] {
        let args = [&BATCHES[..], &["--model", "gcn", "--repeats", "2", "--profile-seconds", "0.2"], extra].concat();
        let json = measure(&bench, "epoch", "s/epoch", &args);
        positive(&json, &["batches_per_s", "edges_per_s", "predicted_epoch_seconds", "profile_s"]);
        assert_eq!((&json["batches"], &json["hidden"]), (&batches.into(), &16.into()), "{json:#}");
        for field in ["loss", "step_s"] {
            assert_eq!(json[field].as_array().map(Vec::len), Some(2), "{field}: {json:#}");
        }
        assert!(json["plan"].is_string() && json["training"].is_string(), "{json:#}");
    }
}

#[test]
fn ingest() {
    let bench = Bench::new();
    fs::write(bench.path().join("e.csv"), "src,dst\n0,1\n1,2\n2,0\n").expect("room");
    let args = ["bench", "ingest", "e.csv", "--threads", "2", "--repeats", "2", "--", "--symmetrise"];
    let json: Value = serde_json::from_str(&bench.text(&[&["--json"][..], &args].concat())).expect("JSON");
    check(&json, "ingest", "edges/s", "e.csv");
    assert_eq!((&json["edges"], &json["source_bytes"], &json["format"]), (&6.into(), &20.into(), &"edges".into()));
    positive(&json, &["seconds", "mb_per_s", "import_peak_rss_gb"]);
    assert!(json["cpu_seconds"].is_f64(), "{json:#}");
    assert_eq!(bench.names(), ["e.csv"], "nothing is left beside the file");

    let json = bench.json(&["bench", "ingest", "--threads", "2", "--repeats", "1"]);
    check(&json, "ingest", "edges/s", "default.csv");
    assert_eq!(json["edges"], 748_932);

    bench.refused(&["bench", "ingest", "none.csv"], &["none.csv", "check the path"]);
    fs::write(bench.path().join("bad.csv"), "0,1\nx,2\n").expect("room");
    bench.refused(&["bench", "ingest", "bad.csv"], &["bad.csv, line 2"]);
    assert_eq!(bench.names(), ["bad.csv", "e.csv"]);
}

#[test]
fn datasets_that_lack_what_is_measured_are_refused() {
    let bench = Bench::new();
    fs::write(bench.path().join("e.csv"), "0,1\n1,2\n2,0\n").expect("room");
    bench.text(&["import", "edges", "e.csv", "-o", "bare"]);
    bench.text(&["import", "edges", "e.csv", "-o", "split", "--split", "0.6,0.2,0.2"]);
    bench.refused(&["bench", "sample", "bare"], &["bare", "train split", "--split"]);
    for what in ["gather", "prepare"] {
        bench.refused(&["bench", what, "split"], &["split", "no features", "--random-features"]);
    }
    bench.text(&["bench", "sample", "split", "--repeats", "1"]);
}

#[test]
fn wrong_options_are_usage() {
    let bench = Bench::new();
    fs::write(bench.path().join("e.csv"), "0,1\n").expect("room");
    for args in [
        &["bench"][..],
        &["bench", "nothing"],
        &["bench", "sample", "--repeats", "0"],
        &["bench", "sample", "--model", "gcn"],
        &["bench", "gather", "--batches", "0"],
        &["bench", "prepare", "--expansion", "some"],
        &["bench", "step", "--model", "none"],
        &["bench", "step", "--training", "no key"],
        &["bench", "epoch", "--within"],
        &["bench", "ingest", "e.csv", "--threads", "0"],
        &["bench", "ingest", "e.csv", "--format", "none"],
        &["bench", "ingest", "e.csv", "--", "--no-such-option"],
    ] {
        let output = bench.run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(bench.names(), ["e.csv"], "nothing is left beside the file");
}

#[test]
fn every_measurement_has_help_with_examples() {
    let bench = Bench::new();
    for what in ["sample", "gather", "prepare", "step", "epoch", "ingest"] {
        let text = bench.text(&["bench", what, "--help"]);
        assert!(text.contains(&format!("Examples:\n  morphgl bench {what}")) && text.contains("Usage:"), "{text}");
    }
    assert!(bench.text(&["bench", "--help"]).contains("Examples:\n  morphgl "));
}
