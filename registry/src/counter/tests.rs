use super::*;

#[test]
fn amounts_add_up_by_name() {
    let mut sum = Counters::NONE.with(&DISK_READS, 2).with(&DISK_BYTES, 1024);
    sum += Counters::NONE.with(&CACHE_HITS, 5).with(&DISK_READS, 1);
    sum += Counters::NONE;
    assert_eq!(sum.iter().collect::<Vec<_>>(), [("disk_reads", 3), ("disk_bytes", 1024), ("cache_hits", 5)]);
    assert_eq!((sum.get(&CACHE_HITS), sum.get(&LINK_BYTES)), (Some(5), None));
    assert!(Counters::NONE.is_empty() && !sum.is_empty());
}
