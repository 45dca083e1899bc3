//! Which models this operator trains.

use morphgl_model_spec::{Attention, ModelKind, Normalization, TrainingSpec};

use crate::KEY;

/// Whether the operator trains this model; else one sentence that names the first option it does not do and the cure.
///
/// # Errors
///
/// That sentence.
pub fn supports(spec: &TrainingSpec) -> Result<(), String> {
    let model = &spec.model;
    let gat = model.kind == ModelKind::Gat;
    let missing = if model.kind == ModelKind::Gin {
        "gin"
    } else if gat && model.attention == Attention::Gatv2 {
        "attention gatv2"
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
