use super::*;

#[test]
fn rows_become_dense_and_repeated_columns_add_up() {
    let m = SparseRows::new([2, 3], vec![0, 3, 3], vec![2, 0, 2], vec![1.0, 2.0, 4.0]).unwrap();
    let mut row = [9.0; 3];
    m.dense_row(0, &mut row);
    assert_eq!(row, [2.0, 0.0, 5.0]);
    m.dense_row(1, &mut row);
    assert_eq!(row, [0.0; 3]);
    assert!(m.has_small_integers());
    let large = SparseRows::new([1, 1], vec![0, 2], vec![0, 0], vec![200.0, 100.0]).unwrap();
    assert!(!large.has_small_integers(), "300 does not fit u8 although each entry does");
}

#[test]
fn impossible_matrices_are_refused() {
    let check = |indptr: &[i64], indices: &[i64], values: &[f32], what: &str| {
        let fault = SparseRows::new([2, 2], indptr.to_vec(), indices.to_vec(), values.to_vec()).unwrap_err();
        assert!(fault.contains(what), "{fault}");
    };
    check(&[0, 1], &[0], &[1.0], "2 row offsets for 2 rows");
    check(&[0, 1, 2], &[0], &[1.0], "row offsets from 0 to 2");
    check(&[0, 2, 1], &[0], &[1.0], "decreases from 2 to 1");
    check(&[0, 1, 1], &[2], &[1.0], "in column 2");
    check(&[0, 1, 1], &[-1], &[1.0], "in column -1");
    check(&[0, 1, 1], &[0], &[f32::NAN], "is NaN");
    check(&[0, 1, 1], &[0], &[], "1 column numbers for 0 values");
    assert!(SparseRows::new([-1, 2], vec![], vec![], vec![]).unwrap_err().contains("impossible"));
}
