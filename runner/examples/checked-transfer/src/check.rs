//! Checks a mini-batch against its contract.

use morphgl_registry::{Block, HostBatch};

/// Checks that a mini-batch is valid for a graph of `num_nodes` nodes.
///
/// # Errors
///
/// The first fault, in words.
pub fn check(batch: &HostBatch, num_nodes: usize) -> Result<(), String> {
    if let Some(v) = batch.input_nodes.iter().find(|&&v| v as usize >= num_nodes) {
        return Err(format!("input node {v} does not exist, there are {num_nodes}"));
    }
    let mut num_src = batch.input_nodes.len();
    for (i, block) in batch.blocks.iter().enumerate() {
        block_fault(block, num_src).map_or(Ok(()), |fault| Err(format!("block {i}: {fault}")))?;
        num_src = block.num_dst;
    }
    if num_src != batch.num_seeds {
        return Err(format!("the last block has {num_src} destination nodes for {} seeds", batch.num_seeds));
    }
    Ok(())
}

fn block_fault(block: &Block, num_src: usize) -> Option<String> {
    if block.num_src != num_src {
        return Some(format!("it has {} source nodes, the layer before it gives {num_src}", block.num_src));
    }
    if block.num_dst > num_src || block.indptr.len() != block.num_dst + 1 {
        let (dst, offsets) = (block.num_dst, block.indptr.len());
        return Some(format!("{dst} destination nodes do not fit {num_src} source nodes and {offsets} offsets"));
    }
    if block.indptr.windows(2).any(|w| w[0] > w[1])
        || block.indptr.last().map(|&e| e as usize) != Some(block.num_edges())
    {
        return Some("the offsets decrease, or do not end at the number of edges".into());
    }
    let bad = block.indices.iter().position(|&u| u as usize >= num_src)?;
    Some(format!("edge {bad} comes from source {}, but there are {num_src}", block.indices[bad]))
}
