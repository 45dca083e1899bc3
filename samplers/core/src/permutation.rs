//! The order of an epoch's seeds.

use morphgl_registry::BatchId;

use crate::bounded::bounded;
use crate::stream::{Row, Stream};

/// Shuffles `nodes` in place, as a function of (seed, epoch, number of nodes) (Fisher, Yates; Durstenfeld 1964).
///
/// For `i` from the last down to 1, `nodes[i]` is swapped with `nodes[j]`, `j` uniform in `0..=i`. Its word is lane
/// `i % 4` of the counter (`Permutation`, hop 0, block 0, node word `i / 4`, batch word 0, epoch); retry `r` is lane
/// `r % 4` of (`PermutationRetry`, hop 0, block `r / 4`, node word `i`, batch word 0, epoch).
///
/// # Panics
///
/// When there are 2^32 nodes or more.
pub fn permute(seed: u64, epoch: u32, nodes: &mut [u32]) {
    let len = u32::try_from(nodes.len()).expect("a graph has less than 2^32 nodes");
    let batch = BatchId { epoch, index: 0 };
    let draw = |stream, block, node| Row { seed, batch, hop: 0, node, edge_type: 0 }.block(stream, block);
    let (mut block, mut words) = (u32::MAX, [0; 4]);
    for i in (1..len).rev() {
        if i / 4 != block {
            block = i / 4;
            words = draw(Stream::Permutation, 0, block);
        }
        let retry = |r: u32| draw(Stream::PermutationRetry, r / 4, i)[r as usize % 4];
        let j = bounded(i + 1, words[i as usize % 4], retry);
        nodes.swap(i as usize, j as usize);
    }
}

#[cfg(test)]
mod tests;
