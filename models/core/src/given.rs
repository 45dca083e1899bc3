//! Rows of the first layer's output that a mini-batch brings along ([`GivenRows`]).

use std::borrow::Cow;

use crate::{ModelKind, ModelSpec, Normalization};
use morphgl_registry::{BatchId, Block, Error, GivenRows, HostBatch, Key, Result};

/// Lengths of the arrays of a mini-batch's given rows, in host memory or on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenLengths {
    /// Number of nodes.
    pub nodes: usize,
    /// Number of degrees.
    pub degrees: usize,
    /// Number of elements of all rows.
    pub elements: usize,
    /// Number of elements of each matrix that a weight multiplies.
    pub inputs: Vec<usize>,
}

impl From<&GivenRows> for GivenLengths {
    fn from(GivenRows { nodes, degrees, rows, inputs, .. }: &GivenRows) -> Self {
        let inputs = inputs.iter().map(Vec::len).collect();
        Self { nodes: nodes.len(), degrees: degrees.len(), elements: rows.len(), inputs }
    }
}

impl ModelSpec {
    /// Widths of the matrices that come along with given rows ([`GivenRows::inputs`]), one for each of the first layer's weights: the
    /// aggregated features for GCN, these and the node's own for GraphSAGE. With them and the rows themselves the first layer's
    /// gradient is complete (neutronorch §4.2), as far as the rows are those of the parameters at hand.
    ///
    /// None for the other models: attention has gradients by every neighbour's row, the perceptron of GIN and normalizations by what is
    /// inside the layer. Their given rows have no part in the first layer's gradient.
    pub fn given_input_widths(&self) -> Vec<usize> {
        let plain = self.normalization == Normalization::None && !self.l2_normalize && !self.has_residual(0);
        match self.kind {
            ModelKind::Gcn if plain => vec![self.in_dim],
            ModelKind::Sage if plain => vec![self.in_dim; 2],
            _ => Vec::new(),
        }
    }
}

/// Checks the given rows of mini-batch `id`, and returns how many there are.
///
/// # Errors
///
/// A model without a second layer that reads the graph, one with batch normalization, or rows or inputs of another number or width.
pub fn check_given(key: &Key, model: &ModelSpec, id: BatchId, given: Option<GivenLengths>) -> Result<usize> {
    let Some(GivenLengths { nodes: count, degrees, elements, inputs }) = given else { return Ok(0) };
    let wrong = |what: String| Err(Error::setting(format!("{key}, {id}"), what));
    if !model.reads_graph() || model.layers < 2 {
        return wrong("it has given rows, and the model has no second layer that reads them".to_string());
    }
    if model.normalization == Normalization::Batch {
        return wrong(
            "it has given rows, and batch normalization needs the statistics of all rows; compute all".to_string(),
        );
    }
    let width = model.layer(0).out_dim;
    if elements != count * width || degrees != count {
        return wrong(format!(
            "it has {count} given nodes of width {width}, {elements} elements and {degrees} degrees"
        ));
    }
    if !inputs.is_empty() && inputs != model.given_input_widths().iter().map(|width| count * width).collect::<Vec<_>>()
    {
        return wrong(format!(
            "it has {count} given nodes, and inputs of {inputs:?} elements; the weights multiply rows of {:?}",
            model.given_input_widths()
        ));
    }
    Ok(count)
}

/// The sizes of a block, in host memory or on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSizes {
    /// Number of destination nodes.
    pub num_dst: usize,
    /// Number of source nodes.
    pub num_src: usize,
    /// Number of row offsets.
    pub offsets: usize,
}

impl From<&Block> for BlockSizes {
    fn from(Block { num_dst, num_src, indptr, .. }: &Block) -> Self {
        Self { num_dst: *num_dst, num_src: *num_src, offsets: indptr.len() }
    }
}

/// Whether each block's source nodes are destination nodes of the block before, or, of the second block, the last ones are the
/// `num_given` nodes; and whether the last block's destination nodes have all seeds.
pub fn blocks_chain(blocks: impl IntoIterator<Item = BlockSizes>, num_given: usize, num_seeds: usize) -> bool {
    let mut before: Option<BlockSizes> = None;
    for (layer, block) in blocks.into_iter().enumerate() {
        let fed = match before {
            Some(before) if layer == 1 && num_given > 0 => {
                block.num_src == before.num_dst + num_given && block.num_dst <= before.num_dst
            }
            Some(before) => block.num_src <= before.num_dst,
            None => true,
        };
        if !fed || block.num_dst > block.num_src || block.offsets != block.num_dst + 1 {
            return false;
        }
        before = Some(block);
    }
    before.is_none_or(|last| last.num_dst >= num_seeds)
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

#[cfg(test)]
mod tests;
