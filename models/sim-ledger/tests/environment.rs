//! Only the environment variable makes the simulated accelerator, its operators and their routes available.

use std::process::Command;

use morphgl_batching_sim_neighbor as _;
use morphgl_registry::{Registry, TrainingContext};
use morphgl_sim::{VARIABLE, available};
use morphgl_training_sim_ledger::{DESCRIPTION, KEY};
use morphgl_transferring_sim_copy as _;

/// Operators and routes that a program linking all operators has, one per line.
fn listing() -> String {
    let registry = Registry::collect().expect("no key twice");
    let mut lines: Vec<String> =
        registry.machine().accelerators.iter().map(|a| format!("{} {}", a.place, a.name)).collect();
    lines.extend(registry.status().iter().map(|s| match &s.availability {
        Ok(()) => format!("{}", s.description.key),
        Err(unavailable) => format!("{}: {}", s.description.key, unavailable.reason),
    }));
    let routes = registry.routes();
    lines.extend(
        routes.iter().map(|r| format!("{} > {} > {} @{}", r.batching, r.transferring, r.training, r.trained_at)),
    );
    lines.join("\n")
}

/// Runs in a process of its own: variables cannot be set safely in this one.
#[test]
fn child() {
    if std::env::var_os("MORPHGL_SIM_TEST_OUT").is_none() {
        return;
    }
    let out = std::env::var_os("MORPHGL_SIM_TEST_OUT").expect("just seen");
    std::fs::write(out, listing()).expect("room on the disk");
}

fn listing_with(config: Option<&str>, name: &str) -> Vec<String> {
    let out = std::env::temp_dir().join(format!("morphgl-sim-{name}-{}", std::process::id()));
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "child"]).env("MORPHGL_SIM_TEST_OUT", &out).env_remove(VARIABLE);
    config.map(|config| command.env(VARIABLE, config));
    let status = command.output().expect("this test runs").status;
    assert!(status.success(), "{status}");
    let text = std::fs::read_to_string(&out).expect("the child wrote it");
    std::fs::remove_file(&out).expect("it was there");
    text.lines().map(String::from).collect()
}

const KEYS: [&str; 6] = [
    "Batching_CPU_SimNeighbor",
    "Batching_PCIe+SIM_Neighbor",
    "Transferring_PCIe_SimDma",
    "Transferring_PCIe+SIM_SimGather",
    "Transferring_PCIe+Peer+SIM_SimCopy",
    "Training_SIM_Ledger",
];

/// Operators of a described machine, which no variable simulates: its host takes part, or samples for a device that gathers.
const OF_A_HOST: [&str; 4] = [
    "Transferring_CPU+PCIe_SimHostGather: it is of a described machine; give --machine to plan or train",
    "Transferring_PCIe+SIM_SimDmaGather: it is of a described machine; give --machine to plan or train",
    "Transferring_CPU_SimHost: it is of a described machine; give --machine to plan or train",
    "Training_CPU_SimLedger: it is of a described machine; give --machine to plan or train",
];

#[track_caller]
fn unavailable(lines: Vec<String>, reason: &str) {
    let mut lines = lines;
    let mut expected = KEYS.map(|key| format!("{key}: {reason}")).to_vec();
    expected.extend(OF_A_HOST.map(String::from));
    lines.sort();
    expected.sort();
    assert_eq!(lines, expected, "no device, no route, and every operator says why");
}

#[test]
fn unset_variable_has_no_simulated_operators() {
    let reason = "no simulated accelerator; set MORPHGL_SIM, for example MORPHGL_SIM=training=5ms";
    unavailable(listing_with(None, "unset"), reason);
    unavailable(listing_with(Some(""), "empty"), reason);
}

#[test]
fn an_invalid_configuration_is_no_device() {
    let reason = "MORPHGL_SIM: simulated accelerator, \"memory=0\": not a number of mini-batches; give at least 1, \
                  for example memory=14";
    unavailable(listing_with(Some("memory=0"), "wrong"), reason);
}

#[test]
fn set_variable_has_two_routes() {
    let lines = listing_with(Some("training=5ms"), "set");
    assert_eq!(lines[0], "sim:0 simulated accelerator");
    let mut keys = lines[1..11].to_vec();
    keys.sort();
    let mut expected = [&KEYS[..], &OF_A_HOST].concat();
    expected.sort_unstable();
    assert_eq!(keys, expected);
    assert_eq!(
        lines[11..],
        [
            "Batching_CPU_SimNeighbor > Transferring_PCIe_SimDma > Training_SIM_Ledger @sim:0",
            "Batching_PCIe+SIM_Neighbor > Transferring_PCIe+SIM_SimGather > Training_SIM_Ledger @sim:0",
        ]
    );
}

#[test]
fn two_devices_have_routes_between_them() {
    let lines = listing_with(Some("devices=2"), "devices");
    assert_eq!(lines[..2], ["sim:0", "sim:1"].map(|place| format!("{place} simulated accelerator")));
    let between = "Batching_PCIe+SIM_Neighbor > Transferring_PCIe+Peer+SIM_SimCopy > Training_SIM_Ledger";
    let found: Vec<&String> = lines.iter().filter(|line| line.starts_with(between)).collect();
    assert_eq!(found, [&format!("{between} @sim:1"), &format!("{between} @sim:0")], "from each to the other");
    assert_eq!(lines.len(), 2 + KEYS.len() + OF_A_HOST.len() + 6, "{lines:?}");
}

#[test]
fn options_replace_the_environment() {
    let registry = Registry::new(vec![available(DESCRIPTION)], morphgl_registry::Machine::probe()).expect("one key");
    let context = |options: &str| TrainingContext {
        place: "sim:0".parse().expect("a place"),
        options: options.parse().expect("JSON"),
        ..TrainingContext::new(std::sync::Arc::new(morphgl_conformance::training::tiny()), Default::default())
    };
    assert!(registry.training(&KEY, &context("{\"sim\": \"training=1ms\"}")).is_ok());
    let error = registry.training(&KEY, &context("{\"sim\": \"training=1\"}")).expect_err("no unit").to_string();
    assert!(error.contains("not a duration"), "{error}");
}

/// On a described machine its own operators are available, and no others; its devices have routes, and its host.
#[test]
fn a_described_machine_has_routes_to_its_devices_and_to_its_host() {
    let machine = morphgl_sim::MachineDescription::named("eight-v100").expect("it comes with MorphGL");
    let registry = Registry::described(machine.machine()).expect("no key twice");
    assert!(registry.status().iter().all(|status| status.description.simulated && status.availability.is_ok()));
    let routes = registry.routes();
    let to = |place: &str| routes.iter().filter(|route| route.trained_at.to_string() == place).count();
    // Batched by the host or by the device, and gathered by either, or batched by one of the seven others.
    assert_eq!((to("host"), to("sim:0"), to("sim:7"), routes.len()), (1, 11, 11, 89));
    let options = serde_json::json!({ "machine": machine });
    let context = TrainingContext {
        place: "sim:8".parse().expect("a place"),
        options,
        ..TrainingContext::new(std::sync::Arc::new(morphgl_conformance::training::tiny()), Default::default())
    };
    let error = registry.training(&KEY, &context).expect_err("eight devices").to_string();
    assert_eq!(error, "Training_SIM_Ledger: machine eight-v100 has no device sim:8; name another");
}
