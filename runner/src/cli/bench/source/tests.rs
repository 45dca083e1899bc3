use super::BatchSequence;

#[test]
fn no_mini_batch_comes_twice() {
    let mut seen = std::collections::HashSet::new();
    for repeat in 0..3 {
        let sequence = BatchSequence::of_repeat(4, repeat, 10);
        assert!((0..10).all(|i| seen.insert(sequence.id(i))));
    }
    assert_eq!(BatchSequence::of_repeat(4, 1, 4).id(3), morphgl_registry::BatchId { epoch: 1, index: 3 });
}
