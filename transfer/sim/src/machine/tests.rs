use super::*;
use crate::NAMED;

const SMALL: &str = "\
name = \"small\"

[host]
cores = 4
memory_gb = 16
bandwidth_gb_per_s = 40
sampling_m_edges_per_s = 50
gflop_per_s = 60

[[link]]
name = \"pcie\"
gb_per_s = 10

[[device]]
name = \"device\"
count = 2
link = \"pcie\"
memory_gb = 8
bandwidth_gb_per_s = 400
tflop_per_s = 10
";

#[track_caller]
fn refused(from: &str, to: &str, expected: &str) {
    let text = SMALL.replacen(from, to, 1);
    assert_ne!(text, SMALL, "{from:?} is in the text");
    let error = MachineDescription::parse("m.toml", &text).expect_err(to).to_string();
    assert_eq!(error, format!("{expected}; docs/machines.md has every key"));
}

#[test]
fn faults_of_a_file_are_named_with_line_and_cure() {
    MachineDescription::parse("m.toml", SMALL).expect("valid");
    let keys = "`cores`, `memory_gb`, `bandwidth_gb_per_s`, `sampling_m_edges_per_s`, `gflop_per_s`";
    refused("cores = 4", "coers = 4", &format!("m.toml, line 4: unknown field `coers`, expected one of {keys}"));
    refused("cores = 4\n", "", "m.toml, line 3: missing field `cores`");
    refused("cores = 4", "cores = 0", "m.toml, line 4: 0 cores cannot be planned with; give 1 to 512");
    let above = "is no number from 10^-9 to 10^12; give one";
    refused("memory_gb = 8", "memory_gb = -8", &format!("m.toml, line 18: -8 {above}"));
    refused("gb_per_s = 10", "gb_per_s = nan", &format!("m.toml, line 12: NaN {above}"));
    refused(
        "link = \"pcie\"",
        "link = \"pci\"",
        "m.toml, line 17: device \"device\" is on link \"pci\"; give one of: pcie",
    );
    refused("count = 2", "count = 16", "m.toml, line 16: 16 devices with those of \"device\"; give 1 to 15");
    let twice = "[[link]]\nname = \"pcie\"\ngb_per_s = 1\n[[device]]";
    refused("[[device]]", twice, "m.toml, line 11: link \"pcie\" is described twice; give each a name of its own");
}

#[test]
fn devices_of_a_kind_are_listed_one_by_one_and_survive_serialisation() {
    let machine = MachineDescription::parse("m.toml", SMALL).expect("valid");
    assert_eq!(machine.devices.len(), 2);
    assert_eq!(machine.machine().accelerators[1].place.to_string(), "sim:1");
    let toml = toml::to_string(&machine).expect("serialisable");
    assert_eq!(MachineDescription::parse("again", &toml).expect("what was written"), machine);
    let json = serde_json::to_value(&machine).expect("serialisable");
    assert_eq!(serde_json::from_value::<MachineDescription>(json).expect("what was written"), machine);
}

#[test]
fn every_named_machine_is_valid_and_has_the_name_it_is_found_by() {
    for (name, _) in NAMED {
        let machine = MachineDescription::named(name).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(machine.name, name);
        assert!(!machine.summary.is_empty(), "{name}");
        let toml = toml::to_string(&machine).expect("serialisable");
        assert_eq!(MachineDescription::parse(name, &toml).expect("what was written"), machine);
    }
    let error = MachineDescription::named("v100").expect_err("no such machine").to_string();
    assert!(NAMED.iter().all(|(name, _)| error.contains(name)), "{error}");
    assert_eq!(MachineDescription::named("eight-v100").expect("there").devices.len(), 8);
}
