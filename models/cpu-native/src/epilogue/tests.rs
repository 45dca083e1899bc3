use morphgl_model_core::DropoutSite;
use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn dropout_masks_are_equal_at_every_level(
        nodes in prop::collection::vec(any::<u32>(), 0..40),
        width in prop_oneof![0usize..40, Just(64usize), 120usize..140, Just(256usize)],
        p in 0.0f32..0.99,
    ) {
        let dropout = Dropout::new(7, 2, 3, 1, DropoutSite::Hidden, p);
        let epilogue = Epilogue { activation: None, dropout };
        for level in SimdLevel::available().rev() {
            let mut values: Vec<f32> = (0..nodes.len() * width).map(|i| i as f32 - 40.5).collect();
            epilogue.drop(level, &nodes, &mut values);
            for (i, x) in values.into_iter().enumerate() {
                let factor = match dropout {
                    None => 1.0,
                    Some(d) => if d.keeps(nodes[i / width], (i % width) as u64) { d.scale() } else { 0.0 },
                };
                let expected = if factor == 0.0 { 0.0 } else { (i as f32 - 40.5) * factor };
                prop_assert_eq!(x, expected, "{:?}, element {}", level, i);
            }
        }
    }
}
