//! The operator.

use std::sync::Arc;
use std::time::Instant;

use morphgl_cuda::{Device, Mapped, Order, Stream, peers};
use morphgl_hotness::{CachePolicy, Hotness, PolicyKind};
use morphgl_registry::{Batching, BatchingContext, BatchingWorker, CacheCurve, Error, GivenNodes, Result, SeedSet};
use morphgl_sampler_core::{TYPED, check_given, check_settings};

use crate::cache::{CsrRows, select_of, select_spread};
use crate::graph::{self, Graph};
use crate::kind::Kind;
use crate::lists::CachedLists;
use crate::options::{Options, Request};
use crate::pairs::PairSource;
use crate::presample::presample;
use crate::shared::{Shared, Sources};
use crate::worker::Worker;
use crate::{NEIGHBOR, TopologyPlacement, lists, slope};

/// Phase Batching on a CUDA device, by the kind of sampling of its settings: `Batching_CUDA+PCIe_Neighbor`, `…_Shadow` or `…_Walk`.
#[derive(Debug, Clone)]
pub struct CudaSampler {
    shared: Arc<Shared>,
    options: Options,
    seeds: SeedSet,
}

impl CudaSampler {
    /// Builds the operator. `context.gather` is ignored: transferring gathers features on the device.
    ///
    /// # Errors
    ///
    /// A kind of sampling of another crate, a place that is no CUDA device, settings that [`check_settings`] refuses, invalid options, and a device that fails or
    /// lacks memory for topology and mini-batches.
    ///
    /// # Complexity
    ///
    /// O(nodes), with weights or a topology in device memory O(nodes + edges); with cached rows also the pre-sampled
    /// mini-batches.
    pub fn new(context: &BatchingContext) -> Result<Self> {
        Self::build(context, None)
    }

    /// [`CudaSampler::new`] for neighbour sampling alone.
    ///
    /// # Errors
    ///
    /// As [`CudaSampler::new`], and another kind of sampling.
    pub fn neighbor(context: &BatchingContext) -> Result<Self> {
        context.settings.neighbor()?;
        Self::new(context)
    }

    /// [`CudaSampler::new`] for ShaDow alone.
    ///
    /// # Errors
    ///
    /// As [`CudaSampler::new`], and another kind of sampling.
    pub fn shadow(context: &BatchingContext) -> Result<Self> {
        context.settings.shadow()?;
        Self::new(context)
    }

    /// [`CudaSampler::new`] for random walks alone.
    ///
    /// # Errors
    ///
    /// As [`CudaSampler::new`], and another kind of sampling.
    pub fn walk(context: &BatchingContext) -> Result<Self> {
        context.settings.walk()?;
        Self::new(context)
    }

    /// [`CudaSampler::new`] with a given hotness for cached rows instead of pre-sampling: accesses of each node's row in an
    /// epoch, as [`Hotness::rows`].
    ///
    /// # Errors
    ///
    /// As [`CudaSampler::new`], and a hotness of the wrong length.
    pub fn with_hotness(context: &BatchingContext, hotness: &[f32]) -> Result<Self> {
        let nodes = context.dataset.num_nodes();
        if hotness.len() != nodes {
            let message = format!("hotness of {} nodes, and the graph has {nodes}; give one per node", hotness.len());
            return Err(Error::setting(Kind::of(context)?.key, message));
        }
        Self::build(context, Some(hotness))
    }

    /// [`CudaSampler::new`] for sampling by edge type alone.
    ///
    /// # Errors
    ///
    /// As [`CudaSampler::new`], another kind of sampling, and a graph of so many edge types that the ends of its sub-rows take more than its
    /// neighbours do.
    pub fn typed(context: &BatchingContext) -> Result<Self> {
        context.settings.custom(&TYPED)?;
        Self::new(context)
    }

    fn build(context: &BatchingContext, hotness: Option<&[f32]>) -> Result<Self> {
        let topology = &context.dataset.topology;
        check_settings(topology, &context.seeds, &context.settings)?;
        let kind = Kind::of(context)?;
        if context.seeds.rows().is_some() {
            let what = "seeds have their nodes' times here, not those of rows of a task; batch by Batching_CPU_Typed";
            return Err(Error::setting(kind.key, what));
        }
        let options = Options::read(&kind, &context.options)?;
        let device = Device::open(&context.place, &kind.key)?;
        let stream = Stream::new(&device, false)?;
        let pairs = context.seeds.pairs().map(|seeds| PairSource::new(context, seeds).map(Arc::new)).transpose()?;
        let degrees = Arc::new(kind.degrees(topology, max_trees(context, &kind, pairs.as_deref())));
        let sources = Sources { kind: &kind, degrees: &degrees, pairs: pairs.as_ref() };
        // A graph with a given hotness is not shared with other operators.
        let make = || place(context, &stream, &options, sources, hotness);
        let graph = match hotness {
            Some(_) => Arc::new(make()?),
            None => graph::shared(&device, topology, &Request::of(&options, &kind), make)?,
        };
        let sharing = |by_page| {
            let shared = Shared::new(context, &device, &options, (Arc::clone(&graph), sources), by_page)?;
            shared.check_memory(options.in_flight)?;
            Ok(Arc::new(shared))
        };
        let lists = graph.lists_on_host().map_or(0, Mapped::len);
        let by_page = match (options.order, graph.by_page.get()) {
            // Steps of walks are read one by one, and sub-rows row by row.
            _ if kind.walks().is_some() || kind.typed.is_some() => false,
            (Order::Nodes, _) => false,
            (Order::Pages, _) => true,
            (Order::Auto, _) if lists * size_of::<u32>() < Order::MIN_TABLE => false,
            (Order::Auto, Some(&by_page)) => by_page,
            (Order::Auto, None) => {
                let seconds = |by_page| slope::batch_seconds(&sharing(by_page)?);
                let (by_node, by_page) = (seconds(false)?, seconds(true)?);
                *graph.by_page.get_or_init(|| by_page < by_node)
            }
        };
        Ok(Self { shared: sharing(by_page)?, options, seeds: context.seeds.clone() })
    }

    /// Pre-samples `epochs` epochs on the device: accesses of features and of rows, per epoch.
    ///
    /// # Errors
    ///
    /// Zero epochs, or a device that fails.
    pub fn presample(&self, epochs: u32) -> Result<Hotness> {
        if epochs == 0 {
            return Err(Error::setting(&self.shared.kind.key, "pre-sampling needs an epoch; give at least 1"));
        }
        presample(&self.shared, epochs, self.options.presample_batches)
    }

    fn start(&self, threads: usize, given: Option<Arc<dyn GivenNodes>>) -> Result<Box<dyn BatchingWorker>> {
        if threads == 0 {
            let message = "0 threads make no mini-batch; give at least 1";
            return Err(Error::setting("threads of a batching worker", message));
        }
        Ok(Box::new(Worker::with_given(&self.shared, self.options.in_flight, given)?))
    }

    /// Placement of the topology; never [`TopologyPlacement::Auto`].
    pub fn topology(&self) -> TopologyPlacement {
        self.shared.graph.placement
    }

    /// Bytes of device memory of the topology, lookup tables included.
    pub fn topology_bytes(&self) -> u64 {
        self.shared.graph.bytes
    }

    /// As [`CudaSampler::topology_bytes`], with the capacity of buffers that is not used.
    pub fn allocated_bytes(&self) -> u64 {
        self.shared.graph.num_bytes()
    }
}

#[cfg(all(test, feature = "emulate"))]
impl CudaSampler {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

/// Maximum number of trees of a mini-batch; `None` where nodes are in none.
fn max_trees(context: &BatchingContext, kind: &Kind, pairs: Option<&PairSource>) -> Option<u64> {
    kind.typed.as_ref()?.settings.trees?;
    let size = context.settings.batch_size;
    Some(pairs.map_or(size.min(context.seeds.nodes().len()) as u64, |pairs| pairs.max_seeds(size)))
}

/// Places the topology by the options and the budget.
fn place(
    context: &BatchingContext,
    stream: &Stream,
    options: &Options,
    sources: Sources<'_>,
    hotness: Option<&[f32]>,
) -> Result<Graph> {
    let (start, topology, device) = (Instant::now(), &context.dataset.topology, stream.device());
    let kind = sources.kind;
    let (request, extra) = (Request::of(options, kind), kind.extra(topology));
    let graph = |on_device, lists| Graph::new(stream, (topology, kind), on_device, lists, request.clone());
    let budget = match options.topology_bytes {
        Some(bytes) => bytes,
        None => device.free_bytes()? / 2,
    };
    let (whole, min_cache) = (graph::whole_bytes(topology, extra), graph::min_cache_bytes(topology, extra));
    match options.topology {
        TopologyPlacement::Auto if whole <= budget => graph(true, None),
        TopologyPlacement::Device if whole > budget => {
            let message = format!(
                "the topology takes {whole} bytes of device memory, more than the {budget} it may have; give more by \
                 topology_bytes, or topology cached or host"
            );
            Err(Error::setting(&kind.key, message))
        }
        TopologyPlacement::Device => graph(true, None),
        TopologyPlacement::Host => graph(false, None),
        TopologyPlacement::Auto if options.cache == CachePolicy::None => graph(false, None),
        // A policy that is named is not left out.
        TopologyPlacement::Auto if options.cache == CachePolicy::Auto && budget < min_cache => graph(false, None),
        TopologyPlacement::Auto | TopologyPlacement::Cached => {
            // Mapped until the cached graph has mapped the same arrays, so that they are pinned once.
            let on_host = Arc::new(graph(false, None)?);
            let reads = kind.reads();
            let others = peers(&kind.key, device, &options.peers)?;
            let streams = std::iter::once(device).chain(&others).map(|device| Stream::new(device, false));
            let streams = streams.collect::<Result<Vec<Stream>>>()?;
            let num_devices = streams.len();
            let mut budget = budget.min(options.cache_bytes.unwrap_or(u64::MAX));
            if options.topology_bytes.is_none() {
                for peer in &others {
                    budget = budget.min(peer.free_bytes()? / 2);
                }
            }
            // What the rows were ranked by, where this sampler selected them.
            let mut ranked: Option<Arc<[f32]>> = None;
            let mut select = || {
                let hotness = match hotness {
                    Some(hotness) => hotness.into(),
                    None => rank(context, device, options, &on_host, sources)?,
                };
                let rows = CsrRows { topology, hotness: &hotness, hops: &reads, num_devices, extra };
                let selected = match num_devices {
                    1 => select_of(&rows, budget),
                    _ => select_spread(&rows, budget),
                };
                let selected = selected.ok_or_else(|| {
                    let message = format!(
                        "{budget} bytes of topology_bytes and cache_bytes have no room for the tables by which cached rows \
                         are found; give {min_cache} or more, or topology host"
                    );
                    Error::setting(&kind.key, message)
                })?;
                let host_share = rows.share_besides(&selected);
                ranked = Some(hotness);
                CachedLists::new(&streams, topology, (selected, host_share), &request)
            };
            // Those of a given hotness are not shared.
            let lists = match hotness {
                Some(_) => Arc::new(select()?),
                None => lists::shared(&streams, topology, &request, select)?,
            };
            let mut cached = graph(false, Some(&lists))?;
            // Sizes that the user gives are kept.
            let is_planned = (options.topology_bytes, options.cache_bytes) == (None, None);
            if let Some(hotness) = ranked.filter(|_| is_planned) {
                let rows = CsrRows { topology, hotness: &hotness, hops: &reads, num_devices, extra };
                let timed = |graph| {
                    let shared = Arc::new(Shared::new(context, device, options, (graph, sources), false)?);
                    slope::batch_seconds(&shared)
                };
                let graph = Arc::new(cached);
                let (before, batch_seconds) = (timed(on_host)?, timed(Arc::clone(&graph))?);
                cached = Arc::into_inner(graph).expect("its workers have ended");
                let from_nothing = options.topology == TopologyPlacement::Auto && options.cache == CachePolicy::Auto;
                let _ = lists.curve.set(CacheCurve {
                    bytes: cached.bytes,
                    free_bytes: None,
                    build_seconds: start.elapsed().as_secs_f64(),
                    batch_seconds,
                    points: slope::points(&rows, &lists.selected, before - batch_seconds, from_nothing),
                });
            }
            cached.curve = lists.curve.get().cloned();
            Ok(cached)
        }
    }
}

/// Accesses of each CSR row in an epoch by the policy of the options: of the topology in host memory by the policies that score it,
/// of mini-batches that the device samples in advance with `auto` and pre-sampling.
fn rank(
    context: &BatchingContext,
    device: &Device,
    options: &Options,
    on_host: &Arc<Graph>,
    sources: Sources<'_>,
) -> Result<Arc<[f32]>> {
    let (topology, settings, kind) = (&context.dataset.topology, &context.settings, sources.kind);
    let epochs = match options.cache {
        CachePolicy::By(PolicyKind::PreSample { epochs }) => epochs.get(),
        CachePolicy::By(policy) => {
            let unscored = || {
                let message = format!(
                    "options: cache {policy}: it is not scored by the topology alone; give presample:K, or another policy"
                );
                Error::setting(&kind.key, message)
            };
            let policy = policy.policy(settings.seed).ok_or_else(unscored)?;
            return Ok(policy.score(topology, context.seeds.nodes(), settings)?.rows);
        }
        _ => options.presample_epochs,
    };
    let shared = Arc::new(Shared::new(context, device, options, (Arc::clone(on_host), sources), false)?);
    Ok(presample(&shared, epochs, options.presample_batches)?.rows)
}

impl Batching for CudaSampler {
    fn num_batches(&self) -> usize {
        self.shared.num_batches()
    }

    fn last_epoch(&self) -> u32 {
        self.shared.kind.last_epoch()
    }

    /// Where hot adjacency lists are cached by default: what other sizes of `topology_bytes` would save, by mini-batches timed with the
    /// topology on the host and with that cache.
    fn cache(&self) -> Option<CacheCurve> {
        let curve = self.shared.graph.curve.clone()?;
        Some(CacheCurve { free_bytes: self.shared.device.free_bytes().ok(), ..curve })
    }

    /// A worker is a few streams of the device; more host threads do not speed it up.
    fn worker(&self, threads: usize) -> Result<Box<dyn BatchingWorker>> {
        self.start(threads, None)
    }

    /// A worker of neighbour sampling alone.
    fn worker_with_given(
        &self,
        threads: usize,
        given: &Arc<dyn GivenNodes>,
    ) -> Option<Result<Box<dyn BatchingWorker>>> {
        let start = || check_given(&self.seeds).and_then(|()| self.start(threads, Some(Arc::clone(given))));
        (self.shared.kind.key == NEIGHBOR.key).then(start)
    }
}
