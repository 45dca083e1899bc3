//! Writes the two tiny graphs of `fuzz/seeds/bv`: `tiny-formats-bv DIRECTORY`.
//!
//! They have references, copied blocks, intervals and residuals; one is big-endian as Java writes it, one little-endian.

use std::path::PathBuf;

use dsi_bitstream::traits::{BE, LE};
use webgraph::graphs::vec_graph::VecGraph;
use webgraph::prelude::*;

fn main() -> anyhow::Result<()> {
    let dir = PathBuf::from(std::env::args().nth(1).ok_or_else(|| anyhow::anyhow!("give a directory"))?);
    let near = |v: usize| (v / 4 * 4..v / 4 * 4 + 6).chain([v * 7 % 40, v * 11 % 40]);
    let arcs = (0..40usize).flat_map(|v| near(v).filter(move |&u| u < 40 && (u + v) % 9 != 0).map(move |u| (v, u)));
    let graph = VecGraph::from_arcs(arcs);
    BvComp::with_basename(dir.join("tiny")).comp_graph::<BE>(&graph)?;
    let codes = CompFlags { compression_window: 3, min_interval_length: 2, ..CompFlags::default() };
    BvComp::with_basename(dir.join("little")).comp_flags(codes).comp_graph::<LE>(&graph)?;
    for ending in ["offsets", "ef"] {
        for name in ["tiny", "little"] {
            let _ = std::fs::remove_file(dir.join(name).with_extension(ending));
        }
    }
    Ok(())
}
