//! Neighbour sampling of typed graphs by edge type.

mod trees;

use std::sync::Arc;

use morphgl_graph_store::{EdgeType, Topology, Types};
use morphgl_registry::{
    BatchId, BatchingContext, CustomSettings, Error, Fanout, Fanouts, HostBatch, NeighborSettings, Pick, Result,
    SamplerSettings, SamplingSetting,
};

use rayon::prelude::*;

use trees::HostTrees;
pub use trees::{TimePick, TreeRows, TreeSettings, Trees};

use crate::kind::{DISJOINT, FANOUTS_BY_TYPE, TEMPORAL, TYPED};
use crate::limits::check_draws;
use crate::{
    EdgeArrays, Excluded, Expected, HostBatching, HostHops, Picks, SampleSeeds, Seeds, SubRowEnds, TypeFanout,
    sample_hops,
};

/// Maximum number of epochs of a typed graph: half of the epoch's word of a counter has the edge type.
pub const MAX_TYPED_EPOCHS: u32 = 1 << 16;

/// The settings of sampling by edge type.
#[derive(Debug, Clone)]
pub struct TypedSettings {
    /// The hops, with the fanouts of types that have none of their own.
    pub hops: NeighborSettings,
    /// `fanouts[hop][edge_type]`; empty in a graph without types.
    pub fanouts: Vec<Vec<TypeFanout>>,
    /// Trees of seeds, where they are disjoint.
    pub trees: Option<TreeSettings>,
    /// Where sub-rows end, if trees are not disjoint and the table is not too large.
    ends: Option<Arc<SubRowEnds>>,
}

impl TypedSettings {
    /// The settings of the context's graph.
    ///
    /// # Errors
    ///
    /// Another kind of sampling; fanouts of an edge type that the graph does not have, or not one per hop; more draws than a counter
    /// numbers; times of nodes that have none; rows of a task without regard to times.
    pub fn new(context: &BatchingContext) -> Result<Self> {
        let topology = &context.dataset.topology;
        Ok(Self::of_degrees(context, largest_degree(topology))?.with_rows(topology))
    }

    /// The settings with what the rows of the graph tell that samples faster: the ends of sub-rows, or whether these ascend by time.
    ///
    /// # Complexity
    ///
    /// O(nodes + edges) time on the threads of the current rayon pool, and the memory of [`SubRowEnds::new`].
    pub fn with_rows(mut self, topology: &Topology) -> Self {
        match &mut self.trees {
            Some(trees) => trees.ascends = trees.by_time.is_some() && ascend_by_time(topology),
            None => self.ends = SubRowEnds::new(topology).map(Arc::new),
        }
        self
    }

    /// The settings of a graph whose largest in-degree is known, and whose edges are not read: without the ends of sub-rows, and with trees
    /// that take no sub-row to ascend by time. Mini-batches are the same.
    ///
    /// # Errors
    ///
    /// As [`TypedSettings::new`].
    pub fn of_degrees(context: &BatchingContext, largest: u64) -> Result<Self> {
        let topology = &context.dataset.topology;
        let types = topology.types().map(|types| &**types);
        let are_rows = context.seeds.rows().is_some();
        let settings = Self::of_graph(&context.settings, types, topology.node_times().is_some() || are_rows, largest)?;
        if are_rows && settings.trees.is_none_or(|trees| trees.by_time.is_none()) {
            let what =
                "temporal=no: the seeds are rows of a task, whose times bound what is sampled; give uniform or last";
            return Err(Error::setting("sampler", what));
        }
        Ok(settings)
    }

    /// As [`TypedSettings::of_degrees`], of a graph with these types, whose nodes have times or not.
    ///
    /// # Errors
    ///
    /// As [`TypedSettings::new`].
    pub fn of_graph(settings: &SamplerSettings, types: Option<&Types>, has_times: bool, largest: u64) -> Result<Self> {
        let custom = settings.custom(&TYPED)?;
        let hops = custom.hops.clone().expect("a kind by fanouts has hops");
        let trees = trees_of(custom, &hops, has_times)?;
        let text = custom.value(&FANOUTS_BY_TYPE);
        let text = text.as_str().unwrap_or_default();
        let Some(types) = types else {
            if !text.is_empty() {
                let what = "fanouts_by_type: the graph has no edge types; leave it out, or import it with types";
                return Err(Error::sampling(SamplingSetting::Fanouts, what));
            }
            check_draws(&hops, largest)?;
            return Ok(Self { hops, fanouts: Vec::new(), trees, ends: None });
        };
        let num_types = types.edge_types().len();
        let mut fanouts: Vec<Vec<TypeFanout>> =
            hops.fanouts.0.iter().map(|&fanout| vec![Some(fanout); num_types]).collect();
        for of_type in text.split(';').map(str::trim).filter(|of_type| !of_type.is_empty()) {
            let (edge_type, of_hops) = parse(of_type, types, fanouts.len())
                .map_err(|what| Error::sampling(SamplingSetting::Fanouts, format!("fanouts_by_type: {what}")))?;
            fanouts.iter_mut().zip(of_hops).for_each(|(of_hop, fanout)| of_hop[edge_type] = fanout);
        }
        for of_hop in &fanouts {
            let given = Fanouts(of_hop.iter().copied().flatten().collect());
            check_draws(&NeighborSettings { fanouts: given, ..hops.clone() }, largest)?;
        }
        Ok(Self { hops, fanouts, trees, ends: None })
    }

    /// The last epoch whose number fits the counter.
    pub fn last_epoch(&self) -> u32 {
        if self.fanouts.is_empty() { u32::MAX } else { MAX_TYPED_EPOCHS - 1 }
    }

    /// Checks that the epoch of a mini-batch fits the counter.
    ///
    /// # Errors
    ///
    /// An epoch from [`MAX_TYPED_EPOCHS`] on, of a typed graph.
    pub fn check_epoch(&self, batch: BatchId) -> Result<()> {
        if batch.epoch <= self.last_epoch() {
            return Ok(());
        }
        let what = format!("a typed graph is sampled for {MAX_TYPED_EPOCHS} epochs at most; begin with another seed");
        Err(Error::setting(batch, what))
    }

    /// The picks of the sub-rows of an edge type, by those of a hop; `None` where its edges are not sampled.
    #[inline]
    pub fn picks_of<'a>(&self, hop: Picks<'a>, edge_type: u16) -> Option<Picks<'a>> {
        let fanout = match self.fanouts.get(hop.hop as usize) {
            None => hop.fanout,
            Some(fanouts) => fanouts[usize::from(edge_type)]?,
        };
        Some(Picks { fanout, edge_type, ..hop })
    }
}

/// Whether trees are disjoint, and how times are read.
fn trees_of(custom: &CustomSettings, hops: &NeighborSettings, has_times: bool) -> Result<Option<TreeSettings>> {
    let by_time = match custom.value(&TEMPORAL).as_str() {
        Some("uniform") => Some(TimePick::Uniform),
        Some("last") => Some(TimePick::Last),
        _ => None,
    };
    if by_time.is_some() && !has_times {
        let what = "temporal: the nodes have no times, which seeds need; leave it out, or give the graph node times";
        return Err(Error::setting("sampler", what));
    }
    if by_time == Some(TimePick::Last) && hops.pick == Pick::Weighted {
        return Err(Error::sampling(
            SamplingSetting::WeightedPick,
            "temporal=last picks by time; leave one of them out",
        ));
    }
    let disjoint = custom.value(&DISJOINT) == true || by_time.is_some();
    Ok(disjoint.then_some(TreeSettings { by_time, ascends: false }))
}

/// Whether every sub-row ascends by time.
fn ascend_by_time(topology: &Topology) -> bool {
    let ascends = |node: u32| {
        let times = |row: std::ops::Range<usize>| row.map(|edge| trees::time(topology, edge));
        topology.sub_rows(node).all(|(_, row)| times(row).is_sorted())
    };
    (0..topology.num_nodes() as u32).into_par_iter().with_min_len(1 << 10).all(ascends)
}

fn largest_degree(topology: &Topology) -> u64 {
    topology.indptr().windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0)
}

/// Number of the edge type, and a fanout per hop, of a text such as `writes=5,5`.
fn parse(text: &str, types: &Types, num_hops: usize) -> std::result::Result<(usize, Vec<TypeFanout>), String> {
    let known = || types.edge_types().iter().map(EdgeType::to_string).collect::<Vec<_>>().join(", ");
    let (name, fanouts) = text.split_once('=').ok_or_else(|| format!("{text:?} has no =; give TYPE=FANOUTS"))?;
    let name = name.trim();
    let is_named = |edge_type: &EdgeType| edge_type.name == name || edge_type.to_string() == name;
    let mut named = types.edge_types().iter().enumerate().filter(|(_, edge_type)| is_named(edge_type));
    let Some((number, _)) = named.next() else {
        return Err(format!("there is no edge type {name:?}; there are {}", known()));
    };
    if named.next().is_some() {
        return Err(format!("several edge types are named {name:?}; give one of {}", known()));
    }
    let fanout = |word: &str| match word.trim() {
        "0" => Ok(None),
        word => word.parse::<Fanouts>().map(|fanouts| Some(fanouts.0[0])).map_err(|e| format!("{name}: {e}")),
    };
    let fanouts: Vec<Option<Fanout>> = fanouts.split(',').map(fanout).collect::<std::result::Result<_, _>>()?;
    if fanouts.len() != num_hops {
        return Err(format!("{name} has {} fanouts for {num_hops} hops; give one per hop", fanouts.len()));
    }
    Ok((number, fanouts))
}

/// The sampling by edge type of one worker.
#[derive(Debug)]
pub struct TypedSampler {
    hops: HostHops,
    trees: Trees,
    settings: TypedSettings,
}

impl TypedSampler {
    /// A sampler of `topology` on so many threads; the arguments are those of [`HostHops::new`].
    pub fn new(topology: &Topology, settings: TypedSettings, threads: usize, expected: &Arc<Expected>) -> Self {
        let hops = HostHops::new(topology, threads, Arc::clone(expected));
        Self { hops, trees: Trees::default(), settings }
    }
}

/// Trees that are bounded by time end at the times of the seeds, where these have some, else at those of their nodes.
impl SampleSeeds for TypedSampler {
    fn sample(
        &mut self,
        host: &HostBatching,
        seeds: Seeds<'_>,
        excluded: &Excluded,
        batch: &mut HostBatch,
    ) -> Result<()> {
        let Self { hops, trees, settings } = self;
        settings.check_epoch(batch.id)?;
        let topology = &host.dataset.topology;
        if let Some(by) = settings.trees {
            let mut rows = HostTrees { topology, seed_times: seeds.times };
            let graph = (topology, excluded, EdgeArrays::of(topology));
            return trees.sample(&mut rows, graph, (settings, by), host.settings.seed, seeds.nodes, batch);
        }
        let mut sampler = hops.sampler(topology).without(excluded).by_type(&settings.fanouts, settings.ends.as_deref());
        let edges = EdgeArrays::of(topology);
        sample_hops(&mut sampler, &settings.hops, host.settings.seed, edges, seeds.nodes, None, batch)
    }
}

#[cfg(test)]
mod tests;
