use super::*;

#[test]
fn more_workers_slow_training_no_less() {
    let split = |workers, training| InterferencePoint {
        workers,
        threads: 1,
        training_threads: 3,
        contention: Contention { batching: 2.0, training },
    };
    let all = with_more_workers(vec![split(1, 1.2), split(3, 1.1)], 4);
    let training: Vec<_> =
        (1..=4).map(|w| all.iter().find(|t| t.workers == w).map(|t| t.contention.training)).collect();
    assert_eq!(training, [Some(1.2), Some(1.2), Some(1.1), Some(1.2)]);
    assert_eq!(all.len(), 4);
    assert_eq!(all.iter().find(|t| t.workers == 2).map(|t| t.contention.batching), Some(1.0));
}
