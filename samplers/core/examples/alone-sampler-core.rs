//! Picks neighbours and numbers them. Run: `cargo run -p morphgl-sampler-core --example alone-sampler-core`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use morphgl_registry::BatchId;
use morphgl_sampler_core::{PickScratch, Relabel, Row, pick_uniform};

fn main() {
    let mut relabel = Relabel::default();
    relabel.start(Vec::new());
    let mut scratch = PickScratch::default();
    // Node v of a made-up graph has the 20 in-neighbours v + 1 to v + 20.
    for node in [0, 10] {
        relabel.local(node);
    }
    for node in [0, 10] {
        let row = Row { seed: 7, batch: BatchId::default(), hop: 0, node, edge_type: 0 };
        let mut picks = [0; 5];
        pick_uniform(&row, 20, &mut picks, &mut scratch);
        let neighbors = picks.map(|position| node + 1 + position);
        println!("of node {node}: {neighbors:?}, in local ids {:?}", neighbors.map(|v| relabel.local(v)));
    }
    println!("nodes: {:?}", relabel.finish());
}
