use half::{bf16, f16};
use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn every_level_and_type_is_exact(
        degrees in prop::collection::vec(0u32..9, 1..12),
        width in 0usize..600,
        weighted: bool,
        looped: bool,
    ) {
        let num_rows = 30;
        let mut indptr = vec![0];
        degrees.iter().for_each(|d| indptr.push(indptr[indptr.len() - 1] + d));
        let count = indptr[degrees.len()] as usize;
        let entries: Vec<u32> = (0..count as u32).map(|e| e * 7 % num_rows as u32).collect();
        let weights: Vec<f32> = (0..count).map(|e| 0.25 * (e % 5) as f32 - 0.3).collect();
        let scales: Vec<f32> = degrees.iter().map(|&d| 1.0 / d.max(1) as f32).collect();
        let loops: Vec<f32> = degrees.iter().map(|&d| 0.5 + d as f32).collect();
        let some = |on: bool, x| on.then_some(x);
        let csr = Csr::new(
            (&indptr, &entries, num_rows),
            some(weighted, &weights[..]),
            some(!weighted, &scales[..]),
            some(looped, &loops[..]),
        );
        let bytes: Vec<u8> = (0..num_rows * width).map(|i| (i * 31 % 127) as u8).collect();
        let floats: Vec<f32> = bytes.iter().map(|&b| f32::from(b)).collect();
        let halves: Vec<f16> = floats.iter().map(|&x| f16::from_f32(x)).collect();
        let brains: Vec<bf16> = floats.iter().map(|&x| bf16::from_f32(x)).collect();
        let rows = degrees.len();
        let mut exact = vec![0.0f64; rows * width];
        for row in 0..rows {
            for c in 0..width {
                let at = |v: usize| f64::from(floats[v * width + c]);
                let mut sum: f64 =
                    csr.row(row).map(|e| f64::from(if weighted { weights[e] } else { 1.0 }) * at(entries[e] as usize)).sum();
                if !weighted { sum *= f64::from(scales[row]); }
                if looped { sum += f64::from(loops[row]) * at(row); }
                exact[row * width + c] = sum;
            }
        }
        for level in SimdLevel::available().rev() {
            for x in [FeatureView::F32(&floats), FeatureView::F16(&halves), FeatureView::Bf16(&brains), FeatureView::U8(&bytes)] {
                let mut out = vec![7.0; rows * width];
                let middle = rows / 2;
                let (first, second) = out.split_at_mut(middle * width);
                spmm(level, &csr, 0..middle, x, width, first);
                spmm(level, &csr, middle..rows, x, width, second);
                for (o, e) in out.iter().zip(&exact) {
                    prop_assert!((f64::from(*o) - e).abs() < 1e-2, "{level:?}: {o}, expected {e}");
                }
                let mut wide = vec![0.0; width * 3];
                x.part(2 * width, 3 * width).to_f32(&mut wide);
                prop_assert_eq!(&wide, &floats[2 * width..5 * width]);
            }
        }
    }
}
