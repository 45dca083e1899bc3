//! The operator, and the state that all workers share.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use morphgl_graph_store::{Dataset, FeatureMatrix};
use morphgl_hotness::{CachePolicy, Policy, PolicyKind, PreSample};
use morphgl_platform::direct::{Fetch, Method, Reader, Stats};
use morphgl_registry::{
    Batching, BatchingContext, BatchingWorker, Block, CacheCurve, Error, HostBatch, NeighborSettings, Result, RowSeeds,
    Sampling, SeedSet, TargetValues,
};
use morphgl_sampler_core::{Epochs, Pairs, SubRowEnds, TypedSettings, check_host, check_limits, make_room, weight_sum};

use crate::caches::{CacheMemory, Caches, Counted, check_memory};
use crate::files::Files;
use crate::graph::DiskGraph;
use crate::offsets::{self, Offsets};
use crate::options::Options;
use crate::rows::CachedRows;
use crate::stats::Counts;
use crate::typed::{HopFanouts, Typed};
use crate::{NEIGHBOR, TYPED};
use prepare::Worker;

mod prepare;

/// Bytes of the orders of two epochs, and of the seeds with their labels and targets, which pairs do not have.
fn bytes_of_seeds(dataset: &Dataset, seeds: &SeedSet) -> u64 {
    let known = if seeds.pairs().is_some() { 0 } else { 8 + 4 * dataset.target_dim() as u64 };
    seeds.num_examples() as u64 * (Epochs::BYTES_A_SEED + known)
}

/// Phase Batching by neighbour sampling of a graph on disk, `Batching_CPU+Disk_Neighbor` and `Batching_CPU+Disk_Typed`.
#[derive(Clone)]
pub struct DiskNeighbor(Arc<Shared>);

/// State of all workers.
pub(crate) struct Shared {
    pub(crate) dataset: Arc<Dataset>,
    pub(crate) hops: NeighborSettings,
    /// Sampling by edge type, where it is.
    pub(crate) typed: Option<Typed>,
    /// Seed of all randomness.
    pub(crate) seed: u64,
    pub(crate) options: Options,
    pub(crate) files: Files,
    pub(crate) offsets: Offsets,
    pub(crate) caches: Caches,
    /// Seconds that building the operator took.
    build_seconds: f64,
    counts: Mutex<Counts>,
    /// Why a reader fell back to threads; empty while all use io_uring.
    refused: OnceLock<String>,
    /// Sum of each node's edge weights, where the graph has weights.
    pub(crate) weight_sums: Option<Vec<f32>>,
    pub(crate) num_nodes: u32,
    known: OfSeeds,
    pub(crate) epochs: Epochs,
    /// The pairs, where the seeds are pairs.
    pub(crate) pairs: Option<Pairs>,
}

impl DiskNeighbor {
    /// Builds the operator: opens the files, loads the offsets if they fit, computes the hotness, measures what a hit saves by
    /// some hundred reads, and fills the caches.
    ///
    /// # Errors
    ///
    /// A place other than the host, settings of another kind of sampling, unknown options, a policy or a size of the caches
    /// that does not fit [`Options::memory_bytes`], a dataset that was made in memory or whose edge weights lie on disk, what
    /// [`check_limits`] refuses, and files that cannot be read or are invalid.
    ///
    /// # Complexity
    ///
    /// One pass over the offsets, what the policy takes to score the nodes (by inclusion probability per pass over the
    /// neighbours per hop, by pre-sampling the epochs without features), and one pass over the neighbours.
    pub fn new(context: &BatchingContext) -> Result<Self> {
        context.settings.neighbor()?;
        Self::build(context, Options::parse(&NEIGHBOR.key, &context.options)?)
    }

    /// Builds the operator that samples by edge type, as [`DiskNeighbor::new`].
    ///
    /// # Errors
    ///
    /// As [`DiskNeighbor::new`] and [`TypedSettings::new`].
    ///
    /// # Complexity
    ///
    /// As [`DiskNeighbor::new`], and one pass over the types of the edges.
    pub fn typed(context: &BatchingContext) -> Result<Self> {
        context.settings.custom(&morphgl_sampler_core::TYPED)?;
        Self::build(context, Options::parse(&TYPED.key, &context.options)?)
    }

    fn build(context: &BatchingContext, options: Options) -> Result<Self> {
        let start = Instant::now();
        let BatchingContext { dataset, seeds, settings, gather, place, .. } = context;
        check_host(place)?;
        let typed = match &settings.sampling {
            Sampling::Neighbor(_) => None,
            // The largest degree is not known yet.
            _ => Some(TypedSettings::of_degrees(context, 0)?),
        };
        let key = if typed.is_some() { &TYPED.key } else { &NEIGHBOR.key };
        let hops = typed.as_ref().map_or_else(|| settings.neighbor(), |typed| Ok(&typed.hops))?.clone();
        let weights = dataset.topology.weights();
        if weights.is_some_and(|w| w.is_mapped()) {
            let cure = "keep the dataset in memory, or import it without weights";
            let what = format!("{}: edge weights are not read from disk; {cure}", dataset.path.display());
            return Err(Error::setting("dataset", what));
        }
        let files = Files::open(dataset, *gather, typed.is_some(), &options)?;
        let num_nodes = u32::try_from(files.indptr.len - 1).ok().filter(|&n| n < u32::MAX);
        let num_nodes = num_nodes.filter(|&n| n as usize == dataset.num_nodes());
        let num_nodes = num_nodes.ok_or_else(|| {
            let what = format!("{} offsets are not those of the dataset's nodes", files.indptr.len);
            files.indptr.wrong(0, what)
        })?;
        // Invalid settings are refused before any pass over a file.
        check_limits(num_nodes as usize, weights.is_some(), || 0, seeds, settings)?;
        let by_node = u64::from(weights.is_some()) + u64::from(dataset.topology.draw_keys().is_some());
        let by_node =
            4 * by_node + seeds.pairs().map_or(0, |pairs| Pairs::bytes_per_node(&dataset.topology, pairs.settings()));
        let by_node = by_node + typed.as_ref().map_or(0, |typed| Typed::bytes_per_node(typed, &files));
        let fixed = bytes_of_seeds(dataset, seeds) + by_node * u64::from(num_nodes);
        let types = typed.is_some().then(|| dataset.topology.types()).flatten().map(|types| &**types);
        let ends = types.map_or(0, SubRowEnds::num_bytes_of);
        let widths: Vec<usize> = files.features.iter().map(|matrix| matrix.rows.unit).collect();
        let reserved = check_memory(key, &options, settings, (num_nodes, ends), fixed, &widths)?;
        let counted = match options.cache {
            CachePolicy::By(kind @ (PolicyKind::PreSample { epochs } | PolicyKind::Smoothed { epochs })) => {
                let counts = u64::from(num_nodes) * kind.bytes_per_node(settings);
                Some(presample(context, &options, counts, epochs.get())?)
            }
            _ => None,
        };
        let budget = options.memory_bytes.saturating_sub(fixed);
        let keep = 2 * Offsets::num_bytes_of(num_nodes as usize) <= budget;
        // A worker's reader is tried, since the kernel may allow only smaller rings.
        let refused = files.reader(&options)?.refused().map_or_else(OnceLock::new, |reason| reason.to_string().into());
        let mut reader = files.long_reader(&options)?;
        let (offsets, largest) = Offsets::load(&files.indptr, files.indices.len, &mut reader, keep)?;
        check_limits(num_nodes as usize, weights.is_some(), || largest, seeds, settings)?;
        let mut left = budget.saturating_sub(offsets.num_bytes());
        let keep = matches!(offsets, Offsets::Ram { .. }) && ends <= left.saturating_sub(reserved) / 2;
        let typed = typed.map(|_| -> Result<_> {
            let settings = TypedSettings::of_degrees(context, largest)?;
            Typed::new(settings, &files, &offsets, types, keep, &mut reader)
        });
        let typed = typed.transpose()?;
        left -= if keep { ends } else { 0 };
        let weight_sums = weights.map(|weights| weight_sums(&files, weights, &mut reader)).transpose()?;
        let pairs = seeds.pairs().map(|pairs| Pairs::new(&dataset.topology, pairs, settings.seed)).transpose()?;
        let known = OfSeeds::read(&files, dataset, seeds, &mut reader)?;
        let caches = if matches!(offsets, Offsets::Ram { .. }) {
            let sub_rows = types.zip(typed.as_ref().and_then(|typed: &Typed| typed.ends.as_ref()));
            let graph = DiskGraph {
                indices: &files.indices,
                offsets: &offsets,
                num_nodes,
                sub_rows,
                reader: RefCell::new(reader),
            };
            let least = if keep { ends + reserved } else { 0 };
            let memory = CacheMemory { budget: left, least, has_types: types.is_some() };
            let fanouts = HopFanouts { hops: &hops, typed: typed.as_ref().map(|typed| &typed.settings) };
            Caches::new(&graph, &files, (seeds.nodes(), settings, fanouts), &options, memory, counted)?
        } else if !matches!(options.cache, CachePolicy::Auto | CachePolicy::None) {
            let what =
                "64 rows have more than 2^32 edges: offsets stay on disk, and nothing is cached; give cache=auto";
            return Err(Error::setting(key, format!("cache={}: {what}", options.cache)));
        } else {
            Caches::empty()
        };
        Ok(Self(Arc::new(Shared {
            dataset: Arc::clone(dataset),
            hops,
            typed,
            seed: settings.seed,
            options,
            files,
            offsets,
            caches,
            build_seconds: start.elapsed().as_secs_f64(),
            counts: Mutex::default(),
            refused,
            weight_sums,
            num_nodes,
            known,
            epochs: Epochs::new(seeds, settings),
            pairs,
        })))
    }

    /// Statistics of all its workers so far.
    pub fn counts(&self) -> Counts {
        *self.0.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of offsets, orders, labels, targets, draw keys, types, times and caches: at most [`Options::memory_bytes`], or else all but offsets and
    /// caches.
    pub fn num_bytes(&self) -> u64 {
        let shared = &*self.0;
        let seeds = bytes_of_seeds(&shared.dataset, shared.epochs.seed_set());
        let pairs = shared.pairs.as_ref().map_or(0, Pairs::num_bytes);
        let sums = shared.weight_sums.as_ref().map_or(0, |s| 4 * s.len() as u64);
        let keys = shared.dataset.topology.draw_keys().map_or(0, |keys| 4 * keys.len() as u64);
        let typed = shared.typed.as_ref().map_or(0, Typed::num_bytes);
        typed + shared.offsets.num_bytes() + shared.caches.num_bytes() + seeds + pairs + sums + keys
    }

    /// The I/O method: threads, too, once a worker was refused io_uring.
    pub fn method(&self) -> Method {
        let refused = self.0.refused.get().map(|_| Method::Threads);
        self.0.options.method().or(refused).unwrap_or(Method::Ring)
    }
}

/// A summary of the caches and the I/O method.
impl fmt::Debug for DiskNeighbor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { offsets, caches, files, options, num_nodes, .. } = &*self.0;
        let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
        write!(f, "reads by {}, {} in flight per worker", self.method(), options.depth)?;
        if let Some(reason) = self.0.refused.get() {
            write!(f, " ({reason})")?;
        }
        if !files.indices.file.is_direct() {
            f.write_str(", through the page cache (this file system has no direct reads)")?;
        }
        match offsets {
            Offsets::Ram { .. } => write!(f, "; offsets in memory, {}", mib(offsets.num_bytes()))?,
            Offsets::Disk { .. } => f.write_str("; offsets on disk")?,
        }
        match &self.0.typed {
            Some(Typed { ends: Some(ends), .. }) => write!(f, "; edge types in memory, {}", mib(ends.num_bytes()))?,
            Some(_) if files.edge_types.is_some() => f.write_str("; edge types on disk")?,
            _ => {}
        }
        let share = |cached: usize| 100.0 * cached as f64 / f64::from((*num_nodes).max(1));
        let rows = share(caches.lists.as_ref().map_or(0, |c| c.map().len()));
        let features = share(caches.features.as_ref().map_or(0, CachedRows::max_rows).min(*num_nodes as usize));
        let (policy, size) = (caches.policy, mib(caches.num_bytes()));
        write!(f, "; cached by {policy}: rows of {rows:.1}% and features of {features:.1}% of the nodes, {size}")?;
        match &caches.slopes {
            Some(slopes) => write!(f, "; a hit saves {slopes}"),
            None => Ok(()),
        }
    }
}

/// Accesses in `epochs` epochs of the same mini-batches, counted by this sampler without caches and features; the counts take
/// `counts` bytes of its memory.
fn presample(context: &BatchingContext, options: &Options, counts: u64, epochs: u32) -> Result<Counted> {
    let memory_bytes = options.memory_bytes.saturating_sub(counts);
    let options = Options { cache: CachePolicy::None, cache_bytes: None, memory_bytes, ..options.clone() };
    let batching = DiskNeighbor::build(&BatchingContext { gather: false, ..context.clone() }, options)?;
    let policy = PreSample { batching: &batching, epochs, batches: None, threads: rayon::current_num_threads() };
    let hotness = policy.score(&context.dataset.topology, context.seeds.nodes(), &context.settings)?;
    Ok(Counted { hotness, batches: policy.num_counted() })
}

/// Labels and targets of the seeds, read when the operator is built.
#[derive(Debug, Default)]
pub(crate) struct OfSeeds {
    /// The seeds in ascending order, where the dataset has labels or targets: nodes, or rows of its task.
    examples: Vec<u32>,
    /// The class of each, where the graph has labels.
    labels: Vec<i32>,
    /// The targets of each, where the graph has any.
    targets: TargetValues,
}

impl OfSeeds {
    fn read(files: &Files, dataset: &Dataset, seeds: &SeedSet, reader: &mut Reader) -> Result<Self> {
        let are_known = dataset.task_rows.is_some() == seeds.rows().is_some();
        let labels = files.labels.as_ref().filter(|_| are_known && dataset.labels.is_some());
        let targets = files.targets.as_ref().filter(|_| are_known && dataset.targets.is_some());
        let mut known = Self::default();
        if seeds.pairs().is_some() || labels.is_none() && targets.is_none() {
            return Ok(known);
        }
        known.examples = seeds.rows().map_or(seeds.nodes(), RowSeeds::rows).to_vec();
        known.examples.sort_unstable();
        let fetch = |(&example, to): (&u32, u32)| Fetch { element: example.into(), to };
        let fetches: Vec<Fetch> = known.examples.iter().zip(0..).map(fetch).collect();
        if let Some(on_disk) = labels {
            known.labels.resize(fetches.len(), 0);
            on_disk.read(reader, &fetches, bytemuck::cast_slice_mut(&mut known.labels))?;
            let classes = dataset.num_classes as i32;
            if let Some(i) = known.labels.iter().position(|&l| l < -1 || l >= classes) {
                let what = format!("the label is {}, outside -1 (none) and 0..{classes}", known.labels[i]);
                return Err(on_disk.wrong(known.examples[i].into(), what));
            }
        }
        if let Some(on_disk) = targets {
            let TargetValues { width, values } = &mut known.targets;
            *width = dataset.target_dim();
            values.resize(fetches.len() * *width, 0.0);
            on_disk.read(reader, &fetches, bytemuck::cast_slice_mut(values))?;
            if let Some(i) = values.iter().position(|value| value.is_infinite()) {
                let what = format!("the target is {}; NaN stands for an unknown one", values[i]);
                return Err(on_disk.wrong(known.examples[i / *width].into(), what));
            }
        }
        Ok(known)
    }

    /// Sets labels and targets of a mini-batch of these seeds, where the dataset has any; those of pairs were set with them.
    pub(crate) fn set(&self, examples: &[u32], batch: &mut HostBatch) {
        if batch.pairs.is_some() {
            return;
        }
        let HostBatch { labels, targets, .. } = batch;
        labels.clear();
        targets.values.clear();
        targets.width = self.targets.width;
        for i in examples.iter().filter_map(|example| self.examples.binary_search(example).ok()) {
            labels.extend(self.labels.get(i));
            targets.values.extend_from_slice(&self.targets.values[i * targets.width..][..targets.width]);
        }
    }
}

/// Sum of each node's edge weights.
fn weight_sums(files: &Files, weights: &[f32], reader: &mut Reader) -> Result<Vec<f32>> {
    let (mut sums, mut start) = (Vec::new(), 0);
    offsets::each(&files.indptr, reader, &mut |i, offset| {
        if i > 0 {
            sums.push(weight_sum(&weights[start as usize..offset as usize]));
        }
        start = offset;
        Ok(())
    })?;
    Ok(sums)
}

impl Shared {
    /// Sets the ids of a block's edges, whose positions in the graph are `edges` in any order; `None` where edges have no features.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or an id is no row of the features of its edge type.
    pub(crate) fn read_edge_ids(&self, reader: &mut Reader, edges: &mut [Fetch], block: &mut Block) -> Result<()> {
        let Block { edge_ids, edge_types, .. } = block;
        let Some(on_disk) = &self.files.edge_ids else {
            *edge_ids = None;
            return Ok(());
        };
        edges.sort_unstable();
        let ids = edge_ids.get_or_insert_default();
        make_room(ids, edges.len());
        ids.resize(edges.len(), 0);
        let read = |reader: &mut Reader| on_disk.read(reader, edges, bytemuck::cast_slice_mut(ids));
        self.counted(reader, |counts| &mut counts.edge_types, read)?;
        let features = &self.dataset.edge_features;
        let rows_of = |edge: usize| {
            let edge_type = edge_types.as_ref().map_or(0, |types| usize::from(types[edge]));
            features.get(edge_type).and_then(Option::as_ref).map_or(usize::MAX, FeatureMatrix::num_rows)
        };
        // Edges whose types are not sampled have rows of any of the matrices.
        let is_checked = edge_types.is_some() || features.len() == 1;
        match edges.iter().find(|edge| is_checked && ids[edge.to as usize] as usize >= rows_of(edge.to as usize)) {
            None => Ok(()),
            Some(&Fetch { element, to }) => {
                let (id, rows) = (ids[to as usize], rows_of(to as usize));
                Err(on_disk.wrong(element, format!("row {id} of the edge's features, which have {rows}")))
            }
        }
    }

    /// Whether trees are bounded by time.
    pub(crate) fn is_bounded(&self) -> bool {
        self.typed.as_ref().is_some_and(|typed| Typed::is_bounded(&typed.settings))
    }

    /// Time of each node, where trees are bounded by time, and nodes have some.
    pub(crate) fn node_times(&self) -> Option<&[i64]> {
        self.typed.as_ref()?.node_times.as_deref()
    }

    /// A worker's reader.
    pub(crate) fn reader(&self) -> Result<Reader> {
        let reader = self.files.reader(&self.options)?;
        if let Some(reason) = reader.refused() {
            self.refused.get_or_init(|| reason.to_string());
        }
        Ok(reader)
    }

    /// Updates the statistics.
    pub(crate) fn count(&self, update: impl FnOnce(&mut Counts)) {
        update(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Runs `read`, and adds its reads to the statistics in `field`, and their time.
    pub(crate) fn counted(
        &self,
        reader: &mut Reader,
        field: fn(&mut Counts) -> &mut Stats,
        read: impl FnOnce(&mut Reader) -> Result<()>,
    ) -> Result<()> {
        let (before, start) = (reader.stats(), Instant::now());
        read(reader)?;
        let (read, took) = (reader.stats() - before, start.elapsed());
        self.count(|counts| {
            *field(counts) = *field(counts) + read;
            counts.reading += if read.reads > 0 { took } else { Duration::ZERO };
        });
        Ok(())
    }
}

impl Batching for DiskNeighbor {
    fn num_batches(&self) -> usize {
        self.0.epochs.num_batches()
    }

    fn last_epoch(&self) -> u32 {
        self.0.typed.as_ref().map_or(u32::MAX, |typed| typed.settings.last_epoch())
    }

    fn worker(&self, threads: usize) -> Result<Box<dyn BatchingWorker>> {
        Ok(Box::new(Worker::new(Arc::clone(&self.0), threads)?))
    }

    /// The curve over other sizes comes from the mini-batches made so far: it is empty before the first.
    fn cache(&self) -> Option<CacheCurve> {
        let Shared { caches, build_seconds, .. } = &*self.0;
        let (bytes, counts) = (self.num_bytes(), self.counts());
        let mean = |time: Duration| time.as_secs_f64() / counts.batches.max(1) as f64;
        let shape = caches.shape.as_ref().filter(|_| counts.batches > 0);
        let points = shape.map(|shape| shape.points(mean(counts.reading), bytes - caches.num_bytes()));
        Some(CacheCurve {
            bytes,
            free_bytes: None,
            build_seconds: *build_seconds,
            batch_seconds: mean(counts.preparing),
            points: points.unwrap_or_default(),
        })
    }
}
