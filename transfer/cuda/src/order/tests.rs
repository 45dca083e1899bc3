use proptest::prelude::*;

use super::*;

#[test]
fn a_table_of_4_gib_has_buckets_of_1_or_2_mib() {
    for (address, bytes, shift, number) in [
        (0, 4 << 30, 20, 4096),
        (1 << 20, 4 << 30, 20, 4096),
        // One that does not begin with a bucket has a part of a bucket more.
        (4096, 4 << 30, 21, 2049),
        (4096, 64 << 20, 15, 2049),
        (100, 4000, 12, 2),
        (0, 4097, 12, 2),
        (5, 0, 12, 1),
    ] {
        assert_eq!(buckets(address, bytes), (shift, number), "{bytes} bytes at {address}");
    }
}

proptest! {
    #[test]
    fn every_byte_of_a_table_has_a_bucket(address in 0u64..1 << 47, bytes in 1u64..1 << 46) {
        let (shift, number) = buckets(address, bytes);
        prop_assert_eq!(((address + bytes - 1) >> shift) - (address >> shift), u64::from(number) - 1);
        prop_assert!(u64::from(number) <= MAX_BUCKETS);
        // Half as wide ones would be too many, or narrower than a page.
        let half = shift - 1;
        prop_assert!(half < MIN_SHIFT || ((address + bytes - 1) >> half) - (address >> half) >= MAX_BUCKETS);
    }
}
