use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn every_level_copies_what_indexing_copies(
        row in 1usize..260, nodes in prop::collection::vec(0u32..40, 0..50), shift in 0usize..64, from in 0usize..3,
    ) {
        let rows: Vec<u8> = (0..40 * row + from).map(|i| (i * 31 + i / 251) as u8).collect();
        let rows = &rows[from..];
        let expected: Vec<u8> =
            nodes.iter().flat_map(|&v| &rows[v as usize * row..(v as usize + 1) * row]).copied().collect();
        for level in SimdLevel::available() {
            for stores in [Stores::Cached, Stores::Streaming] {
                // Bytes around the output belong to others.
                let mut out = vec![0xA5; shift + expected.len() + 64];
                copy(level, stores, rows, row, &nodes, &mut out[shift..shift + expected.len()]);
                prop_assert_eq!(&out[shift..shift + expected.len()], &expected[..], "{} {:?}", level, stores);
                let others = out[..shift].iter().chain(&out[shift + expected.len()..]);
                prop_assert!(others.copied().all(|byte| byte == 0xA5), "{} {:?}", level, stores);
            }
        }
    }
}

#[test]
fn a_row_that_does_not_exist_is_refused_before_anything_is_copied() {
    for level in SimdLevel::available() {
        for stores in [Stores::Cached, Stores::Streaming] {
            let mut out = [9; 4];
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                copy(level, stores, &[1, 2, 3, 4, 5], 2, &[0, 2], &mut out);
            }));
            let message = *caught.expect_err("two whole rows are all there are").downcast::<String>().expect("text");
            assert_eq!(message, "row 2 does not exist, there are 2", "{level} {stores:?}");
            assert_eq!(out, [9; 4], "{level} {stores:?}");
        }
    }
}
