use super::*;
use crate::simd::dispatch;
use morphgl_platform::SimdLevel;

dispatch!(fn exp_of(values: &mut [f32]) = exp::<S>);
dispatch!(fn dots_of(a: &[f32], b: &[f32], width: usize, out: &mut [f32]) = dots::<S>);

/// Of small integers, whose products and sums are exact in any order.
#[test]
fn dot_products_of_heads_are_exact() {
    for level in SimdLevel::available().rev() {
        for (heads, width) in (1..10).flat_map(|heads| (1..40).map(move |width| (heads, width))) {
            let row = |step: usize| (0..heads * width).map(move |i| (i * step % 17) as f32 - 8.0).collect::<Vec<_>>();
            let (a, b) = (row(5), row(7));
            let mut out = vec![f32::NAN; heads];
            dots_of(level, &a, &b, width, &mut out);
            let head = |h: usize| (h * width..(h + 1) * width).map(|i| a[i] * b[i]).sum::<f32>();
            assert_eq!(out, (0..heads).map(head).collect::<Vec<_>>(), "{heads} heads of {width}, {level:?}");
        }
    }
}

#[test]
fn exponentials_are_exact_to_two_units() {
    for level in SimdLevel::available().rev() {
        let mut x: Vec<f32> = (0..200_000).map(|i| -87.2 * i as f32 / 200_000.0).collect();
        x.extend([0.0, -0.0, -f32::MIN_POSITIVE, -1e-30, -f32::EPSILON]);
        let mut values = x.clone();
        exp_of(level, &mut values);
        for (&x, &value) in x.iter().zip(&values) {
            let exact = f64::from(x).exp();
            assert!((f64::from(value) / exact - 1.0).abs() < 2e-7, "exp({x}) is {value}, {level:?}");
        }
        let mut odd = [f32::NEG_INFINITY, f32::NAN, -100.0, -3.4e38, 0.0];
        exp_of(level, &mut odd);
        assert!(odd[0] == 0.0 && odd[1].is_nan() && odd[2] == 0.0 && odd[3] == 0.0 && odd[4] == 1.0, "{odd:?}");
    }
}

#[test]
fn exponentials_do_not_depend_on_the_position() {
    for level in SimdLevel::available().rev() {
        let x: Vec<f32> = (0..100).map(|i| -0.37 * i as f32).collect();
        let mut whole = x.clone();
        exp_of(level, &mut whole);
        for start in 0..40 {
            let mut part = x[start..start + 37].to_vec();
            exp_of(level, &mut part);
            assert_eq!(part, whole[start..start + 37], "from {start}, {level:?}");
        }
    }
}
