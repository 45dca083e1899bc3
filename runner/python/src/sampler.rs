//! Sampling of seeds that the caller chooses, mini-batch by mini-batch, on the caller's thread: the native part of `morphgl.pyg.Sampler`.

use std::sync::{Arc, Mutex};

use crossbeam::queue::ArrayQueue;
use morphgl_batching_cpu::InducedEdges;
use morphgl_graph_store::{Array, Dataset, Topology};
use morphgl_registry::{
    BatchId, BatchingContext, Block, CustomSettings, Error, Expansion, Fanout, Fanouts, HostBatch, NeighborSettings,
    Pick, SamplerSettings, Sampling, SeedSet,
};
use morphgl_sampler_core::{
    Excluded, Expected, HostBatching, NeighborSampler, SampleSeeds, Seeds, TYPED, TypedSampler, TypedSettings,
};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use serde_json::{Map, Value};

use crate::array::borrowed;
use crate::graph::Graph;
use crate::subgraph::{EdgeArrays, NodeArrays, Subgraph};

/// Mini-batches whose memory is kept for later ones.
const SPARES: usize = 8;

/// Samples neighbours as `Batching_CPU_Neighbor` does, or as `Batching_CPU_Typed` in a typed graph, in trees or within times.
#[pyclass(frozen, module = "morphgl._morphgl")]
pub(crate) struct Sampler {
    host: HostBatching,
    kind: Kind,
    expected: Arc<Expected>,
    /// Those that no thread samples with at the moment. Never waited for: a process that forks may leave it locked in the new one.
    idle: Mutex<Vec<Worker>>,
    spares: Arc<ArrayQueue<Subgraph>>,
    num_hops: usize,
    /// Whether a subgraph has all edges among the nodes that hops found.
    induced: bool,
}

/// How hops pick neighbours.
enum Kind {
    /// No hop finds an edge: the first fanouts are 0.
    None,
    Neighbor(NeighborSettings),
    Typed(TypedSettings),
}

/// What a thread samples with.
struct Worker {
    sampler: Picker,
    /// Of a sampler of induced subgraphs.
    induced: Option<(InducedEdges, Block)>,
    batch: HostBatch,
    seeds: Vec<u32>,
    times: Vec<i64>,
    excluded: Excluded,
}

enum Picker {
    None,
    Neighbor(Box<NeighborSampler>),
    Typed(Box<TypedSampler>),
}

#[pymethods]
impl Sampler {
    /// Samples `num_hops` hops: `fanouts[edge type][hop]` neighbours of a node, -1 for all and 0 for none; without types of edge type 0.
    /// `order` has the caller's number of each edge, by default its position among those of its type. `temporal` is `uniform` or `last`,
    /// by the graph's times or those given, of the edges in its order. `induced` subgraphs have all edges among the nodes that hops found, of
    /// which numbers per hop are then 0.
    #[new]
    #[expect(clippy::too_many_arguments, reason = "the arguments of one call from Python")]
    fn new(
        py: Python<'_>,
        graph: &Graph,
        fanouts: Vec<Vec<i64>>,
        num_hops: usize,
        weighted: bool,
        disjoint: bool,
        temporal: Option<&str>,
        order: Option<&Bound<'_, PyAny>>,
        node_times: Option<&Bound<'_, PyAny>>,
        edge_times: Option<&Bound<'_, PyAny>>,
        induced: bool,
    ) -> PyResult<Self> {
        let order = order.map(|order| borrowed::<u32>("edge order", order)).transpose()?;
        let times =
            |what, times: Option<&Bound<'_, PyAny>>| times.map(|times| borrowed::<i64>(what, times)).transpose();
        let (node_times, edge_times) = (times("node times", node_times)?, times("edge times", edge_times)?);
        let dataset = Arc::clone(&graph.0);
        let built = py.detach(|| {
            let topology = topology_of(&dataset.topology, weighted, order, node_times, edge_times)?;
            Self::build(topology, &fanouts, num_hops, weighted, disjoint, temporal).map_err(|e| e.to_string())
        });
        built.map(|sampler| Self { induced, ..sampler }).map_err(PyValueError::new_err)
    }

    /// The subgraph around `seeds`, which are ids of nodes within a type, type after type; trees are bounded by `times`, one per seed, in
    /// place of their nodes' own. A function of both and of the lower 48 bits of `draw`. The interpreter's lock is released.
    fn sample(
        &self,
        py: Python<'_>,
        seeds: Vec<(usize, Bound<'_, PyAny>)>,
        times: Option<Vec<Bound<'_, PyAny>>>,
        draw: u64,
    ) -> PyResult<(Vec<NodeArrays>, Vec<EdgeArrays>)> {
        let seeds: Vec<(usize, Array<i64>)> =
            seeds.iter().map(|(of, ids)| Ok((*of, borrowed::<i64>("seeds", ids)?))).collect::<PyResult<_>>()?;
        let times = times.map(|times| times.iter().map(|t| borrowed::<i64>("times of seeds", t)).collect());
        let times: Option<Vec<Array<i64>>> = times.transpose()?;
        let made = py.detach(|| self.subgraph(&seeds, times.as_deref(), draw));
        Ok(made?.lend(&self.spares))
    }
}

impl Sampler {
    fn build(
        topology: Topology,
        fanouts: &[Vec<i64>],
        num_hops: usize,
        weighted: bool,
        disjoint: bool,
        temporal: Option<&str>,
    ) -> morphgl_registry::Result<Self> {
        let of_type = |fanout: i64| -> morphgl_registry::Result<Option<Fanout>> {
            match fanout {
                -1 => Ok(Some(Fanout::All)),
                0 => Ok(None),
                _ => fanout.to_string().parse().map(Some),
            }
        };
        let by_type: Vec<Vec<Option<Fanout>>> = fanouts
            .iter()
            .map(|fanouts| fanouts.iter().map(|&fanout| of_type(fanout)).collect())
            .collect::<morphgl_registry::Result<_>>()?;
        // A hop without any edge is the last one that could have some.
        let sampled = |hop: &usize| by_type.iter().any(|fanouts| fanouts[*hop].is_some());
        let hops: Vec<usize> = (0..num_hops).take_while(sampled).collect();
        // The largest fanout of each hop, by which limits are checked.
        let largest = |&hop: &usize| {
            let of_hop = || by_type.iter().filter_map(|fanouts| fanouts[hop]);
            let number = |fanout: &Fanout| matches!(fanout, Fanout::AtMost(_));
            of_hop().filter(number).max_by_key(|fanout| fanout.take(u64::MAX)).or_else(|| of_hop().next())
        };
        let settings = NeighborSettings {
            fanouts: Fanouts(hops.iter().filter_map(largest).collect()),
            expansion: Expansion::New,
            pick: if weighted { Pick::Weighted } else { Pick::Uniform },
        };
        let is_typed = topology.types().is_some() || disjoint || temporal.is_some();
        let mut options = Map::new();
        options.insert("disjoint".to_string(), Value::Bool(disjoint));
        options.insert("temporal".to_string(), temporal.unwrap_or("no").into());
        let layers = hops.len().max(1);
        let sampling = if is_typed && !hops.is_empty() {
            let hops = Some(settings.clone());
            Sampling::Custom(CustomSettings { kind: TYPED.name.to_string(), layers, hops, settings: options })
        } else if hops.is_empty() {
            Sampling::Neighbor(Fanouts(vec![Fanout::All]).into())
        } else {
            Sampling::Neighbor(settings.clone())
        };
        let settings_of = SamplerSettings { seed: 0, shuffle: false, ..SamplerSettings::from(sampling) };
        if topology.num_nodes() == 0 {
            return Err(Error::setting("graph", "it has no nodes; give one that has some"));
        }
        let seeds = SeedSet::new("seeds", &[0], topology.num_nodes())?;
        let kind = if hops.is_empty() {
            Kind::None
        } else if is_typed {
            let types = topology.types().map(|types| &**types);
            let largest = topology.indptr().windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0);
            let mut typed = TypedSettings::of_graph(&settings_of, types, true, largest)?.with_rows(&topology);
            if topology.types().is_some() {
                typed.fanouts = hops.iter().map(|&hop| by_type.iter().map(|fanouts| fanouts[hop]).collect()).collect();
            }
            Kind::Typed(typed)
        } else {
            Kind::Neighbor(settings)
        };
        let dataset = Arc::new(Dataset::new("graph", topology));
        let context = BatchingContext { gather: false, ..BatchingContext::new(dataset, seeds, settings_of) };
        let host = HostBatching::new(&context)?;
        let spares = Arc::new(ArrayQueue::new(SPARES));
        Ok(Self { host, kind, expected: Arc::default(), idle: Mutex::default(), spares, num_hops, induced: false })
    }

    fn worker(&self) -> Worker {
        let topology = &self.host.dataset.topology;
        let sampler = match &self.kind {
            Kind::None => Picker::None,
            Kind::Neighbor(settings) => {
                Picker::Neighbor(Box::new(NeighborSampler::new(topology, settings.clone(), 1, &self.expected)))
            }
            Kind::Typed(settings) => {
                Picker::Typed(Box::new(TypedSampler::new(topology, settings.clone(), 1, &self.expected)))
            }
        };
        Worker {
            sampler,
            induced: self.induced.then(|| (InducedEdges::new(topology), Block::default())),
            batch: HostBatch::default(),
            seeds: Vec::new(),
            times: Vec::new(),
            excluded: Excluded::default(),
        }
    }

    fn subgraph(&self, given: &[(usize, Array<i64>)], until: Option<&[Array<i64>]>, draw: u64) -> PyResult<Subgraph> {
        let idle = self.idle.try_lock().ok().and_then(|mut idle| idle.pop());
        let mut worker = idle.unwrap_or_else(|| self.worker());
        let Worker { sampler, induced, batch, seeds, times, excluded } = &mut worker;
        let topology = &self.host.dataset.topology;
        let types = topology.types().map(|types| &**types);
        seeds.clear();
        for (of, ids) in given {
            let nodes = types.map_or(0..self.host.dataset.num_nodes() as u32, |types| types.range(*of));
            for &id in ids.iter() {
                let node = u32::try_from(id).ok().filter(|&id| (id as usize) < nodes.len());
                let node = node.ok_or_else(|| {
                    PyIndexError::new_err(format!("seeds: node {id} does not exist, there are {}", nodes.len()))
                })?;
                seeds.push(nodes.start + node);
            }
        }
        times.clear();
        until.iter().flat_map(|until| until.iter()).for_each(|of_type| times.extend_from_slice(of_type));
        let until = until.map(|_| &**times);
        if until.is_some_and(|until| until.len() != seeds.len()) {
            let what = format!("times of seeds: {} for {} seeds; give one each", times.len(), seeds.len());
            return Err(PyValueError::new_err(what));
        }
        batch.id = BatchId { epoch: (draw >> 32) as u32 & 0xffff, index: draw as u32 };
        let sampled = match sampler {
            Picker::Neighbor(sampler) => sampler.sample(&self.host, Seeds::of_nodes(seeds), excluded, batch),
            Picker::Typed(sampler) => {
                let seeds = Seeds { times: until, ..Seeds::of_nodes(seeds) };
                sampler.sample(&self.host, seeds, excluded, batch)
            }
            Picker::None => {
                batch.num_seeds = seeds.len();
                batch.input_nodes.clone_from(seeds);
                Ok(())
            }
        };
        let found = sampled.and_then(|()| match induced {
            Some((edges, block)) => edges.among(topology, &batch.input_nodes, block).map(|()| Some(&*block)),
            None => Ok(None),
        });
        let block = found.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let mut subgraph = self.spares.pop().unwrap_or_default();
        subgraph.fill(batch, block, types, self.num_hops);
        if let Ok(mut idle) = self.idle.try_lock() {
            idle.push(worker);
        }
        Ok(subgraph)
    }
}

/// The graph that is sampled: with numbers of its edges and these times, without the weights if neighbours are not picked by them.
fn topology_of(
    graph: &Topology,
    weighted: bool,
    order: Option<Array<u32>>,
    node_times: Option<Array<i64>>,
    edge_times: Option<Array<i64>>,
) -> Result<Topology, String> {
    let mut topology = graph.clone();
    if !weighted && topology.weights().is_some() {
        let bare = Topology::new(graph.indptr().clone(), graph.indices().clone(), None)?;
        let typed = match (graph.types(), graph.edge_types()) {
            (Some(types), Some(of_edges)) => bare.with_types((**types).clone(), of_edges.clone())?,
            _ => bare,
        };
        topology = typed.with_times(graph.node_times().cloned(), graph.edge_times().cloned())?;
    }
    if node_times.is_some() || edge_times.is_some() {
        topology = topology.with_times(node_times, edge_times)?;
    }
    let order = order.map_or_else(|| positions(&topology), Ok)?;
    topology.with_edge_ids(Some(order))
}

/// The position of each edge among those of its type.
fn positions(topology: &Topology) -> Result<Array<u32>, String> {
    if topology.num_edges() > u64::from(u32::MAX) {
        return Err(format!("graph: {} edges, more than 2^32 - 1 have numbers", topology.num_edges()));
    }
    let Some(types) = topology.edge_types() else {
        return Ok((0..topology.num_edges() as u32).collect::<Vec<_>>().into());
    };
    let mut next = vec![0u32; topology.types().map_or(0, |types| types.edge_types().len())];
    let position = |&of: &u16| {
        let next = &mut next[usize::from(of)];
        *next += 1;
        *next - 1
    };
    Ok(types.iter().map(position).collect::<Vec<_>>().into())
}
