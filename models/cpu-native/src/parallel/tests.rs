use super::*;

#[test]
fn every_task_has_its_pieces() {
    for (count, rows) in [(1, 3), (4, 11), (7, 21), (0, 0)] {
        let (mut a, mut b) = (vec![0.0; 2 * rows], vec![0.0; count]);
        tasks(count, [(&mut a, 6), (&mut b, 1)], &|task, [a, b]| {
            assert_eq!((a.len(), b.len()), ((2 * rows - 6 * task).min(6), 1));
            a.fill(task as f32);
            b.fill(task as f32);
        });
        assert!(a.iter().enumerate().all(|(i, &x)| x == (i / 6) as f32));
        assert!(b.iter().enumerate().all(|(i, &x)| x == i as f32));
    }
    let mut ids = [0u32; 10];
    pieces(&mut ids, 4, &|task, piece| piece.fill(task as u32));
    assert_eq!(ids, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]);
}
