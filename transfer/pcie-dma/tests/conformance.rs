//! The suite of phase Transferring, on a CUDA device or the emulated one.

use std::sync::Arc;

use morphgl_conformance::available;
use morphgl_conformance::batching::{Case, graphs};
use morphgl_conformance::transferring;
use morphgl_registry::{Place, TransferringContext};
use morphgl_transferring_pcie_dma::{DESCRIPTION, PcieDma};
use serde_json::{Value, json};

fn context(case: &Case, options: Value) -> TransferringContext {
    let to = "cuda:0".parse().expect("a place");
    TransferringContext {
        dataset: Arc::clone(&case.dataset),
        from: Place::Host,
        to,
        gather: true,
        sampled: None,
        options,
    }
}

#[test]
fn conforms() {
    if !available(&DESCRIPTION) {
        return;
    }
    transferring::run(&DESCRIPTION);
}

#[test]
fn invalid_settings_are_refused_with_cures() {
    if !available(&DESCRIPTION) {
        return;
    }
    let case = Case::new(graphs::random(30, 3, false));
    let elsewhere = TransferringContext { from: "cuda:0".parse().expect("a place"), ..context(&case, Value::Null) };
    for (context, expected) in [
        (elsewhere, "not at cuda:0"),
        (TransferringContext { to: Place::Host, ..context(&case, Value::Null) }, "not at host"),
        (context(&case, json!({"depth": 0})), "a depth of 0"),
        (context(&case, json!({"deep": 1})), "unknown field"),
    ] {
        let error = PcieDma::new(&context).expect_err("refused").to_string();
        assert!(error.contains(expected) && error.contains("Transferring_PCIe_Dma"), "{error}");
    }
}
