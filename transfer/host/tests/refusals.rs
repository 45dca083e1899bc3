//! Invalid contexts are refused with their cure.

use std::sync::Arc;

use morphgl_conformance::batching::graphs;
use morphgl_registry::{Place, TransferringContext};
use morphgl_transferring_cpu_host::CpuHost;

#[track_caller]
fn check(change: impl FnOnce(&mut TransferringContext), expected: &str) {
    let dataset = Arc::new(graphs::cycle(3));
    let options = serde_json::Value::Null;
    let mut context = TransferringContext { options, ..TransferringContext::new(dataset, Place::Host, Place::Host) };
    change(&mut context);
    assert_eq!(CpuHost::new(&context).expect_err("the context is refused").to_string(), expected);
}

#[test]
fn another_place() {
    check(
        |context| context.to = "cuda:0".parse().expect("a place"),
        "place: Transferring_CPU_Host knows the host alone, not cuda:0; choose a transfer of that device",
    );
}

#[test]
fn options_it_does_not_have() {
    check(
        |context| context.options = serde_json::json!({"depth": 2}),
        "options: Transferring_CPU_Host has none; remove {\"depth\":2}",
    );
}
