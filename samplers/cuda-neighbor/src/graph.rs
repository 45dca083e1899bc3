//! The topology in device-readable memory.

use std::any::Any;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use bytemuck::Pod;
use morphgl_cuda::{Argument, Buffer, Device, Event, Mapped, ShardedBuffer, Stream};
use morphgl_graph_store::{Array, Element, Topology};
use morphgl_registry::{CacheCurve, Result};
use rayon::prelude::*;

use crate::TopologyPlacement;
use crate::cache::table_bytes;
use crate::kind::Kind;
use crate::lists::CachedLists;
use crate::options::Request;
use crate::typed::{Extra, NodeTypes};
use crate::without::Without;

/// An array that kernels read, in device memory or in mapped host memory.
#[derive(Debug)]
pub(crate) enum Column<T: Pod> {
    Device(Buffer<T>),
    Host(Mapped<T>),
}

impl<T: Pod + Element> Column<T> {
    fn new(stream: &Stream, array: &Array<T>, on_device: bool) -> Result<Self> {
        if on_device {
            return Ok(Self::Device(Buffer::of(stream, array)?));
        }
        let owner: Arc<dyn Any + Send + Sync> = Arc::new(array.clone());
        // SAFETY: a clone of the array keeps its elements, which are never moved or written.
        Ok(Self::Host(unsafe { Mapped::new_or_copy(stream.device(), owner, array) }?))
    }

    fn num_bytes(&self) -> u64 {
        match self {
            Self::Device(buffer) => buffer.num_bytes(),
            Self::Host(_) => 0,
        }
    }
}

impl<'a, T: Pod> From<&'a Column<T>> for Argument<'a> {
    fn from(column: &'a Column<T>) -> Self {
        match column {
            Column::Device(buffer) => buffer.into(),
            Column::Host(mapped) => mapped.into(),
        }
    }
}

/// A graph as one device reads it.
#[derive(Debug)]
pub(crate) struct Graph {
    /// CSR offsets, or with `lens` the starts of `RowTables`.
    pub(crate) starts: Column<u64>,
    pub(crate) lens: Option<Buffer<u32>>,
    /// Number of first nodes whose rows are cached, where these are found without tables.
    pub(crate) cached_rows: u32,
    /// Draw keys of the nodes, if the graph was reordered.
    pub(crate) draw_keys: Option<Column<u32>>,
    pub(crate) indices: Column<u32>,
    pub(crate) cached: Option<ShardedBuffer<u32>>,
    pub(crate) weights: Option<Column<f32>>,
    pub(crate) cached_weights: Option<ShardedBuffer<f32>>,
    /// Sum of each node's edge weights, if the graph has weights.
    pub(crate) weight_sums: Option<Column<f32>>,
    /// Of a graph that is sampled by edge type: the ends of sub-rows, and where those of a node are.
    pub(crate) sub_row_ends: Option<Column<u32>>,
    pub(crate) node_types: Option<NodeTypes>,
    /// Times of nodes and edges, where trees are bounded by them.
    pub(crate) node_times: Option<Column<i64>>,
    pub(crate) edge_times: Option<Column<i64>>,
    pub(crate) cached_times: Option<ShardedBuffer<i64>>,
    /// Expected share of the neighbours that are read from host memory.
    pub(crate) host_share: f64,
    /// The result of the measurement of `order=auto`: whether lists on the host are read faster in the order of their pages.
    pub(crate) by_page: OnceLock<bool>,
    /// Event after all uploads.
    pub(crate) ready: Event,
    pub(crate) placement: TopologyPlacement,
    pub(crate) bytes: u64,
    /// What other sizes of its cache would save, where that was measured.
    pub(crate) curve: Option<CacheCurve>,
    /// The lists of several devices, which samplers of the others take as long as this one reads them.
    _shared_lists: Option<Arc<CachedLists>>,
    device: Device,
    topology: Topology,
    request: Request,
}

/// Bytes of device memory for a whole topology.
pub(crate) fn whole_bytes(topology: &Topology, extra: Extra) -> u64 {
    let (nodes, edges) = (topology.num_nodes() as u64, topology.num_edges());
    let whole = match topology.weights() {
        Some(_) => 8 * (nodes + 1) + 8 * edges + 4 * nodes,
        None => 8 * (nodes + 1) + 4 * edges,
    };
    let keys = if topology.draw_keys().is_some() { 4 * nodes } else { 0 };
    whole + keys + extra.of_nodes + extra.per_edge * edges
}

/// Minimum bytes of a useful cache: the lookup tables and a sixteenth of the rows.
pub(crate) fn min_cache_bytes(topology: &Topology, extra: Extra) -> u64 {
    let edge = 4 + 4 * u64::from(topology.weights().is_some()) + extra.per_edge;
    table_bytes(topology, topology.draw_keys().is_some()) + extra.of_nodes + edge * topology.num_edges() / 16
}

impl Graph {
    /// The topology on the device or on the host, or, with `lists`, cached.
    pub(crate) fn new(
        stream: &Stream,
        (topology, kind): (&Topology, &Kind),
        on_device: bool,
        lists: Option<&Arc<CachedLists>>,
        request: Request,
    ) -> Result<Self> {
        let selected = lists.map(|lists| &lists.selected);
        let (placement, bytes) = match selected {
            Some(selected) => (TopologyPlacement::Cached, selected.bytes),
            None if on_device => (TopologyPlacement::Device, whole_bytes(topology, kind.extra(topology))),
            None => (TopologyPlacement::Host, 0),
        };
        // Arrays of one element per node.
        let by_node = placement != TopologyPlacement::Host;
        let tables = selected.and_then(|selected| selected.tables.as_ref());
        let ends = kind.typed.as_ref().and_then(|typed| typed.ends.as_ref());
        let is_timed = kind.typed.as_ref().is_some_and(|typed| typed.is_timed());
        let [node_times, edge_times] = [topology.node_times(), topology.edge_times()].map(|t| t.filter(|_| is_timed));
        let (weights, sums) = (topology.weights(), weight_sums(topology).map(Array::from));
        Ok(Self {
            starts: match tables {
                Some(tables) => Column::Device(Buffer::of(stream, &tables.starts)?),
                None => Column::new(stream, topology.indptr(), by_node)?,
            },
            lens: tables.map(|tables| Buffer::of(stream, &tables.lens)).transpose()?,
            cached_rows: selected.filter(|_| tables.is_none()).map_or(0, |selected| selected.rows as u32),
            draw_keys: topology.draw_keys().map(|keys| Column::new(stream, keys, by_node)).transpose()?,
            indices: Column::new(stream, topology.indices(), on_device)?,
            cached: lists.map(|lists| ShardedBuffer::new(stream, Arc::clone(&lists.indices))).transpose()?,
            weights: weights.map(|weights| Column::new(stream, weights, on_device)).transpose()?,
            cached_weights: lists
                .and_then(|lists| lists.weights.as_ref())
                .map(|weights| ShardedBuffer::new(stream, Arc::clone(weights)))
                .transpose()?,
            sub_row_ends: ends
                .map(|ends| Column::new(stream, &Array::from(ends.ends().to_vec()), by_node))
                .transpose()?,
            node_types: ends.map(|ends| NodeTypes::new(stream, ends)).transpose()?,
            node_times: node_times.map(|times| Column::new(stream, times, by_node)).transpose()?,
            edge_times: edge_times.map(|times| Column::new(stream, times, on_device)).transpose()?,
            cached_times: lists
                .and_then(|lists| lists.times.as_ref())
                .map(|times| ShardedBuffer::new(stream, Arc::clone(times)))
                .transpose()?,
            weight_sums: sums.map(|sums| Column::new(stream, &sums, by_node)).transpose()?,
            host_share: lists.map_or(if on_device { 0.0 } else { 1.0 }, |lists| lists.host_share),
            by_page: OnceLock::new(),
            ready: stream.record(false)?,
            placement,
            bytes,
            curve: None,
            _shared_lists: lists.filter(|lists| lists.indices.len() > 1).cloned(),
            device: stream.device().clone(),
            topology: topology.clone(),
            request,
        })
    }

    /// The neighbours in host memory, where any are read from there.
    pub(crate) fn lists_on_host(&self) -> Option<&Mapped<u32>> {
        match &self.indices {
            Column::Host(lists) => Some(lists),
            Column::Device(_) => None,
        }
    }

    /// Kernel arguments that give the edges: neighbours, neighbours of cached rows, weights, weights of cached rows. The rows of a
    /// mini-batch that lose edges are a part of the cached ones.
    pub(crate) fn edges<'a>(&'a self, without: Option<&'a Without>) -> [Argument<'a>; 4] {
        let cached = without.map_or_else(|| self.cached.as_ref().into(), |without| (&without.parts).into());
        [(&self.indices).into(), cached, self.weights.as_ref().into(), self.weights_of_cached(without)]
    }

    /// Kernel arguments that give the weights of edges alone.
    pub(crate) fn edge_weights<'a>(&'a self, without: Option<&'a Without>) -> [Argument<'a>; 2] {
        [self.weights.as_ref().into(), self.weights_of_cached(without)]
    }

    fn weights_of_cached<'a>(&'a self, without: Option<&'a Without>) -> Argument<'a> {
        match without {
            Some(without) => without.weight_parts.as_ref().into(),
            None => self.cached_weights.as_ref().into(),
        }
    }

    /// Kernel arguments that give times: of edges, of edges of cached rows, and of nodes; null where they are not read.
    pub(crate) fn times<'a>(&'a self, without: Option<&'a Without>) -> [Argument<'a>; 3] {
        let cached = match without {
            Some(without) => without.time_parts.as_ref().into(),
            None => self.cached_times.as_ref().into(),
        };
        [self.edge_times.as_ref().into(), cached, self.node_times.as_ref().into()]
    }

    /// Number of parts of the cached rows, one per device that has any.
    pub(crate) fn num_parts(&self) -> usize {
        self.cached.as_ref().map_or(0, |cached| cached.parts().len())
    }

    /// Bytes of its device buffers, unused capacity included.
    pub(crate) fn num_bytes(&self) -> u64 {
        let lens = self.lens.as_ref().map_or(0, Buffer::num_bytes);
        let lists = self.cached.as_ref().map_or(0, ShardedBuffer::num_bytes);
        let floats = [&self.weights, &self.weight_sums].into_iter().flatten().map(Column::num_bytes).sum::<u64>();
        let cached = self.cached_weights.as_ref().map_or(0, ShardedBuffer::num_bytes);
        let keys = self.draw_keys.as_ref().map_or(0, Column::num_bytes);
        let times = [&self.node_times, &self.edge_times].into_iter().flatten().map(Column::num_bytes).sum::<u64>()
            + self.cached_times.as_ref().map_or(0, ShardedBuffer::num_bytes);
        let of_types = self.sub_row_ends.as_ref().map_or(0, Column::num_bytes)
            + self.node_types.as_ref().map_or(0, NodeTypes::num_bytes);
        let keys = keys + times + of_types;
        self.starts.num_bytes() + self.indices.num_bytes() + keys + lens + lists + floats + cached
    }

    fn matches(&self, device: &Device, topology: &Topology, request: &Request) -> bool {
        let arrays = |t: &Topology| {
            let (weights, keys) = (t.weights().map(|w| w.as_ptr()), t.draw_keys().map(|keys| keys.as_ptr()));
            let times = (t.node_times().map(|times| times.as_ptr()), t.edge_times().map(|times| times.as_ptr()));
            let types = t.edge_types().map(|types| types.as_ptr());
            (t.indptr().as_ptr_range(), t.indices().as_ptr(), weights, keys, times, types)
        };
        self.device.is(device) && request.is_served_by(&self.request) && arrays(&self.topology) == arrays(topology)
    }
}

/// The graph of a live operator with the same topology and options, or the one that `make` makes; one per process.
pub(crate) fn shared(
    device: &Device,
    topology: &Topology,
    request: &Request,
    make: impl FnOnce() -> Result<Graph>,
) -> Result<Arc<Graph>> {
    static GRAPHS: Mutex<Vec<Weak<Graph>>> = Mutex::new(Vec::new());
    let mut graphs = GRAPHS.lock().unwrap_or_else(PoisonError::into_inner);
    graphs.retain(|graph| graph.strong_count() > 0);
    if let Some(graph) = graphs.iter().filter_map(Weak::upgrade).find(|graph| graph.matches(device, topology, request))
    {
        return Ok(graph);
    }
    let graph = Arc::new(make()?);
    graphs.push(Arc::downgrade(&graph));
    Ok(graph)
}

/// Sum of each node's edge weights in f64, in CSC order, rounded once.
fn weight_sums(topology: &Topology) -> Option<Vec<f32>> {
    let weights: &[f32] = topology.weights()?;
    let sum = |row: &[u64]| weights[row[0] as usize..row[1] as usize].iter().map(|&w| f64::from(w)).sum::<f64>() as f32;
    Some(topology.indptr().par_windows(2).map(sum).collect())
}
