//! The operator has its row in `morphgl ops`, forms a route, and trains.

use std::process::Command;

fn json(args: &[&str]) -> serde_json::Value {
    let output = Command::new(env!("CARGO_BIN_EXE_morphgl-checked")).args(args).output().expect("the binary starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

#[test]
fn it_is_listed_and_forms_a_route() {
    let ops = json(&["ops", "--json"]);
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
        let report = json(&[&args[..], &["--evaluation", "none", "--profile-seconds", "0.1"], &one].concat());
        report["epochs"][0]["loss"].as_f64().expect("a loss")
    };
    assert_eq!(train("Transferring_CPU_Checked"), train("Transferring_CPU_Host"));
}

#[test]
fn its_option_is_listed_set_and_checked_and_its_counter_is_reported() {
    let ops = json(&["ops", "--json"]);
    let row = ops["operators"].as_array().expect("a list").iter().find(|o| o["key"] == "Transferring_CPU_Checked");
    let row = row.expect("the operator is listed");
    assert_eq!(row["options"][0]["name"], "every");
    assert_eq!(row["counters"][0]["name"], "checked_batches");

    let small = ["train", "--json", "--epochs", "2", "--hidden", "8", "--layers", "2", "--fanouts", "3,3"];
    let quick = ["--evaluation", "none", "--profile-seconds", "0.1", "--transferring", "Transferring_CPU_Checked"];
    let train = |set: &[&str]| json(&[&small[..], &quick, set].concat());
    let counted = |report: &serde_json::Value| {
        report["counters"]["Transferring_CPU_Checked"]["checked_batches"].as_u64().expect("a count")
    };
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
    let ops = json(&["ops", "--json"]);
    let row = ops["operators"].as_array().expect("a list").iter().find(|o| o["key"] == key).expect("it is listed");
    assert_eq!((&row["reads"], &row["counters"][0]["name"]), (&"disk".into(), &"sampled_edges".into()));

    let dir = tempfile::tempdir().expect("a folder");
    let dataset = dir.path().join("graph").display().to_string();
    json(&["generate", "sbm", "-o", &dataset, "--nodes", "3000", "--json"]);
    let small = ["train", &dataset, "--json", "--epochs", "1", "--hidden", "8", "--layers", "2", "--fanouts", "3,3"];
    let quick = ["--evaluation", "none", "--profile-seconds", "0.1", "--batch-size", "256", "--batching"];
    // One trainer: of two that are about as fast, the choice may be either, and their losses differ by rounding.
    let one = ["--training", "Training_CPU_Native"];
    let train = |key: &str| json(&[&small[..], &quick, &[key], &one].concat());
    let (mapped, memory) = (train(key), train("Batching_CPU_Neighbor"));
    assert_eq!(mapped["plan"]["schedule"]["shares"][0]["keys"]["batching"], key);
    assert!(mapped["counters"][key]["sampled_edges"].as_u64().expect("a count") > 0);
    assert_eq!(mapped["epochs"][0]["loss"], memory["epochs"][0]["loss"]);
}

/// A sampler that does not claim the mini-batches of others runs where it is named, and nowhere else.
#[test]
fn its_sampler_with_mini_batches_of_its_own_runs_where_it_is_named() {
    let key = "Batching_CPU_Labor";
    let ops = json(&["ops", "--json"]);
    let row = ops["operators"].as_array().expect("a list").iter().find(|o| o["key"] == key).expect("it is listed");
    assert_eq!((&row["interchangeable"], &row["samplers"][0]), (&false.into(), &"neighbor".into()));

    let dir = tempfile::tempdir().expect("a folder");
    let [dataset, model] = ["graph", "model.safetensors"].map(|name| dir.path().join(name).display().to_string());
    json(&["generate", "sbm", "-o", &dataset, "--nodes", "3000", "--json"]);
    let train = ["train", &dataset, "--json", "--epochs", "1", "--hidden", "8", "--layers", "2", "--fanouts", "3,3"];
    let quick = ["--evaluation", "sampled", "--profile-seconds", "0.1", "--batch-size", "256", "--save", &model];
    let trained = |more: &[&str]| json(&[&train[..], &quick, &["--training", "Training_CPU_Native"], more].concat());
    let batching = |report: &serde_json::Value| -> Vec<String> {
        let routes = report["profile"]["routes"].as_array().expect("routes").iter();
        routes.map(|r| r["route"]["batching"].as_str().expect("a key").to_string()).collect()
    };
    // Not ranked against the others: it is not even measured.
    let auto = trained(&[]);
    assert!(batching(&auto).iter().all(|batching| batching != key), "{:?}", batching(&auto));
    assert_eq!(auto["training"]["sampled_by"], "Batching_CPU_Neighbor");
    // Named, it alone samples, for training and for the evaluation beside it; its option is taken, and its counter reported.
    let nodes = |options: &[&str]| {
        let named = trained(&[&["--batching", key], options].concat());
        assert!(batching(&named).iter().all(|batching| batching == key), "{:?}", batching(&named));
        assert_eq!(named["training"]["sampled_by"], key);
        named["counters"][key]["input_nodes"].as_u64().expect("a count")
    };
    let (apart, same) = (nodes(&[]), nodes(&["--set", "Batching_CPU_Labor.layer_dependency=true"]));
    assert!(same > 0 && same != apart, "{same} input nodes by the same numbers at every hop, {apart} without");

    // Nor does it take the place of another one in an evaluation.
    let evaluate = ["evaluate", &model, &dataset, "--evaluation", "sampled", "--fanouts", "3,3", "--json"];
    let by = |options: &[&str]| json(&[&evaluate[..], options].concat())["sampled_by"].clone();
    assert_eq!((by(&[]), by(&["--batching", key])), ("Batching_CPU_Neighbor".into(), key.into()));
    let text = Command::new(env!("CARGO_BIN_EXE_morphgl-checked")).args(&evaluate[..7]).output().expect("it starts");
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("mini-batches sampled by Batching_CPU_Neighbor: fanouts 3,3"), "{text}");
}
