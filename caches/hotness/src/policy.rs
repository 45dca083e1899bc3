//! The trait of all policies, and their result.

use std::sync::Arc;

use morphgl_registry::{Error, Result, SamplerSettings};

use crate::Graph;

/// Hotness of every node: expected accesses in an epoch, or a proxy for them. Shapes: `[num_nodes]` both.
#[derive(Debug, Clone, PartialEq)]
pub struct Hotness {
    /// Accesses of the node's features: mini-batches it is an input node of.
    pub features: Arc<[f32]>,
    /// Accesses of the node's row of the topology: hops that expand it.
    pub rows: Arc<[f32]>,
}

impl Hotness {
    /// The same scores for features and rows: a proxy that does not distinguish them.
    pub(crate) fn of_both(scores: Arc<[f32]>) -> Self {
        Self { rows: Arc::clone(&scores), features: scores }
    }
}

/// A way to estimate hotness.
pub trait Policy: Send + Sync {
    /// Scores every node of `graph` for epochs of `seeds`, sampled as `settings` say. This call is the policy's whole cost:
    /// building a policy does no work.
    ///
    /// # Errors
    ///
    /// The graph cannot be read, the policy's sampler fails, or the policy's own settings are invalid.
    fn score(&self, graph: &dyn Graph, seeds: &[u32], settings: &SamplerSettings) -> Result<Hotness>;
}

/// Refuses seeds that a policy cannot start from.
pub(crate) fn check_seeds(seeds: &[u32], num_nodes: usize) -> Result<()> {
    if seeds.is_empty() {
        return Err(Error::setting("hotness", "there are no seeds to score the graph for; give at least 1"));
    }
    match seeds.iter().find(|&&v| v as usize >= num_nodes) {
        None => Ok(()),
        Some(v) => {
            let what = format!("seed {v} does not exist, the graph has {num_nodes} nodes; give seeds of this graph");
            Err(Error::setting("hotness", what))
        }
    }
}
