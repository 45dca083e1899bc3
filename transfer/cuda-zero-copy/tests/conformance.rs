//! The suite of the phase, and the cache's laws, on a CUDA device, or the emulated one.

mod common;

use std::sync::Arc;

use common::{check, operator, place, stream, upload, with_rows};
use morphgl_conformance::available;
use morphgl_conformance::batching::Case;
use morphgl_conformance::transferring;
use morphgl_registry::{Place, TransferringContext};
use morphgl_transferring_cuda_zero_copy::{DESCRIPTION, ZeroCopy};
use proptest::prelude::*;
use serde_json::{Value, json};

#[test]
fn conforms() {
    if !available(&DESCRIPTION) {
        return;
    }
    let stream = stream();
    transferring::run_from(&DESCRIPTION, &place(), &mut |batch, _| upload(&stream, &batch));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn every_row_length_gathers_from_cache_and_host(row_bytes in 1usize..1100, hold in 0u64..100) {
        if !available(&DESCRIPTION) {
            return Ok(());
        }
        let case = Case::new(with_rows(100, row_bytes));
        let stream = stream();
        let mut operator = operator(&case, json!({"presample": 0})).expect("it is emulated");
        check(&mut operator, &stream, &case, 0);
        let hotness: Vec<f32> = (0..100).map(|v| (v * 37 % 100) as f32).collect();
        // Two words of the map, and an address.
        let budget = 2 * 16 + 8 + hold * row_bytes as u64;
        let held = operator.hold(&hotness, budget).expect("room") as u64;
        // A node that was never accessed is not worth holding.
        prop_assert_eq!(held, hold.min(99));
        check(&mut operator, &stream, &case, 0);
        check(&mut operator, &stream, &case, 1);
    }
}

#[test]
fn the_cache_is_filled_with_what_was_accessed_most() {
    if !available(&DESCRIPTION) {
        return;
    }
    let case = Case::new(with_rows(120, 36));
    let stream = stream();
    let mut operator = operator(&case, json!({"presample": 2, "cache_bytes": 40 + 10 * 36})).expect("it is emulated");
    check(&mut operator, &stream, &case, 0);
    assert_eq!(operator.held(), 0);
    check(&mut operator, &stream, &case, 1);
    assert_eq!(operator.held(), 10);
    check(&mut operator, &stream, &case, 2);
}

#[test]
fn rows_that_all_fit_are_sent_at_construction() {
    if !available(&DESCRIPTION) {
        return;
    }
    let case = Case::new(with_rows(120, 36));
    let stream = stream();
    // Two words of the map, and an address.
    let all = 2 * 16 + 8 + 120 * 36;
    for (options, held) in [
        (json!(null), 120),
        (json!({"cache_bytes": all}), 120),
        (json!({"cache_bytes": all - 1}), 0),
        (json!({"cache_bytes": 0}), 0),
        (json!({"presample": 0}), 0),
    ] {
        let mut operator = operator(&case, options.clone()).expect("it is emulated");
        assert_eq!(operator.held(), held, "{options}");
        check(&mut operator, &stream, &case, 0);
    }
}

#[test]
fn refuses_what_it_cannot_do() {
    if !available(&DESCRIPTION) {
        return;
    }
    let case = Case::new(with_rows(30, 8));
    for (options, expected) in [
        (json!({"share": 0.0}), "a share above 0"),
        (json!({"share": 1.5}), "a share above 0"),
        (json!({"cache": 1}), "unknown field"),
        (json!({"peers": "some"}), "options: peers: \"some\"; give \"none\", \"all\" or a list"),
        (json!({"peers": ["cuda"]}), "\"cuda\" is no place; give such as \"cuda:1\""),
        (json!({"peers": ["cuda:0"]}), "cuda:0 is the device that gathers"),
        (json!({"peers": ["cuda:1", "cuda:1"]}), "cuda:1 is named twice"),
        (json!({"peers": ["sim:0"]}), "it runs on CUDA devices, not at sim:0"),
    ] {
        let error = operator(&case, options).expect_err("it cannot");
        assert!(error.contains(expected) && error.contains("Transferring_CUDA+PCIe_ZeroCopy"), "{error}");
    }
    let dataset = Arc::clone(&case.dataset);
    let context = TransferringContext { dataset, from: Place::Host, to: place(), gather: true, options: Value::Null };
    let error = ZeroCopy::new(&context).expect_err("it stays on the device").to_string();
    assert!(error.contains("from host to cuda:0"), "{error}");
}
