//! A steady state allocates nothing. The only test of its program: statistics count all uses of the device.

mod common;

use common::{check, operator, stream, with_rows};
use morphgl_conformance::available;
use morphgl_conformance::batching::Case;
use morphgl_cuda::statistics;
use serde_json::json;

#[test]
fn a_steady_state_allocates_nothing() {
    if !available(&morphgl_transferring_cuda_zero_copy::DESCRIPTION) {
        return;
    }
    let case = Case::new(with_rows(900, 100));
    let stream = stream();
    let mut operator =
        operator(&case, json!({"presample": 2, "cache_bytes": 40_000})).expect("the device is available");
    let mut settled = 0;
    for round in 0..6 {
        (0..5).for_each(|index| check(&mut operator, &stream, &case, index));
        match round {
            0..=2 => settled = statistics(stream.device()).allocations,
            _ => assert_eq!(statistics(stream.device()).allocations, settled, "in round {round}"),
        }
    }
}
