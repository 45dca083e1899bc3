//! The kinds of sampling, and what the parts that they share read of each.

use std::sync::Arc;

use morphgl_graph_store::Topology;
use morphgl_registry::{
    BatchingContext, Error, Fanout, Fanouts, Key, NeighborSettings, Pick, Result, Sampling, ShadowSettings,
    WalkSettings,
};
use morphgl_sampler_core::{SubRowEnds, TYPED};

use crate::bounds::Degrees;
use crate::typed::{Extra, Typed};
use crate::{NEIGHBOR, SHADOW, WALK};

/// A kind of sampling with its settings.
#[derive(Debug, Clone)]
pub(crate) struct Kind {
    /// The operator of the kind.
    pub(crate) key: Key,
    /// The hops; those of walks take all in-neighbours in the graph that walks make.
    pub(crate) hops: NeighborSettings,
    pub(crate) blocks: Blocks,
    /// Sampling by edge type, of a graph with types or in trees; the fanouts of `hops` then bound those of all types together.
    pub(crate) typed: Option<Arc<Typed>>,
}

/// What the blocks of a mini-batch are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Blocks {
    /// The hops.
    Hops,
    /// So many times the subgraph that the nodes of the hops induce; the last time the rows of the seeds alone.
    Subgraph(usize),
    /// The hops, whose edges are those of a graph that walks make.
    Walks(Walks),
}

/// Walks from a node: to each of the nodes visited most often the node has an edge, weighted by the visits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Walks {
    pub(crate) walks: u32,
    pub(crate) length: u32,
    /// A walk ends before a step whose second word is below this.
    pub(crate) restart: u64,
    /// Number of most visited nodes that become a node's neighbours, at most.
    pub(crate) keep: u32,
}

impl Walks {
    fn new(settings: &WalkSettings) -> Self {
        let &WalkSettings { walks, length, restart, neighbors, .. } = settings;
        Self { walks, length, restart: (restart * 2f64.powi(32)).round() as u64, keep: neighbors.min(walks * length) }
    }

    /// Steps of all walks from a node.
    pub(crate) fn steps(&self) -> u32 {
        self.walks * self.length
    }
}

impl Kind {
    /// The kind of settings that [`morphgl_sampler_core::check_settings`] accepts.
    ///
    /// # Errors
    ///
    /// A kind of another crate, and as [`Typed::of`].
    pub(crate) fn of(context: &BatchingContext) -> Result<Self> {
        let kind = |key, hops, blocks| Self { key, hops, blocks, typed: None };
        Ok(match &context.settings.sampling {
            Sampling::Neighbor(hops) => kind(NEIGHBOR.key, hops.clone(), Blocks::Hops),
            Sampling::Shadow(ShadowSettings { hops, layers }) => {
                kind(SHADOW.key, hops.clone(), Blocks::Subgraph(*layers))
            }
            Sampling::Walk(walk) => {
                let hops = Fanouts(vec![Fanout::All; walk.layers]).into();
                kind(WALK.key, hops, Blocks::Walks(Walks::new(walk)))
            }
            Sampling::Custom(custom) if custom.kind == TYPED.name => {
                let (hops, typed) = Typed::of(context)?;
                Self { key: crate::TYPED.key, hops, blocks: Blocks::Hops, typed: typed.map(Arc::new) }
            }
            Sampling::Custom(custom) => {
                let kind = &custom.kind;
                let cure =
                    "no CUDA device samples by it; batch on the CPU, or sample by neighbor, typed, shadow or walk";
                return Err(Error::setting("sampling", format!("{kind}: {cure}")));
            }
        })
    }

    /// Bytes that the graph takes besides.
    pub(crate) fn extra(&self, topology: &Topology) -> Extra {
        let Some(typed) = &self.typed else { return Extra::default() };
        let times = 8 * u64::from(typed.is_timed());
        Extra {
            of_nodes: typed.ends.as_ref().map_or(0, SubRowEnds::num_bytes) + times * topology.num_nodes() as u64,
            per_edge: if topology.edge_times().is_some() { times } else { 0 },
        }
    }

    /// The last epoch that the counter of random numbers numbers.
    pub(crate) fn last_epoch(&self) -> u32 {
        self.typed.as_ref().map_or(u32::MAX, |typed| typed.settings.last_epoch())
    }

    /// Degrees of the graph whose edges the hops take: of as many copies of it as a mini-batch has trees.
    pub(crate) fn degrees(&self, topology: &Topology, max_trees: Option<u64>) -> Degrees {
        match &self.blocks {
            Blocks::Walks(walks) => Degrees::all(topology.num_nodes(), walks.keep.into()),
            _ => Degrees::new(topology).of_copies(max_trees.unwrap_or(1)),
        }
    }

    /// What an access of a row reads of it, one fanout for each kind of access: a hop of its fanout, that of a subgraph the whole
    /// row, a step of a walk one neighbour.
    pub(crate) fn reads(&self) -> NeighborSettings {
        let fanouts = match &self.blocks {
            Blocks::Hops => self.hops.fanouts.0.clone(),
            Blocks::Subgraph(_) => self.hops.fanouts.0.iter().copied().chain([Fanout::All]).collect(),
            Blocks::Walks(_) => vec![Fanout::AtMost(std::num::NonZeroU32::MIN)],
        };
        NeighborSettings { fanouts: Fanouts(fanouts), ..self.hops.clone() }
    }

    /// Whether hops pick by weight.
    pub(crate) fn weighted(&self) -> bool {
        self.hops.pick == Pick::Weighted
    }

    /// Sizes that a mini-batch has besides those of its hops: of the subgraph and the rows of its seeds, or of sub-rows.
    pub(crate) fn num_more(&self) -> usize {
        if matches!(self.blocks, Blocks::Subgraph(_)) { 2 } else { usize::from(self.typed.is_some()) }
    }

    pub(crate) fn walks(&self) -> Option<Walks> {
        match self.blocks {
            Blocks::Walks(walks) => Some(walks),
            _ => None,
        }
    }

    /// Number of blocks of the subgraph.
    pub(crate) fn subgraphs(&self) -> Option<usize> {
        match self.blocks {
            Blocks::Subgraph(layers) => Some(layers),
            _ => None,
        }
    }
}
