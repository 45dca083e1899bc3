//! Features of edges: from a manifest to scores, copies and resumed runs, and what is refused.
#![cfg(all(unix, feature = "cpu"))]

#[path = "support/runs.rs"]
mod runs;
mod support;

use std::fs;
use std::path::Path;

use runs::{Training, alike};
use serde_json::Value;
use support::{Bench, number, words};

const TRAIN: &str = "--threads 2 --hidden 16 --layers 2 --fanouts 6,4 --batch-size 64 --profile-seconds 0.1 --dropout 0 \
                     --plan sequential --lr 0.02";
const NODES: u64 = 600;

/// Pseudo-random numbers below `below`.
fn random(number: u64, below: u64) -> u64 {
    let mixed = (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ mixed >> 31).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed ^ mixed >> 29) % below
}

/// Files of accounts of three classes, and of payments between them, whose amounts and channels say the class of the account paid.
fn write(dir: &Path) {
    let class = |account: u64| random(account, 3);
    let split = |account: u64| ["train", "train", "train", "valid", "test"][account as usize % 5];
    let mut accounts = "id,age,class,split\n".to_string();
    (0..NODES).for_each(|v| accounts += &format!("{v},0.{},{},{}\n", random(v + 7000, 10), class(v), split(v)));
    let mut payments = "from,to,amount,channel\n".to_string();
    for edge in 0..4000 {
        let [from, to] = [random(10_000 + edge, NODES), random(20_000 + edge, NODES)];
        let noise = random(30_000 + edge, 100) as f64 / 100.0;
        payments += &format!("{from},{to},{},{}\n", class(to) as f64 + noise, u64::from(class(to) == 1));
    }
    fs::write(dir.join("accounts.csv"), accounts).expect("room");
    fs::write(dir.join("payments.csv"), payments).expect("room");
}

fn manifest(edges: &str) -> String {
    format!(
        "[nodes.account]\nfile = \"accounts.csv\"\nid = \"id\"\nfeatures = [\"age\"]\nlabel = \"class\"\nsplit = \"split\"\n\
         [[edges]]\ntype = \"pays\"\nfile = \"payments.csv\"\nsource = \"account\"\ntarget = \"account\"\n{edges}"
    )
}

/// Payments in one direction, `one`, and with their reverses, `both`.
fn bench() -> Bench {
    let bench = Bench::new();
    write(bench.path());
    for (name, edges) in [
        ("one", "features = [\"amount\", \"channel\"]"),
        ("both", "features = [\"amount\", \"channel\"]\nreverse = true"),
    ] {
        fs::write(bench.path().join(format!("{name}.toml")), manifest(edges)).expect("room");
        bench.text(&["import", "manifest", &format!("{name}.toml"), "-o", name]);
    }
    bench
}

fn train(bench: &Bench, dataset: &str, model: &str, more: &str) -> Value {
    bench.json(&words(&format!("train {dataset} {TRAIN} --model {model} {more}")))
}

#[test]
fn classes_are_learned_from_edges() {
    let bench = bench();
    let info = bench.json(&["info", "both"]);
    assert_eq!(info["edge_features"], serde_json::json!({"edge_features.0": 2, "edge_features.1": 2}));
    let text = bench.text(&["info", "both"]);
    assert!(text.contains("features: 2 of account-pays-account, 2 of account-rev_pays-account"), "{text}");
    let models = ["gat", "gat --attention gatv2", "gin --normalization batch"].map(|model| ("one", model));
    for (dataset, model) in models.into_iter().chain([("both", "rgat"), ("both", "rgat --attention gatv2")]) {
        let run = format!("{dataset}-{}", model.replace(' ', ""));
        let trained = train(&bench, dataset, model, &format!("--heads 2 --epochs 25 --run {run}"));
        let unread = train(&bench, dataset, model, "--heads 2 --epochs 25 --no-edge-features");
        let [with, without] = [&trained, &unread].map(|run| number(&run["best_valid_accuracy"]));
        // Attention alone reads them as scores; a sum of messages has them as they are.
        let least = if model.starts_with("gin") { 0.8 } else { without };
        assert!(with >= least, "{dataset}, {model}: {with}, without features of edges {without}");
        assert!(!model.starts_with("gin") || without < 0.6, "{without}");
        let evaluated = bench.json(&["evaluate", &run]);
        let [of_run, of_file] = [&trained["test_accuracy"], &evaluated["test"]["accuracy"]].map(number);
        assert!((of_run - of_file).abs() < 1e-9, "{dataset}, {model}: {of_run} in training, {of_file} evaluated");
    }
}

/// The same payments as an edge list: `gat` with GATv2's attention and `gin`, which is GINE there.
#[test]
fn classes_are_learned_from_an_edge_list() {
    let bench = Bench::new();
    write(bench.path());
    // Messages of GINE are as wide as the nodes' features, which say nothing of the class.
    let accounts = fs::read_to_string(bench.path().join("accounts.csv")).expect("it was written");
    let wide = |(row, line): (usize, &str)| {
        let values = (0..32).map(|column| match row {
            0 => format!(",f{column}"),
            _ => format!(",{}", ((row - 1) * 7919 + column * 104_729) % 17),
        });
        format!("{line}{}\n", values.collect::<String>())
    };
    let wide: String = accounts.lines().enumerate().map(wide).collect();
    fs::write(bench.path().join("wide.csv"), wide).expect("room");
    let import = "import edges payments.csv --src from --dst to --edge-feature-columns amount,channel --nodes wide.csv \
                  --feature-columns f* --standardise";
    bench.text(&words(&format!("{import} -o list")));
    bench.text(&words(&format!("{import} -o both --symmetrise --dtype f16")));
    assert_eq!(bench.json(&["info", "list"])["edge_features"], serde_json::json!({"edge_features": 2}));
    for model in ["gat --attention gatv2", "gin --normalization batch"] {
        let run = model.split(' ').next().expect("a model");
        let trained = train(&bench, "list", model, &format!("--heads 2 --epochs 40 --run {run}"));
        let unread = train(&bench, "list", model, "--heads 2 --epochs 40 --no-edge-features");
        let [with, without] = [&trained, &unread].map(|run| number(&run["best_valid_accuracy"]));
        assert!(with >= 0.8 && without < 0.6, "{model}: {with}, without features of edges {without}");
        let evaluated = bench.json(&["evaluate", run]);
        let [of_run, of_file] = [&trained["test_accuracy"], &evaluated["test"]["accuracy"]].map(number);
        assert!((of_run - of_file).abs() < 1e-9, "{model}: {of_run} in training, {of_file} evaluated");
        // Reverses have the features of the edges, which say nothing of the account that pays.
        let both = train(&bench, "both", model, "--heads 2 --epochs 4");
        assert!(number(&both["epochs"][3]["loss"]) < number(&both["epochs"][0]["loss"]), "{both}");
    }
    bench.misused(
        &words("import mtx graph.mtx -o graph --edge-feature-columns 3"),
        &["--edge-feature-columns", "edges"],
    );
}

/// Edges that are drawn to validate links on leave the others their features.
#[test]
fn a_split_of_edges_keeps_them() {
    let bench = bench();
    bench.text(&words("import manifest one.toml -o split --edge-split 0.8,0.1,0.1"));
    let trained = train(&bench, "split", "gin --normalization batch", "--epochs 25");
    let valid = number(&trained["best_valid_accuracy"]);
    assert!(valid > 0.7, "{valid}");
    let links = train(&bench, "split", "rgat", "--task link --heads 2 --epochs 2");
    assert!(number(&links["epochs"][1]["loss"]) < number(&links["epochs"][0]["loss"]), "{links}");
}

/// A copy whose nodes have other numbers gives the same losses, and a run that is killed and resumed the same bits.
#[test]
fn copies_and_killed_runs_give_the_same() {
    let bench = bench();
    bench.text(&words("reorder both -o copy --by in-degree"));
    let losses = |dataset: &str| -> Vec<f64> {
        let epochs = train(&bench, dataset, "rgat", "--heads 2 --epochs 3")["epochs"].clone();
        epochs.as_array().expect("epochs").iter().map(|epoch| number(&epoch["loss"])).collect()
    };
    for (own, of_copy) in losses("both").into_iter().zip(losses("copy")) {
        assert!((own - of_copy).abs() < 1e-4, "{own}, of the copy {of_copy}");
    }
    let run = |name: &str| format!("train one {TRAIN} --model gin --epochs 4 --run {name}");
    bench.json(&words(&run("undisturbed")));
    let path = bench.path().join("killed");
    let mut training =
        Training::start(bench.command(&words(&format!("{} --checkpoint-every 2b", run("killed")))), &path);
    assert!(!training.wait_for_checkpoint(3), "it has more mini-batches than that");
    training.kill();
    bench.json(&["train", "--resume", "killed"]);
    alike(&path, &bench.path().join("undisturbed"));
    // The settings of a run are taken, features of edges too.
    let again = bench.json(&words("train --config undisturbed/config.toml one --run again"));
    assert_eq!(again["epochs"][3]["loss"], bench.json(&["train", "--resume", "undisturbed"])["epochs"][3]["loss"]);
}

/// The losses of a dataset left on disk are those of one in memory, bit for bit; native layers' are burn's but for rounding.
#[test]
fn operators_and_disk_give_the_same_losses() {
    let bench = bench();
    let losses = |dataset: &str, model: &str, more: &str| -> Vec<f64> {
        let trained = train(&bench, dataset, model, &format!("--heads 2 --epochs 3 {more}"));
        trained["epochs"].as_array().expect("epochs").iter().map(|epoch| number(&epoch["loss"])).collect()
    };
    let native = losses("both", "rgat", "--training Training_CPU_Native");
    let of_burn = losses("both", "rgat", "--training Training_CPU_Burn");
    assert!(native.iter().zip(&of_burn).all(|(a, b)| (a - b).abs() < 1e-3), "{native:?}, burn's {of_burn:?}");
    let unread = losses("both", "rgat", "--training Training_CPU_Native --no-edge-features");
    assert!((native[2] - unread[2]).abs() > 1e-3, "{native:?}, without features of edges {unread:?}");
    for (dataset, model, training, batching) in [
        ("both", "rgat", "Training_CPU_Native", "Batching_CPU+Disk_Typed"),
        ("one", "gin --sampler neighbor", "Training_CPU_Burn", "Batching_CPU+Disk_Neighbor"),
    ] {
        let in_memory = losses(dataset, model, &format!("--evaluation sampled --training {training}"));
        let named = format!("--evaluation sampled --training {training} --batching {batching}");
        assert_eq!(losses(dataset, model, &named), in_memory, "{dataset}, {model}");
    }
}

#[test]
fn what_does_not_hold_is_refused_by_name() {
    let bench = bench();
    let refused = |args: &str, words_of: &[&str]| bench.refused(&words(args), words_of);
    refused("train one --model gat --training Training_CPU_Native", &["does not do features of edges"]);
    bench.misused(&words("train one --model gat --sampler walk"), &["--sampler walk", "--no-edge-features"]);
    let remarks =
        |args: &str| String::from_utf8(bench.command(&words(args)).output().expect("it runs").stderr).expect("text");
    let short = "--epochs 1 --profile-seconds 0.1 --hidden 8 --heads 2 --sampler typed";
    let remark = remarks(&format!("train one --model gcn {short}"));
    assert!(remark.contains("gcn reads no features of edges; gat, gin and rgat do"), "{remark}");
    let remark = remarks(&format!("train both --model gat {short}"));
    assert!(remark.contains("gat does not read this graph's features of edges; rgat does"), "{remark}");
    bench.json(&words(&format!("train one {TRAIN} --model gat --epochs 1 --save model.safetensors")));
    fs::write(bench.path().join("plain.toml"), manifest("")).expect("room");
    bench.text(&words("import manifest plain.toml -o plain"));
    refused("evaluate model.safetensors plain", &["have 0 features, the model reads 2"]);
    // Faults of manifests.
    for (edges, why) in [
        ("features = \"short.npy\"", "3 rows for 4000 edges"),
        ("features = [\"sum\"]", "sum"),
        ("features = []", "features without a column"),
        (
            "features = [\"amount\"]\n[[edges]]\ntype = \"pays\"\nfile = \"more.csv\"\nsource = \"account\"\ntarget = \"account\"",
            "edges of a type whose features",
        ),
    ] {
        fs::write(bench.path().join("graph.toml"), manifest(edges)).expect("room");
        fs::write(bench.path().join("more.csv"), "from,to\n1,2\n").expect("room");
        let mut array =
            b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }".to_vec();
        array.resize(127, b' ');
        array.push(b'\n');
        array.extend([0; 24]);
        fs::write(bench.path().join("short.npy"), array).expect("room");
        refused("import manifest graph.toml -o graph", &[why]);
    }
}
