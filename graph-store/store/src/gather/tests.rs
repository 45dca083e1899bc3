use half::f16;

use super::*;

#[test]
fn rows_arrive_in_order_and_type() {
    let matrix =
        FeatureMatrix::F16 { data: (0..30).map(|i| f16::from_f32(i as f32)).collect::<Vec<_>>().into(), dim: 3 };
    let nodes = [9u32, 0, 9, 4];
    let mut out = vec![0u8; 4 * 6];
    matrix.gather_rows(&nodes, &mut out);
    let expected: Vec<f16> = [27, 28, 29, 0, 1, 2, 27, 28, 29, 12, 13, 14].map(|i| f16::from_f32(i as f32)).into();
    assert_eq!(out, bytemuck::cast_slice::<_, u8>(&expected));
}

#[test]
fn parallel_and_sequential_agree() {
    let matrix = FeatureMatrix::F32 { data: (0..5000 * 7).map(|i| i as f32).collect::<Vec<_>>().into(), dim: 7 };
    let nodes: Vec<u32> = (0..10_000u32).map(|i| i * 7919 % 5000).collect();
    let (mut a, mut b) = (vec![0u8; 10_000 * 28], vec![1u8; 10_000 * 28]);
    matrix.gather_rows(&nodes, &mut a);
    matrix.par_gather_rows(&nodes, &mut b);
    assert_eq!(a, b);
}

#[test]
fn outputs_that_are_streamed_agree_with_indexing() {
    // More than `STREAM_BYTES` in rows that are long enough, none of which starts where a line does.
    let dim = 333;
    let data: Vec<f16> = (0..3000 * dim).map(|i| f16::from_bits((i % 30_000) as u16)).collect();
    let matrix = FeatureMatrix::F16 { data: data.into(), dim };
    let nodes: Vec<u32> = (0..52_000u32).map(|i| i.wrapping_mul(2_654_435_761) % 3000).collect();
    let bytes = nodes.len() * matrix.row_bytes();
    assert_eq!(Stores::of(bytes, matrix.row_bytes()), Stores::Streaming);
    let (mut a, mut b) = (vec![0u8; bytes + 1], vec![1u8; bytes]);
    matrix.gather_rows(&nodes, &mut a[1..]);
    matrix.par_gather_rows(&nodes, &mut b);
    let rows = matrix.view().as_bytes();
    for (i, &node) in nodes.iter().enumerate() {
        let (from, to) = (node as usize * 666, i * 666);
        assert_eq!(rows[from..from + 666], b[to..to + 666], "row {i}");
    }
    assert!(a[1..] == b[..]);
}

#[test]
fn a_matrix_of_no_columns_gathers_nothing() {
    let matrix = FeatureMatrix::U8 { data: Vec::new().into(), dim: 0 };
    matrix.gather_rows(&[1, 2], &mut []);
    matrix.par_gather_rows(&[1, 2], &mut []);
}
