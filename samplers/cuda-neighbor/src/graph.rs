//! The topology in device-readable memory.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytemuck::Pod;
use morphgl_cuda::{Argument, Buffer, Device, Event, Mapped, Stream, Upload};
use morphgl_graph_store::{Array, Element, Topology};
use morphgl_registry::Result;
use rayon::prelude::*;

use crate::Topologies;
use crate::cache::{CACHED, Filled, ROW_TABLE_BYTES};

/// An array that kernels read, in device memory or in mapped host memory.
#[derive(Debug)]
pub(crate) enum Column<T: Pod> {
    Device(Buffer<T>),
    Host(Mapped<T>),
    Empty,
}

impl<'a, T: Pod> From<&'a Column<T>> for Argument<'a> {
    fn from(column: &'a Column<T>) -> Self {
        match column {
            Column::Device(buffer) => buffer.into(),
            Column::Host(mapped) => mapped.into(),
            Column::Empty => Argument::NULL,
        }
    }
}

/// A graph as one device reads it.
#[derive(Debug)]
pub(crate) struct Graph {
    /// CSR offsets, or with `lens` the starts of [`Filled`].
    pub(crate) starts: Column<u64>,
    pub(crate) lens: Option<Buffer<u32>>,
    pub(crate) indices: Column<u32>,
    pub(crate) cached: Option<Buffer<u32>>,
    pub(crate) weights: Option<Column<f32>>,
    pub(crate) cached_weights: Option<Buffer<f32>>,
    /// Sum of each node's edge weights, if the graph has weights.
    pub(crate) weight_sums: Option<Column<f32>>,
    /// Event after all uploads.
    pub(crate) ready: Event,
    pub(crate) form: Topologies,
    /// Bytes of device memory.
    pub(crate) bytes: u64,
    device: Device,
    topology: Topology,
    asked: (Topologies, Option<u64>),
}

impl<T: Pod> Column<T> {
    fn num_bytes(&self) -> u64 {
        match self {
            Self::Device(buffer) => buffer.num_bytes(),
            Self::Host(_) | Self::Empty => 0,
        }
    }
}

/// Bytes of device memory for a whole topology.
pub(crate) fn whole_bytes(topology: &Topology) -> u64 {
    let (nodes, edges) = (topology.num_nodes() as u64, topology.num_edges());
    match topology.weights() {
        Some(_) => 8 * (nodes + 1) + 8 * edges + 4 * nodes,
        None => 8 * (nodes + 1) + 4 * edges,
    }
}

/// Minimum bytes of a useful cache: the lookup tables and a sixteenth of the rows.
pub(crate) fn least_cache_bytes(topology: &Topology) -> u64 {
    let weights = u64::from(topology.weights().is_some());
    let tables = (ROW_TABLE_BYTES + 4 * weights) * topology.num_nodes() as u64;
    tables + (4 + 4 * weights) * topology.num_edges() / 16
}

impl Graph {
    /// The whole topology in device memory.
    pub(crate) fn on_device(stream: &Stream, topology: &Topology, asked: (Topologies, Option<u64>)) -> Result<Self> {
        let resident = |values: &[u32]| -> Result<_> { Ok(Column::Device(Buffer::of(stream, values)?)) };
        let floats = |values: &[f32]| -> Result<_> { Ok(Column::Device(Buffer::of(stream, values)?)) };
        Ok(Self {
            starts: Column::Device(Buffer::of(stream, topology.indptr())?),
            lens: None,
            indices: resident(topology.indices())?,
            cached: None,
            weights: topology.weights().map(|w| floats(w)).transpose()?,
            cached_weights: None,
            weight_sums: weight_sums(topology).map(|w| floats(&w)).transpose()?,
            ready: stream.record(false)?,
            form: Topologies::Device,
            bytes: whole_bytes(topology),
            device: stream.device().clone(),
            topology: topology.clone(),
            asked,
        })
    }

    /// The whole topology in host memory, pinned in place.
    pub(crate) fn on_host(stream: &Stream, topology: &Topology, asked: (Topologies, Option<u64>)) -> Result<Self> {
        let device = stream.device();
        Ok(Self {
            starts: mapped(device, topology.indptr())?,
            lens: None,
            indices: mapped(device, topology.indices())?,
            cached: None,
            weights: topology.weights().map(|w| mapped(device, w)).transpose()?,
            cached_weights: None,
            weight_sums: weight_sums(topology).map(|w| mapped(device, &Array::from(w))).transpose()?,
            ready: stream.record(false)?,
            form: Topologies::Host,
            bytes: 0,
            device: device.clone(),
            topology: topology.clone(),
            asked,
        })
    }

    /// The rows of `filled` in device memory, the others in host memory.
    pub(crate) fn cached(
        stream: &Stream,
        topology: &Topology,
        filled: &Filled,
        asked: (Topologies, Option<u64>),
    ) -> Result<Self> {
        let device = stream.device();
        let sums = weight_sums(topology);
        Ok(Self {
            starts: Column::Device(Buffer::of(stream, &filled.starts)?),
            lens: Some(Buffer::of(stream, &filled.lens)?),
            indices: mapped(device, topology.indices())?,
            cached: Some(held(stream, topology, topology.indices(), filled)?),
            weights: topology.weights().map(|w| mapped(device, w)).transpose()?,
            cached_weights: topology.weights().map(|w| held(stream, topology, w, filled)).transpose()?,
            weight_sums: sums.map(|w| Ok(Column::Device(Buffer::of(stream, &w)?))).transpose()?,
            ready: stream.record(false)?,
            form: Topologies::Cached,
            bytes: filled.bytes(),
            device: device.clone(),
            topology: topology.clone(),
            asked,
        })
    }

    /// Bytes of its device buffers, unused capacity included.
    pub(crate) fn num_bytes(&self) -> u64 {
        let words = [&self.lens, &self.cached].into_iter().flatten().map(Buffer::num_bytes).sum::<u64>();
        let floats = [&self.weights, &self.weight_sums].into_iter().flatten().map(Column::num_bytes).sum::<u64>();
        let cached = self.cached_weights.as_ref().map_or(0, Buffer::num_bytes);
        self.starts.num_bytes() + self.indices.num_bytes() + words + floats + cached
    }

    fn is(&self, device: &Device, topology: &Topology, asked: (Topologies, Option<u64>)) -> bool {
        let same = |a: &[u64], b: &[u64]| a.as_ptr() == b.as_ptr() && a.len() == b.len();
        let weights = |t: &Topology| t.weights().map(|w| w.as_ptr());
        self.device.is(device)
            && self.asked == asked
            && same(self.topology.indptr(), topology.indptr())
            && self.topology.indices().as_ptr() == topology.indices().as_ptr()
            && weights(&self.topology) == weights(topology)
    }
}

/// The graph of a live operator with the same topology and options, or the one that `make` makes; one per process.
pub(crate) fn shared(
    device: &Device,
    topology: &Topology,
    asked: (Topologies, Option<u64>),
    make: impl FnOnce() -> Result<Graph>,
) -> Result<Arc<Graph>> {
    static GRAPHS: Mutex<Vec<Weak<Graph>>> = Mutex::new(Vec::new());
    let mut graphs = GRAPHS.lock().unwrap_or_else(PoisonError::into_inner);
    graphs.retain(|graph| graph.strong_count() > 0);
    if let Some(graph) = graphs.iter().filter_map(Weak::upgrade).find(|graph| graph.is(device, topology, asked)) {
        return Ok(graph);
    }
    let graph = Arc::new(make()?);
    graphs.push(Arc::downgrade(&graph));
    Ok(graph)
}

/// Maps an array of the host for the device.
fn mapped<T: Pod + Element>(device: &Device, array: &Array<T>) -> Result<Column<T>> {
    if array.is_empty() {
        return Ok(Column::Empty);
    }
    let owner: Arc<dyn Any + Send + Sync> = Arc::new(array.clone());
    // SAFETY: a clone of the array keeps its elements, which are never moved or written.
    Ok(Column::Host(unsafe { Mapped::new_or_copy(device, owner, array) }?))
}

/// Uploads the cached rows of an edge array, packed.
fn held<T: Pod>(stream: &Stream, topology: &Topology, values: &[T], filled: &Filled) -> Result<Buffer<T>> {
    let mut rows = Upload::new(stream, filled.edges() as usize)?;
    for node in 0..topology.num_nodes() as u32 {
        if filled.starts[node as usize] & CACHED != 0 {
            rows.push(&values[topology.edge_range(node)])?;
        }
    }
    rows.finish()
}

/// Sum of each node's edge weights in f64, in CSC order, rounded once.
fn weight_sums(topology: &Topology) -> Option<Vec<f32>> {
    let weights: &[f32] = topology.weights()?;
    let sum = |row: &[u64]| weights[row[0] as usize..row[1] as usize].iter().map(|&w| f64::from(w)).sum::<f64>() as f32;
    Some(topology.indptr().par_windows(2).map(sum).collect())
}
