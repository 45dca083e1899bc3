use proptest::prelude::*;

use super::*;
use crate::gemm::{multiply_all, pack, packed_len};
use crate::simd::{has_tiles, vector_level};

#[test]
fn bits_are_transposed() {
    let mut square: [u64; BITS] = std::array::from_fn(|i| (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let before = square;
    transpose(&mut square);
    for (i, row) in square.into_iter().enumerate() {
        before.iter().enumerate().for_each(|(j, other)| assert_eq!(row >> j & 1, other >> i & 1, "{i}, {j}"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn skipped_zeros_change_no_bits(
        (rows, columns, depth) in (1..150usize, 1..300usize, 1..300usize),
        share in 0.0..1.0f64,
        seed: u64,
    ) {
        let mut state = seed;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as f32 / (1 << 24) as f32
        };
        let mut number = |share: f64| if f64::from(random()) < share { random() - 0.5 } else { 0.0 };
        // Some rows are all zeros.
        let a: Vec<f32> = (0..rows * depth).map(|i| if i / depth % 7 == 3 { 0.0 } else { number(share) }).collect();
        let b: Vec<f32> = (0..depth * columns).map(|_| number(1.0)).collect();
        let at: Vec<f32> = (0..depth * rows).map(|i| a[i % rows * depth + i / rows]).collect();
        for level in SimdLevel::available().rev() {
            let tiles = has_tiles(level);
            let mut panels = vec![f32::NAN; packed_len(level, depth, columns)];
            pack(level, &b, [depth, columns], false, &mut panels);
            for left in [Left::rows(&a, depth), Left::transposed(&at, rows)] {
                for right in [Right::rows(&b, columns), Right::packed(level, &panels, depth)] {
                    let product = |left: Left<'_>| {
                        let mut out = [vec![f32::NAN; rows * columns], vec![0.5; rows * columns]];
                        let [first, second] = &mut out;
                        let targets = [Some((right, &mut first[..], false)), Some((right, &mut second[..], true))];
                        multiply_all(level, [rows, columns, depth], left, targets);
                        out
                    };
                    let [[dense, added], [sparse, sparse_added]] = [false, true].map(|zeros| product(left.with_zeros(zeros)));
                    if !tiles {
                        prop_assert_eq!(&dense, &sparse, "{:?}", level);
                    }
                    for (dense, sparse) in dense.iter().zip(&sparse).chain(added.iter().zip(&sparse_added)) {
                        prop_assert!((dense - sparse).abs() < 1e-4, "{level:?}: {dense} and {sparse}");
                    }
                }
            }
        }
    }
}

#[test]
fn few_zeros_and_small_gemms_use_the_dense_kernel() {
    let level = vector_level(SimdLevel::current());
    for (nonzeros, side, on_tiles, expected) in [
        (50, 64, false, true),
        (70, 64, false, false),
        (50, MIN_SIZE - 1, false, false),
        (25, 64, true, true),
        (50, 64, true, false),
    ] {
        let a: Vec<f32> = (0..side * side).map(|i| f32::from(u8::from(i % 100 < nonzeros))).collect();
        let mut out = vec![0.0; side * side];
        let mut targets = [Some((Right::rows(&a, side), &mut out[..], false)), None];
        let done = super::multiply_all(level, [side; 3], Left::rows(&a, side), &mut targets, on_tiles);
        assert_eq!(done, expected, "{nonzeros} % nonzeros, {side}, on tiles: {on_tiles}");
    }
}
