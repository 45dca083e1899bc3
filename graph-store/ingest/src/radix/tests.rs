use proptest::prelude::*;

use super::*;
use crate::records::Weighted;

proptest! {
    #[test]
    fn equals_the_stable_sort_of_the_library(
        keys in prop::collection::vec((0u64..5000, 0u64..70_000), 0..700),
        shifts in prop::sample::select(vec![(32, 0), (40, 1), (0, 0), (33, 31)]),
        low in prop::sample::select(vec![0u32, 7, 32]),
    ) {
        let key = |&(a, b): &(u64, u64)| a << shifts.0 | b << shifts.1;
        let mut actual = Records::default();
        keys.iter().map(key).zip((0u16..).map(f32::from)).for_each(|(k, w)| actual.extend_from_slice(&[Weighted::new(k, w)]));
        let mut expected = actual.to_vec();
        expected.sort_by_key(|r| r.key() >> low);
        let mut scratch = Records::default();
        scratch.extend_from_slice(&[Weighted::new(7, 7.0)]);
        sort(&mut actual, &mut scratch, low);
        prop_assert_eq!(&actual[..], &expected[..]);
    }
}

/// One key far from all others uses up the bits of the digits.
#[test]
fn records_that_agree_in_their_upper_bits_are_sorted() {
    for (len, outlier) in [(100, 1 << 62), (5000, 1 << 62), (5000, 1 << 31)] {
        let mut actual = Records::default();
        actual.append(len, |out| {
            let key = |i: u64| if i == 50 { outlier } else { i * 7919 % 97 };
            (0u64..).zip(out).for_each(|(i, out)| *out = Weighted::new(key(i), i as f32));
            len
        });
        let mut expected = actual.to_vec();
        expected.sort_by_key(|r| r.key());
        sort(&mut actual, &mut Records::default(), 0);
        assert!(actual[..] == expected[..], "{len} records beside {outlier:x}");
    }
}
