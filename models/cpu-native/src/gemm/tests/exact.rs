//! Rounding errors of every level against f64, and elements at the ends of the range.

use super::*;

/// Numbers in (-1, 1).
fn numbers(seed: u32, len: usize) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

/// Rows times a packed matrix.
fn product(level: SimdLevel, [rows, columns, depth]: [usize; 3], a: &[f32], b: &[f32]) -> Vec<f32> {
    let mut packed = vec![0.0; packed_len(level, depth, columns)];
    pack(level, b, [depth, columns], false, &mut packed);
    let mut out = vec![f32::NAN; rows * columns];
    multiply(
        level,
        [rows, columns, depth],
        (Left::rows(a, depth), Right::packed(level, &packed, depth)),
        &mut out,
        false,
    );
    out
}

/// RMS error and maximum error, in units of 2^-24 times the sum of the products' absolute values.
fn errors(level: SimdLevel, sizes: [usize; 3], a: &[f32], b: &[f32]) -> [f64; 2] {
    let [rows, columns, depth] = sizes;
    let out = product(level, sizes, a, b);
    let (mut squares, mut largest) = (0.0, 0.0f64);
    for r in 0..rows {
        for c in 0..columns {
            let products = (0..depth).map(|d| f64::from(a[r * depth + d]) * f64::from(b[d * columns + c]));
            let (exact, size) = products.fold((0.0, 0.0), |(sum, size), x| (sum + x, size + x.abs()));
            let error = (f64::from(out[r * columns + c]) - exact).abs() / size * f64::from(1u32 << 24);
            squares += error * error;
            largest = largest.max(error);
        }
    }
    [(squares / (rows * columns) as f64).sqrt(), largest]
}

#[test]
fn every_level_is_as_exact_as_f32() {
    for depth in [96, 128, 256, 1024] {
        let sizes = [32, 96, depth];
        for positive in [false, true] {
            let sign = |x: Vec<f32>| -> Vec<f32> { if positive { x.iter().map(|x| x.abs()).collect() } else { x } };
            let (a, b) = (sign(numbers(1, 32 * depth)), sign(numbers(2, depth * 96)));
            let plain = errors(SimdLevel::Portable, sizes, &a, &b);
            for level in SimdLevel::available().rev() {
                let found = errors(level, sizes, &a, &b);
                for (found, plain) in found.iter().zip(plain) {
                    assert!(*found <= 1.25 * plain, "{level:?}, depth {depth}: {found}, plain f32 {plain}");
                }
            }
        }
    }
}

#[test]
fn elements_at_the_ends_of_the_range_are_exact() {
    let sizes @ [rows, columns, depth] = [33, 100, 110];
    for level in SimdLevel::available().rev() {
        for (value, weight, expected) in [
            (f32::MAX, 1.0, f32::MAX),
            (-f32::MAX, 1.0, -f32::MAX),
            (f32::MAX, 0.5, f32::MAX / 2.0),
            (3.4e38, -1.0, -3.4e38),
            (f32::MAX, f32::MAX, f32::INFINITY),
            (f32::INFINITY, 1.0, f32::INFINITY),
            (f32::NEG_INFINITY, 1.0, f32::NEG_INFINITY),
            (f32::NAN, 1.0, f32::NAN),
            // A NaN that truncation to eight bits would turn into infinity.
            (f32::from_bits(0x7f80_0001), 1.0, f32::NAN),
            (f32::from_bits(0x7fff_ffff), 1.0, f32::NAN),
            (1e-30, 1e-4, 1e-34),
            (f32::MIN_POSITIVE, 1.0, f32::MIN_POSITIVE),
        ] {
            for swapped in [false, true] {
                let (mut a, mut b) = (vec![0.0; rows * depth], vec![0.0; depth * columns]);
                let (x, y) = if swapped { (weight, value) } else { (value, weight) };
                (a[32 * depth + 109], b[109 * columns + 99]) = (x, y);
                let out = product(level, sizes, &a, &b);
                let found = out[32 * columns + 99];
                let what = format!("{level:?}: {value:e} times {weight:e} is {found:e}");
                if expected.is_finite() {
                    // Parts below 2^-126 count as 0.
                    let error = (f64::from(found) - f64::from(expected)).abs();
                    let bound = f64::from(expected.abs()) * 1e-7 + 2.0 * f64::from(f32::MIN_POSITIVE);
                    assert!(error <= bound, "{what}");
                } else {
                    assert!(!found.is_finite(), "{what}");
                }
                // Other rows and columns do not depend on the element, except for zeros times infinity.
                let others = out.iter().enumerate().filter(|(i, _)| i / columns != 32 && i % columns != 99);
                assert!(others.into_iter().all(|(_, x)| *x == 0.0), "{what}, and other elements changed");
            }
        }
    }
}
