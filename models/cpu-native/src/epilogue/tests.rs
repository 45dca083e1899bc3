use morphgl_model_spec::DropoutSite;
use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn dropout_masks_are_equal_at_every_level(first in 0usize..2_000, len in 0usize..600, p in 0.0f32..0.99, high: bool) {
        // Blocks beyond 2^32 have another counter.
        let first = if high { (1 << 35) - 1_000 + first } else { first };
        let dropout = Dropout::new(7, 2, 3, 1, DropoutSite::Hidden, p);
        let epilogue = Epilogue { activation: None, dropout };
        for level in SimdLevel::available().rev() {
            let mut values: Vec<f32> = (0..len).map(|i| i as f32 - 40.5).collect();
            epilogue.drop(level, first, &mut values);
            for (i, x) in values.into_iter().enumerate() {
                let factor = match dropout {
                    None => 1.0,
                    Some(d) => if d.keeps((first + i) as u64) { d.scale() } else { 0.0 },
                };
                let expected = if factor == 0.0 { 0.0 } else { (i as f32 - 40.5) * factor };
                prop_assert_eq!(x, expected, "{:?}, element {}", level, i);
            }
        }
    }
}
