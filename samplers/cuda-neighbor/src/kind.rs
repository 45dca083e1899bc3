//! The kinds of sampling, and what the parts that they share read of each.

use morphgl_graph_store::Topology;
use morphgl_registry::{
    Error, Fanout, Fanouts, Key, NeighborSettings, Pick, Result, SamplerSettings, Sampling, ShadowSettings,
    WalkSettings,
};

use crate::bounds::Degrees;
use crate::{NEIGHBOR, SHADOW, WALK};

/// A kind of sampling with its settings.
#[derive(Debug, Clone)]
pub(crate) struct Kind {
    /// The operator of the kind.
    pub(crate) key: Key,
    /// The hops; those of walks take all in-neighbours in the graph that walks make.
    pub(crate) hops: NeighborSettings,
    pub(crate) blocks: Blocks,
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
    /// A kind of another crate.
    pub(crate) fn of(settings: &SamplerSettings) -> Result<Self> {
        Ok(match &settings.sampling {
            Sampling::Neighbor(hops) => Self { key: NEIGHBOR.key, hops: hops.clone(), blocks: Blocks::Hops },
            Sampling::Shadow(ShadowSettings { hops, layers }) => {
                Self { key: SHADOW.key, hops: hops.clone(), blocks: Blocks::Subgraph(*layers) }
            }
            Sampling::Walk(walk) => {
                let hops = Fanouts(vec![Fanout::All; walk.layers]).into();
                Self { key: WALK.key, hops, blocks: Blocks::Walks(Walks::new(walk)) }
            }
            Sampling::Custom(custom) => {
                let kind = &custom.kind;
                let cure = "no CUDA device samples by it; batch on the CPU, or sample by neighbor, shadow or walk";
                return Err(Error::setting("sampling", format!("{kind}: {cure}")));
            }
        })
    }

    /// Degrees of the graph whose edges the hops take.
    pub(crate) fn degrees(&self, topology: &Topology) -> Degrees {
        match &self.blocks {
            Blocks::Walks(walks) => Degrees::all(topology.num_nodes(), walks.keep.into()),
            _ => Degrees::new(topology),
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

    /// Blocks that a mini-batch of the hops has besides their own: the subgraph, and the rows of its seeds.
    pub(crate) fn num_more(&self) -> usize {
        if matches!(self.blocks, Blocks::Subgraph(_)) { 2 } else { 0 }
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
