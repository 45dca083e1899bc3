//! Adjacency lists in the memory of devices, which all samplers of a process share (Data Tiering, §5.5).

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use bytemuck::Pod;
use morphgl_cuda::{Buffer, Device, Stream, Upload};
use morphgl_graph_store::Topology;
use morphgl_registry::{CacheCurve, Error, Result};

use crate::cache::SelectedRows;
use crate::options::Request;

/// The rows that are cached, on one or several devices: each row on one of them.
#[derive(Debug)]
pub(crate) struct CachedLists {
    pub(crate) selected: SelectedRows,
    /// Neighbours by part, and their weights, if the graph has any.
    pub(crate) indices: Arc<[Buffer<u32>]>,
    pub(crate) weights: Option<Arc<[Buffer<f32>]>>,
    /// Times of the edges by part, where trees are bounded by them.
    pub(crate) times: Option<Arc<[Buffer<i64>]>>,
    /// Expected share of the neighbours that are read from host memory.
    pub(crate) host_share: f64,
    /// What other sizes would save, where that was measured.
    pub(crate) curve: OnceLock<CacheCurve>,
    devices: Vec<Device>,
    topology: Topology,
    request: Request,
}

impl CachedLists {
    /// Uploads the selected rows of `topology`, a part to the device of each stream.
    pub(crate) fn new(
        streams: &[Stream],
        topology: &Topology,
        (selected, host_share): (SelectedRows, f64),
        request: &Request,
    ) -> Result<Self> {
        let indices = upload(streams, topology, topology.indices(), &selected)?;
        let weights = topology.weights().map(|weights| upload(streams, topology, weights, &selected)).transpose()?;
        let times = topology.edge_times().filter(|_| request.by_time);
        let times = times.map(|times| upload(streams, topology, times, &selected)).transpose()?;
        let devices = streams.iter().map(|stream| stream.device().clone()).collect();
        let (curve, topology, request) = (OnceLock::new(), topology.clone(), request.clone());
        Ok(Self { selected, indices, weights, times, host_share, curve, devices, topology, request })
    }

    /// Whether they are the lists of `topology` on exactly these devices, by the same options.
    fn serves(&self, streams: &[Stream], topology: &Topology, request: &Request) -> bool {
        let is_there = |device: &Device| streams.iter().any(|stream| stream.device().is(device));
        let arrays = |t: &Topology| {
            let (weights, times) = (t.weights().map(|w| w.as_ptr()), t.edge_times().map(|times| times.as_ptr()));
            (t.indptr().as_ptr(), t.indices().as_ptr(), weights, times)
        };
        self.devices.len() == streams.len()
            && self.devices.iter().all(is_there)
            && self.request.is_alike(request)
            && arrays(&self.topology) == arrays(topology)
    }
}

/// The lists of a live sampler with the same topology, options and devices, or those that `make` makes. A single device's lists belong to
/// its graph alone.
pub(crate) fn shared(
    streams: &[Stream],
    topology: &Topology,
    request: &Request,
    make: impl FnOnce() -> Result<CachedLists>,
) -> Result<Arc<CachedLists>> {
    static LISTS: Mutex<Vec<Weak<CachedLists>>> = Mutex::new(Vec::new());
    if streams.len() == 1 {
        return make().map(Arc::new);
    }
    let mut all = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|lists| lists.strong_count() > 0);
    if let Some(lists) = all.iter().filter_map(Weak::upgrade).find(|lists| lists.serves(streams, topology, request)) {
        return Ok(lists);
    }
    let lists = Arc::new(make()?);
    all.push(Arc::downgrade(&lists));
    Ok(lists)
}

/// Uploads the selected rows of an edge array, a packed part to the device of each stream.
fn upload<T: Pod>(
    streams: &[Stream],
    topology: &Topology,
    values: &[T],
    selected: &SelectedRows,
) -> Result<Arc<[Buffer<T>]>> {
    let part = |(part, stream): (usize, &Stream)| {
        let upload = || {
            let mut rows = Upload::new(stream, selected.part_edges[part] as usize)?;
            for node in (0..topology.num_nodes() as u32).filter(|&node| selected.part(node) == Some(part)) {
                rows.push(&values[topology.edge_range(node)])?;
            }
            rows.finish()
        };
        // Errors name the device, which may be a peer.
        upload().map_err(|e| Error { context: format!("{}, lists on {}", e.context, stream.device().place()), ..e })
    };
    streams.iter().enumerate().map(part).collect()
}
