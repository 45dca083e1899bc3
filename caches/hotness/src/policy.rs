//! The trait of all policies, their result, and the degree policy.

use std::sync::Arc;

use morphgl_registry::{Result, SamplerSettings};

use crate::Graph;

/// Hotness of every node: expected accesses in an epoch, or a proxy for them.
#[derive(Debug, Clone, PartialEq)]
pub struct Hotness {
    /// Accesses of the node's features: mini-batches it is an input node of.
    pub features: Arc<[f32]>,
    /// Accesses of the node's row of the topology: hops that expand it.
    pub rows: Arc<[f32]>,
}

/// A way to estimate hotness.
pub trait Policy {
    /// Scores every node of `graph` for epochs of `seeds`, sampled as `settings` say.
    ///
    /// # Errors
    ///
    /// The graph cannot be read, or the policy's sampler fails.
    fn score(&self, graph: &dyn Graph, seeds: &[u32], settings: &SamplerSettings) -> Result<Hotness>;
}

/// In-degree: where edges go both ways, a node with many neighbours is a neighbour of many (Aligraph; PaGraph).
#[derive(Debug, Clone, Copy, Default)]
pub struct Degree;

impl Policy for Degree {
    fn score(&self, graph: &dyn Graph, _: &[u32], _: &SamplerSettings) -> Result<Hotness> {
        let degrees: Arc<[f32]> =
            (0..graph.num_nodes() as u32).map(|v| graph.degree(v).map(|d| d as f32)).collect::<Result<_>>()?;
        Ok(Hotness { rows: Arc::clone(&degrees), features: degrees })
    }
}
