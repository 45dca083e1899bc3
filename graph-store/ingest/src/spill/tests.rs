use super::*;
use crate::records::{Keyed, Weighted};

/// Runs longer than a stride, spans shorter than the runs, and one key with more records than a span.
#[test]
fn long_runs_merge_by_spans() {
    let dir = tempfile::tempdir().unwrap();
    for unique in [false, true] {
        let mut spill = Spill::create(&dir.path().join("spill")).unwrap();
        let (mut expected, pool) = (Vec::<Weighted>::new(), PagePool::new());
        for run in 0..5u64 {
            let key = |i: u64| if i.is_multiple_of(2) { 1 << 33 } else { ((i * 7919 + run * 104_729) % 30_011) << 20 };
            let mut records: Vec<_> = (0..40_000).map(|i| Weighted::new(key(i), (run * 40_000 + i) as f32)).collect();
            records.sort_by_key(|r| r.key());
            spill.begin();
            records.chunks(777).try_for_each(|r| spill.append::<Weighted>(&encoded(Sorted::Whole(r), &pool))).unwrap();
            expected.extend(records);
        }
        let mut actual = Vec::new();
        let mut emit = |records: Vec<Weighted>| {
            actual.extend(records);
            Ok(())
        };
        let merge = Merge { unique, len: 1000, capacity: 0, threads: 2, wave: 9 };
        spill.merge(&spill.runs, 1 << 20, merge, &|records: Sorted<'_, Weighted>| records.to_vec(), &mut emit).unwrap();
        expected.sort_by_key(|r| r.key());
        if unique {
            expected.dedup_by_key(|r| r.key());
        }
        assert!(actual == expected, "unique: {unique}");
    }
}
