use super::{ProcessMemory, recent_peak};

#[test]
fn a_reset_peak_still_counts() {
    let large = vec![1u8; 64 << 20];
    assert!(large.iter().map(|&b| u64::from(b)).sum::<u64>() == 64 << 20);
    let with = recent_peak();
    assert!(with >= 64 << 20);
    drop(large);
    let memory = ProcessMemory::default();
    memory.take_peak();
    // The system counts pages by thread and sums them lazily: a few may be missing.
    assert!(memory.peak() + (1 << 20) >= with);
}
