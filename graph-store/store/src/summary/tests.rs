use proptest::prelude::*;

use super::*;
use crate::Element;

/// The summary of elements that arrive in pieces.
fn summary<T: Element>(values: &[T], piece: usize) -> Summary {
    let mut summary = Summary::new(T::DTYPE);
    values.chunks(piece).for_each(|piece| summary.add(bytemuck::cast_slice(piece)));
    assert_eq!(summary.len, values.len() as u64);
    summary
}

proptest! {
    #[test]
    fn offsets(values in prop::collection::vec(0u64..50, 0..40), sorted: bool, piece in 1usize..9) {
        let mut values = values;
        if sorted {
            values.sort_unstable();
        }
        let s = summary(&values, piece);
        prop_assert_eq!(s.ascending, values.is_sorted());
        prop_assert_eq!([s.first, s.last], [values.first(), values.last()].map(|v| v.copied().unwrap_or(0)));
    }

    #[test]
    fn integers(values in prop::collection::vec(-50i32..50, 1..40), piece in 1usize..9) {
        let s = summary(&values, piece);
        prop_assert_eq!(s.lowest, f64::from(values.iter().min().copied().unwrap_or(0).min(0)));
        prop_assert_eq!(s.highest, i64::from(values.iter().max().copied().unwrap_or(-1).max(-1)));
        let ids: Vec<u32> = values.iter().map(|v| v.unsigned_abs()).collect();
        prop_assert_eq!(summary(&ids, piece).highest, i64::from(ids.iter().max().copied().unwrap_or(0)));
    }

    #[test]
    fn floats(values in prop::collection::vec(-50f32..50.0, 1..40), at in 0usize..40, odd in 0usize..4, piece in 1usize..9) {
        let mut values = values;
        let odd = [1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY][odd];
        let at = at % values.len();
        values[at] = odd;
        let s = summary(&values, piece);
        prop_assert_eq!((s.finite, s.infinite), (odd.is_finite(), odd.is_infinite()));
        if odd.is_finite() {
            prop_assert_eq!(s.lowest, f64::from(values.iter().copied().fold(0.0, f32::min)));
        }
        let half: Vec<f16> = values.iter().map(|&v| f16::from_f32(v)).collect();
        prop_assert_eq!(summary(&half, piece).finite, odd.is_finite());
        let brain: Vec<bf16> = values.iter().map(|&v| bf16::from_f32(v)).collect();
        prop_assert_eq!(summary(&brain, piece).finite, odd.is_finite());
    }
}
