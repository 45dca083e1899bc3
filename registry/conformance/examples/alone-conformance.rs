//! Makes a mini-batch with the reference. Run: `cargo run -p morphgl-conformance --example alone-conformance`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use morphgl_conformance::batching::{Case, graphs, reference};
use morphgl_registry::BatchId;

fn main() {
    let case = Case::new(graphs::cycle(12));
    let batch = reference::sample(&case, BatchId { epoch: 0, index: 0 });
    println!("seeds {:?}, input nodes {:?}", batch.seeds(), batch.input_nodes);
    for (layer, block) in batch.blocks.iter().enumerate() {
        println!("blocks[{layer}]: {} <- {} nodes, {} edges", block.num_dst, block.num_src, block.num_edges());
    }
}
