use super::*;

#[test]
fn every_row_is_in_one_part_with_its_pieces() {
    let indptr: Vec<u32> = (0..=100u32).map(|r| if r > 40 { r / 3 + 5000 } else { r / 3 }).collect();
    for work in [1, 7, 100, 1 << 20] {
        let parts = Parts::new(&indptr, work);
        let entries = indptr[100] as usize;
        let (mut a, mut b, mut c) = (vec![0.0; 200], vec![0.0; 3 * (entries + 100)], vec![0.0; 2 * parts.count]);
        let pieces = [Piece::Row(2), Piece::Entry { self_loops: true, each: 3 }, Piece::Part(2)];
        parts.run(pieces, [&mut a, &mut b, &mut c], &|rows, [a, b, c]| {
            assert_eq!(a.len(), 2 * rows.len());
            assert_eq!(b.len(), 3 * ((indptr[rows.end] - indptr[rows.start]) as usize + rows.len()));
            assert_eq!(c.len(), 2);
            a.chunks_exact_mut(2).zip(rows).for_each(|(a, row)| a.fill(a[0] + 1.0 + row as f32));
            [b, c].into_iter().flatten().for_each(|x| *x += 1.0);
        });
        assert!(a.iter().enumerate().all(|(i, &x)| x == 1.0 + (i / 2) as f32), "{work}");
        assert!([b, c].iter().flatten().all(|&x| x == 1.0), "{work}");
    }
}
