//! The operator.

use std::sync::Arc;

use morphgl_cuda::{Device, Stream};
use morphgl_graph_store::Topology;
use morphgl_hotness::Hotness;
use morphgl_registry::{Batching, BatchingContext, BatchingWorker, Error, Result};
use morphgl_sampler_core::check_settings;

use crate::bounds::Degrees;
use crate::graph::{self, Graph};
use crate::presample::presample;
use crate::shared::Shared;
use crate::worker::Worker;
use crate::{KEY, Options, Topologies, fill};

/// Phase Batching by neighbour sampling on a CUDA device, `Batching_CUDA+PCIe_Neighbor`.
#[derive(Debug, Clone)]
pub struct CudaNeighbor {
    shared: Arc<Shared>,
    options: Options,
}

impl CudaNeighbor {
    /// Builds the operator. `context.gather` is ignored: transferring gathers features on the device.
    ///
    /// # Errors
    ///
    /// A place that is no CUDA device, settings that [`check_settings`] refuses, invalid options, and a device that fails or
    /// has no room for topology and mini-batches.
    ///
    /// # Complexity
    ///
    /// O(nodes), with weights or a topology in device memory O(nodes + edges); with cached rows also the pre-sampled
    /// mini-batches.
    pub fn new(context: &BatchingContext) -> Result<Self> {
        Self::build(context, None)
    }

    /// [`CudaNeighbor::new`] with a given hotness for cached rows instead of pre-sampling: accesses of each node's row in an
    /// epoch, as [`Hotness::rows`].
    ///
    /// # Errors
    ///
    /// As [`CudaNeighbor::new`], and a hotness of the wrong length.
    pub fn with_hotness(context: &BatchingContext, hotness: &[f32]) -> Result<Self> {
        let nodes = context.dataset.num_nodes();
        if hotness.len() != nodes {
            let what = format!("hotness of {} nodes, and the graph has {nodes}; give one a node", hotness.len());
            return Err(Error::setting(&KEY, what));
        }
        Self::build(context, Some(hotness))
    }

    fn build(context: &BatchingContext, hotness: Option<&[f32]>) -> Result<Self> {
        let options = Options::read(&context.options)?;
        let topology = &context.dataset.topology;
        check_settings(topology, &context.seeds, &context.settings)?;
        let device = Device::open(&context.place, &KEY)?;
        let stream = Stream::new(&device, false)?;
        let degrees = Arc::new(Degrees::new(topology));
        // A graph with a given hotness is not shared with other operators.
        let asked = (options.topology, options.topology_bytes);
        let make = || choose(context, &device, &stream, &options, &degrees, hotness);
        let graph = match hotness {
            Some(_) => Arc::new(make()?),
            None => graph::shared(&device, topology, asked, make)?,
        };
        let shared = Arc::new(Shared::new(context, &device, &options, graph, &degrees)?);
        shared.check_memory(&options)?;
        Ok(Self { shared, options })
    }

    /// Pre-samples `epochs` epochs on the device: accesses of features and of rows, per epoch.
    ///
    /// # Errors
    ///
    /// Zero epochs, or a device that fails.
    pub fn presample(&self, epochs: u32) -> Result<Hotness> {
        if epochs == 0 {
            return Err(Error::setting(&KEY, "pre-sampling no epoch tells nothing; give at least 1"));
        }
        presample(&self.shared, epochs, self.options.presample_batches)
    }

    /// Placement of the topology; never [`Topologies::Auto`].
    pub fn topology(&self) -> Topologies {
        self.shared.graph.form
    }

    /// Bytes of device memory of the topology, lookup tables included.
    pub fn topology_bytes(&self) -> u64 {
        self.shared.graph.bytes
    }
}

#[cfg(all(test, feature = "emulate"))]
impl CudaNeighbor {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

/// Places the topology by the options and the budget.
fn choose(
    context: &BatchingContext,
    device: &Device,
    stream: &Stream,
    options: &Options,
    degrees: &Arc<Degrees>,
    hotness: Option<&[f32]>,
) -> Result<Graph> {
    let topology = &context.dataset.topology;
    let asked = (options.topology, options.topology_bytes);
    let budget = match options.topology_bytes {
        Some(bytes) => bytes,
        None => device.free_bytes()? / 2,
    };
    let whole = graph::whole_bytes(topology);
    let form = match options.topology {
        Topologies::Auto if whole <= budget => Topologies::Device,
        Topologies::Auto if graph::least_cache_bytes(topology) <= budget => Topologies::Cached,
        Topologies::Auto => Topologies::Host,
        form => form,
    };
    match form {
        Topologies::Device if whole > budget => Err(too_large(whole, budget)),
        Topologies::Device => Graph::on_device(stream, topology, asked),
        Topologies::Cached => {
            // Kept until the cached graph has mapped the same arrays, so that they are pinned once.
            let on_host = Arc::new(Graph::on_host(stream, topology, (Topologies::Host, None))?);
            let counted;
            let hotness = match hotness {
                Some(hotness) => hotness,
                None => {
                    let shared = Arc::new(Shared::new(context, device, options, Arc::clone(&on_host), degrees)?);
                    counted = presample(&shared, options.presample_epochs, options.presample_batches)?;
                    &counted.rows
                }
            };
            let filled = fill(topology, hotness, &context.settings, budget);
            Graph::cached(stream, topology, &filled.ok_or_else(|| no_tables(topology, budget))?, asked)
        }
        _ => Graph::on_host(stream, topology, asked),
    }
}

fn too_large(whole: u64, budget: u64) -> Error {
    let what = format!(
        "the topology takes {whole} bytes of device memory, more than the {budget} it may have; give more by \
         topology_bytes, or topology cached or host"
    );
    Error::setting(&KEY, what)
}

fn no_tables(topology: &Topology, budget: u64) -> Error {
    let least = graph::least_cache_bytes(topology);
    let what = format!(
        "topology_bytes {budget} have no room for the tables by which cached rows are found; give {least} or more, or \
         topology host"
    );
    Error::setting(&KEY, what)
}

impl Batching for CudaNeighbor {
    fn num_batches(&self) -> usize {
        self.shared.num_batches()
    }

    /// A worker is a few streams of the device; more host threads do not speed it up.
    fn worker(&self, threads: usize) -> Result<Box<dyn BatchingWorker>> {
        if threads == 0 {
            let what = "0 threads make no mini-batch; give at least 1";
            return Err(Error::setting("threads of a batching worker", what));
        }
        Ok(Box::new(Worker::new(&self.shared, self.options.in_flight)?))
    }
}
