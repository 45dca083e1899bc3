use proptest::prelude::*;

use super::*;

mod exact;

fn numbers(seed: u32, len: usize) -> Vec<f32> {
    (0..len).map(|i| ((i as u32 ^ seed).wrapping_mul(2_654_435_761) >> 16) as f32 / 32768.0 - 1.0).collect()
}

/// Sizes below and above the minimum for tiles.
fn size() -> impl Strategy<Value = usize> {
    prop_oneof![0..40usize, MIN_TILE_SIDE - 1..MIN_TILE_SIDE + 40]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_level_multiplies(rows in size(), columns in size(), depth in size(), add: bool) {
        let (a, b) = (numbers(1, rows * depth), numbers(2, depth * columns));
        let mut exact = if add { vec![0.5f64; rows * columns] } else { vec![0.0; rows * columns] };
        for r in 0..rows {
            for d in 0..depth {
                for c in 0..columns {
                    exact[r * columns + c] += f64::from(a[r * depth + d]) * f64::from(b[d * columns + c]);
                }
            }
        }
        let transposed = |x: &[f32], rows: usize, columns: usize| -> Vec<f32> {
            (0..columns).flat_map(|c| (0..rows).map(move |r| x[r * columns + c])).collect()
        };
        let (at, bt) = (transposed(&a, rows, depth), transposed(&b, depth, columns));
        let mut bits: Option<Vec<f32>> = None;
        for level in SimdLevel::available().rev() {
            let len = packed_len(level, depth, columns);
            // Elements after the last column must not matter.
            let mut panels = [vec![f32::NAN; len], vec![f32::NAN; len]];
            pack(level, &b, [depth, columns], false, &mut panels[0]);
            pack(level, &bt, [depth, columns], true, &mut panels[1]);
            let mut tiled: Option<Vec<f32>> = None;
            for (left, right) in [
                (Left::rows(&a, depth), Right::rows(&b, columns)),
                (Left::transposed(&at, rows), Right::rows(&b, columns)),
                (Left::rows(&a, depth), Right::packed(level, &panels[0], depth)),
                (Left::rows(&a, depth), Right::packed(level, &panels[1], depth)),
                (Left::transposed(&at, rows), Right::packed(level, &panels[0], depth)),
                (Left::transposed(&at, rows), Right::packed(level, &panels[1], depth)),
            ] {
                let (mut out, mut other) = (vec![0.5; rows * columns], vec![0.25; rows * columns]);
                let targets = [Some((right, &mut out[..], add)), Some((right, &mut other[..], false))];
                multiply_all(level, [rows, columns, depth], left, targets);
                for (o, e) in out.iter().zip(&exact) {
                    prop_assert!((f64::from(*o) - e).abs() < 1e-4, "{level:?}: {o}, expected {e}");
                }
                let mut again = vec![0.5; rows * columns];
                multiply(level, [rows, columns, depth], (left, right), &mut again, add);
                prop_assert_eq!(&again, &out);
                let twice = if add { other.iter().map(|x| x + 0.5).collect() } else { other };
                prop_assert_eq!(&twice, &out);
                if tiles(level, [columns, if right.packed { depth } else { rows }]) {
                    prop_assert_eq!(tiled.get_or_insert(out.clone()), &out);
                } else if level > SimdLevel::Portable || cfg!(target_arch = "aarch64") {
                    prop_assert_eq!(bits.get_or_insert(out.clone()), &out);
                }
            }
        }
    }
}
