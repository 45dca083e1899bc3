//! Degree policies.

use std::sync::Arc;

use morphgl_registry::{Result, SamplerSettings};

use crate::scatter::scatter;
use crate::{Graph, Hotness, Policy};

/// In-degree: where edges go both ways, a node with many neighbours is a neighbour of many (AliGraph, VLDB'19; PaGraph,
/// SoCC'20).
///
/// # Complexity
///
/// O(nodes) time; 4 bytes per node.
#[derive(Debug, Clone, Copy, Default)]
pub struct InDegree;

impl Policy for InDegree {
    fn score(&self, graph: &dyn Graph, _: &[u32], _: &SamplerSettings) -> Result<Hotness> {
        // Collecting results would hold the scores twice.
        let mut degrees: Arc<[f32]> = (0..graph.num_nodes()).map(|_| 0.0).collect();
        for (v, degree) in (0..).zip(Arc::get_mut(&mut degrees).expect("it is not shared yet")) {
            *degree = graph.degree(v)? as f32;
        }
        Ok(Hotness::of_both(degrees))
    }
}

/// Out-degree: the number of rows that a node is a neighbour in, so the chances to be picked if every row is expanded (the
/// degree policy of GNNLab, EuroSys'22, §6, and of Data Tiering, Min et al., §3.1). Exact up to 2^24.
///
/// # Complexity
///
/// One scan of the edges; 12 bytes per node.
#[derive(Debug, Clone, Copy, Default)]
pub struct OutDegree;

impl Policy for OutDegree {
    fn score(&self, graph: &dyn Graph, _: &[u32], _: &SamplerSettings) -> Result<Hotness> {
        // f64, because sums of 1 in f32 end at 2^24.
        let mut degrees = vec![0f64; graph.num_nodes()];
        scatter(graph, &mut degrees, |_, _| 1.0)?;
        Ok(Hotness::of_both(degrees.into_iter().map(|d| d as f32).collect()))
    }
}
