use super::*;

#[test]
fn records_are_a_vector() {
    let mut records = Records::<Weighted>::default();
    let all: Vec<_> = (0..5000u64).map(|i| Weighted::new(i / 3, i as f32)).collect();
    all.chunks(7).for_each(|r| records.extend_from_slice(r));
    records.extend_from_slice(&all[..7]);
    assert_eq!((&records[..5000], &records[5000..]), (&all[..], &all[..7]));
    records.truncate(5000);
    records.dedup();
    assert_eq!(records[..], all.iter().copied().step_by(3).collect::<Vec<_>>()[..]);
    records.shrink();
    assert_eq!(records.capacity(), 1667);
    records.append(9, |out| {
        out[0] = all[1];
        1
    });
    assert_eq!((records.len(), records[1667]), (1668, all[1]));
    records.clear();
    assert!(records.is_empty());
}

#[test]
fn decode_is_the_inverse_of_encode() {
    let record = Weighted::new(1 << 63 | 5, 0.1);
    let mut bytes = [0; 12];
    record.encode(&mut bytes);
    assert_eq!((Weighted::decode(&bytes), record.weight()), (record, 0.1));
}
