//! Which models this operator trains.

use morphgl_model_spec::{Attention, ModelKind, Normalization, TrainingSpec};

use crate::KEY;
use crate::attention::MAX_DROPPED_HEADS;

/// Whether the operator trains this model; else one sentence that names the first option it does not do and the cure.
///
/// # Errors
///
/// That sentence.
pub fn supports(spec: &TrainingSpec) -> Result<(), String> {
    let model = &spec.model;
    let gat = model.kind == ModelKind::Gat;
    let heads = if model.layers > 1 { model.heads.max(model.output_heads) } else { model.output_heads };
    let missing = if model.kind == ModelKind::Gin {
        "gin"
    } else if gat && model.attention == Attention::Gatv2 {
        "attention gatv2"
    } else if gat && model.attention_dropout > 0.0 && heads > MAX_DROPPED_HEADS {
        "attention dropout of more than 1024 heads"
    } else if model.normalization == Normalization::Layer {
        "layer normalization"
    } else if model.normalization == Normalization::Batch {
        "batch normalization"
    } else if (0..model.layers).any(|l| model.has_residual(l)) {
        "residual connections"
    } else if model.l2_normalize {
        "l2_normalize"
    } else {
        return Ok(());
    };
    Err(format!("{KEY} does not do {missing}; use Training_CPU_Burn"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn heads_whose_coefficients_are_not_dropped_are_refused() {
        let check = |layers: usize, heads: [usize; 2], dropout: f32, expected: bool| {
            let model = json!({
                "kind": "gat", "in_dim": 3, "num_classes": 2, "layers": layers, "hidden": heads[0],
                "heads": heads[0], "output_heads": heads[1], "attention_dropout": dropout,
            });
            let spec = TrainingSpec::from_json(&json!({"model": model})).expect("a spec");
            let refused = supports(&spec).err();
            assert_eq!(refused.is_none(), expected, "{layers} layers, {heads:?}, {dropout}: {refused:?}");
        };
        let (most, more) = (MAX_DROPPED_HEADS, MAX_DROPPED_HEADS + 1);
        check(2, [most, most], 0.5, true);
        check(2, [more, 1], 0.5, false);
        check(2, [1, more], 0.5, false);
        check(2, [more, more], 0.0, true);
        check(1, [more, 1], 0.5, true);
        assert_eq!(MAX_DROPPED_HEADS, 1024, "what the sentence says");
    }
}
