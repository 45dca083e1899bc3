use super::{peak_rss_bytes, recent_peak, take_peak};

#[test]
fn a_taken_peak_is_still_the_peak() {
    let large = vec![1u8; 64 << 20];
    assert!(large.iter().map(|&b| u64::from(b)).sum::<u64>() == 64 << 20);
    let with = recent_peak();
    assert!(with >= 64 << 20);
    drop(large);
    take_peak();
    // The system counts pages by thread, and adds them up now and then: a few may be missing.
    assert!(peak_rss_bytes() + (1 << 20) >= with);
}
