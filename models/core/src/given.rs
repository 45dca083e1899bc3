//! Rows of the first layer's output that a mini-batch brings along ([`GivenRows`]).

use std::borrow::Cow;

use morphgl_model_spec::{ModelSpec, Normalization};
use morphgl_registry::{Error, GivenRows, HostBatch, Key, Result};

/// Checks the given rows of a mini-batch, and returns how many there are.
///
/// # Errors
///
/// A model without a second layer that reads the graph, one with batch normalization, or rows of another number or width.
pub(crate) fn check_given(key: &Key, model: &ModelSpec, batch: &HostBatch) -> Result<usize> {
    let Some(GivenRows { nodes, degrees, rows, .. }) = batch.given.as_deref() else { return Ok(0) };
    let wrong = |what: String| Err(Error::setting(format!("{key}, {}", batch.id), what));
    if !model.reads_graph() || model.layers < 2 {
        return wrong("it has given rows, and the model has no second layer that reads them".to_string());
    }
    if model.normalization == Normalization::Batch {
        return wrong(
            "it has given rows, and batch normalization needs the statistics of all rows; compute all".to_string(),
        );
    }
    let (count, width) = (nodes.len(), model.layer(0).out_dim);
    if rows.len() != count * width || degrees.len() != count {
        let (rows, degrees) = (rows.len(), degrees.len());
        return wrong(format!("it has {count} given nodes of width {width}, {rows} elements and {degrees} degrees"));
    }
    Ok(count)
}

/// The degrees of the source nodes of layer `layer`'s block, at least.
///
/// # Complexity
///
/// O(1); for the second layer of a mini-batch with given rows, O(source nodes).
pub fn source_degrees(batch: &HostBatch, layer: usize) -> Cow<'_, [f32]> {
    match &batch.given {
        Some(given) if layer == 1 => [&batch.degrees[..batch.blocks[0].num_dst], &given.degrees].concat().into(),
        _ => Cow::Borrowed(&batch.degrees),
    }
}
