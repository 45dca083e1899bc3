//! Which models this operator trains.

use morphgl_model_core::{Attention, LayerShape, ModelKind, Normalization, TrainingSpec};
use morphgl_platform::SimdLevel;
use morphgl_registry::Key;

use crate::attention::MAX_DROPPED_HEADS;
use crate::gemm::{MIN_TILE_SIDE, tiles};
use crate::{AMX_KEY, KEY};

/// Checks that the operator trains this model.
///
/// # Errors
///
/// One sentence that names the first unsupported option.
pub fn supports(spec: &TrainingSpec) -> Result<(), String> {
    supports_as(&KEY, spec)
}

/// As [`supports`], for the operator on AMX tiles: a model of which no GEMM is wide enough for tiles is refused, too.
pub(crate) fn supports_on_tiles(spec: &TrainingSpec) -> Result<(), String> {
    supports_as(&AMX_KEY, spec)?;
    let model = &spec.model;
    let wide = |shape: LayerShape| tiles(SimdLevel::Amx, [shape.heads * shape.head_dim, shape.in_dim]);
    if model.kind != ModelKind::Embedding && (0..model.layers).any(|l| wide(model.layer(l))) {
        return Ok(());
    }
    Err(format!("{AMX_KEY} needs a layer of at least {MIN_TILE_SIDE} input and output columns; use {KEY}"))
}

fn supports_as(key: &Key, spec: &TrainingSpec) -> Result<(), String> {
    let model = &spec.model;
    let gat = model.kind == ModelKind::Gat;
    let heads = if model.layers > 1 { model.heads.max(model.output_heads) } else { model.output_heads };
    let drops_too_many = gat && model.attention_dropout > 0.0 && heads > MAX_DROPPED_HEADS;
    let unsupported = [
        (model.kind == ModelKind::Gin, "gin"),
        (model.kind == ModelKind::Hgt, "hgt"),
        (model.reads_edges() && !model.kind.is_typed(), "features of edges without types"),
        (model.kind.has_attention() && model.attention == Attention::Gatv2, "attention gatv2"),
        (drops_too_many, "attention dropout of more than 1024 heads"),
        (model.normalization == Normalization::Layer, "layer normalization"),
        (model.normalization == Normalization::Batch, "batch normalization"),
        ((0..model.layers).any(|l| model.has_residual(l)), "residual connections"),
        (model.l2_normalize, "l2_normalize"),
    ];
    match unsupported.into_iter().find(|(found, _)| *found) {
        Some((_, option)) => Err(format!("{key} does not do {option}; leave --training out for an operator that does")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
