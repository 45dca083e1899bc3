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
    // Wherever the host's transfer stands, ours can stand.
    assert!(through("Transferring_CPU_Checked") > 0, "{routes:?}");
    assert_eq!(through("Transferring_CPU_Checked"), through("Transferring_CPU_Host"), "{routes:?}");
}

#[test]
fn it_trains_as_the_host_transfer_does() {
    let train = |key: &str| {
        let args = ["train", "--json", "--epochs", "1", "--hidden", "8", "--layers", "2", "--fanouts", "3,3"];
        let report =
            json(&[&args[..], &["--evaluation", "none", "--profile-seconds", "0.1", "--transferring", key]].concat());
        report["epochs"][0]["loss"].as_f64().expect("a loss")
    };
    assert_eq!(train("Transferring_CPU_Checked"), train("Transferring_CPU_Host"));
}
