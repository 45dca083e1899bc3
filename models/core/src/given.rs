//! Rows of the first layer's output that a mini-batch brings along ([`GivenRows`]).

use std::borrow::Cow;

use crate::{ModelSpec, Normalization};
use morphgl_registry::{BatchId, Block, Error, GivenRows, HostBatch, Key, Result};

/// Lengths of the arrays of a mini-batch's given rows, in host memory or on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GivenLengths {
    /// Number of nodes.
    pub nodes: usize,
    /// Number of degrees.
    pub degrees: usize,
    /// Number of elements of all rows.
    pub elements: usize,
}

impl From<&GivenRows> for GivenLengths {
    fn from(GivenRows { nodes, degrees, rows, .. }: &GivenRows) -> Self {
        Self { nodes: nodes.len(), degrees: degrees.len(), elements: rows.len() }
    }
}

/// Checks the given rows of mini-batch `id`, and returns how many there are.
///
/// # Errors
///
/// A model without a second layer that reads the graph, one with batch normalization, or rows of another number or width.
pub fn check_given(key: &Key, model: &ModelSpec, id: BatchId, given: Option<GivenLengths>) -> Result<usize> {
    let Some(GivenLengths { nodes: count, degrees, elements }) = given else { return Ok(0) };
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
