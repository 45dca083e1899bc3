//! The probe of address translation on the emulated device: right rows, and a line for every configuration.
#![cfg(feature = "emulate")]

#[path = "../benches/translation/probe.rs"]
mod probe;

use std::collections::BTreeSet;

use morphgl_cuda::Device;
use morphgl_transferring_cuda::ZERO_COPY_KEY;
use probe::{MEMORIES, ORDERS, Plan};
use serde_json::Value;

fn measured(plan: &Plan) -> Vec<Value> {
    let device = Device::open(&"cuda:0".parse().expect("a place"), &ZERO_COPY_KEY).expect("the device is emulated");
    let mut lines = Vec::new();
    // It compares the gathered rows itself.
    probe::run(&device, plan, &mut |line| lines.push(line)).unwrap_or_else(|e| panic!("{e}"));
    lines
}

fn plan() -> Plan {
    let (row_bytes, tables) = (vec![200, 128], vec![5 << 20, 1 << 20]);
    Plan { row_bytes, tables, blocks: vec![1, 3], threads: 128, ids: 777, rounds: 1, seconds: 1e6 }
}

#[test]
fn every_configuration_is_measured_and_its_rows_are_right() {
    let (lines, plan) = (measured(&plan()), plan());
    let of = |what: &str| lines.iter().filter(|line| line["what"] == what).cloned().collect::<Vec<_>>();
    let configuration = |line: &Value| {
        assert!(line["median"].as_f64().is_some_and(|rate| rate > 0.0), "{line}");
        ["memory", "table", "row_bytes", "order", "blocks"].map(|name| line[name].to_string())
    };
    let found: BTreeSet<[String; 5]> = of("translation").iter().map(configuration).collect();
    let mut expected = BTreeSet::new();
    for (memory, _) in MEMORIES {
        for table in &plan.tables {
            for row_bytes in &plan.row_bytes {
                for order in ORDERS {
                    for blocks in &plan.blocks {
                        let quoted = |text: &str| format!("{text:?}");
                        let [table, row_bytes, blocks] = [table, row_bytes, blocks].map(usize::to_string);
                        expected.insert([quoted(memory), table, row_bytes, quoted(order), blocks]);
                    }
                }
            }
        }
    }
    assert_eq!(found, expected);
    let memories = of("translation memory");
    assert_eq!(memories.len(), MEMORIES.len(), "{memories:?}");
    assert!(memories.iter().all(|line| line["bytes"] == 5 << 20 && line.get("error").is_none()), "{memories:?}");
}

#[test]
fn without_time_every_kind_of_memory_says_what_is_left_out() {
    let lines = measured(&Plan { seconds: -1.0, ..plan() });
    let left_out: Vec<u64> = lines.iter().filter_map(|line| line["left_out"].as_u64()).collect();
    assert_eq!(left_out, [24; 3], "{lines:?}");
    assert!(lines.iter().all(|line| line["what"] != "translation"), "{lines:?}");
}
