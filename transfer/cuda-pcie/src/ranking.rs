//! What the rows of a cache are ranked by, where the user names a policy.

use std::sync::Arc;

use morphgl_graph_store::{Topology, Types};
use morphgl_hotness::{Graph, PolicyKind, SubRow};
use morphgl_registry::{Error, Key, Result, TransferringContext};

/// How rows are ranked.
pub(crate) enum Ranking {
    /// By these scores, one per row.
    Scores(Arc<[f32]>),
    /// By the accesses of so many mini-batches, still to be counted.
    Count(u32),
}

/// Scores the dataset's topology, in host memory or `on_disk`, by `kind`; pre-sampling counts K epochs of the run's own mini-batches
/// instead.
///
/// # Errors
///
/// The context does not say what mini-batches are sampled from, or the policy's own.
pub(crate) fn rank(operator: &Key, kind: PolicyKind, context: &TransferringContext, on_disk: bool) -> Result<Ranking> {
    let wrong = |what: &str| Error::setting(operator, format!("options: cache {kind}: {what}"));
    let Some((seeds, settings)) = &context.sampled else {
        return Err(wrong("the seeds and sampler settings of the mini-batches are not known; give auto or none"));
    };
    if let PolicyKind::PreSample { epochs } = kind {
        let batches = seeds.nodes().len().div_ceil(settings.batch_size.max(1)) as u64 * u64::from(epochs.get());
        return Ok(Ranking::Count(u32::try_from(batches).unwrap_or(u32::MAX)));
    }
    let unscored = || wrong("it is not scored by the topology alone; give presample:K, or another policy");
    let policy = kind.policy(settings.seed).ok_or_else(unscored)?;
    let topology = &context.dataset.topology;
    let hotness = match on_disk {
        true => policy.score(&Unchecked::new(topology)?, seeds.nodes(), settings)?,
        false => policy.score(topology, seeds.nodes(), settings)?,
    };
    Ok(Ranking::Scores(hotness.features))
}

/// The topology of a dataset left on disk, which was not checked when it was opened.
struct Unchecked<'a>(&'a Topology);

impl<'a> Unchecked<'a> {
    fn new(topology: &'a Topology) -> Result<Self> {
        let offsets: &[u64] = topology.indptr();
        match offsets.is_sorted() && offsets.last().is_none_or(|&end| end <= topology.num_edges()) {
            true => Ok(Self(topology)),
            false => Err(damaged("its offsets do not ascend to the number of edges")),
        }
    }
}

impl Graph for Unchecked<'_> {
    fn num_nodes(&self) -> usize {
        self.0.num_nodes()
    }

    fn degree(&self, node: u32) -> Result<u64> {
        Ok(self.0.degree(node))
    }

    fn scan(&self, row: &mut dyn FnMut(u32, &[u32])) -> Result<()> {
        let num_nodes = self.num_nodes() as u32;
        for node in 0..num_nodes {
            let neighbors = self.0.neighbors(node);
            self.check(node, neighbors)?;
            if !neighbors.is_empty() {
                row(node, neighbors);
            }
        }
        Ok(())
    }

    fn types(&self) -> Option<&Types> {
        self.0.types().map(|types| &**types)
    }

    fn scan_by_type(&self, row: &mut dyn FnMut(SubRow<'_>)) -> Result<()> {
        let num_types = self.0.types().map_or(0, |types| types.edge_types().len());
        for node in 0..self.num_nodes() as u32 {
            for (edge_type, edges) in self.0.sub_rows(node) {
                let neighbors = &self.0.indices()[edges];
                self.check(node, neighbors)?;
                if edge_type >= num_types {
                    return Err(damaged(&format!("an edge to node {node} has the type {edge_type}, of {num_types}")));
                }
                row(SubRow { node, edge_type: edge_type as u16, degree: neighbors.len() as u64, neighbors });
            }
        }
        Ok(())
    }
}

impl Unchecked<'_> {
    fn check(&self, node: u32, neighbors: &[u32]) -> Result<()> {
        let num_nodes = self.num_nodes() as u32;
        let unknown = neighbors.iter().find(|&&neighbor| neighbor >= num_nodes);
        unknown.map_or(Ok(()), |neighbor| {
            Err(damaged(&format!("node {node} has the in-neighbour {neighbor}, of {num_nodes} nodes")))
        })
    }
}

fn damaged(what: &str) -> Error {
    Error::setting("dataset", format!("{what}: it is damaged, import it again"))
}
