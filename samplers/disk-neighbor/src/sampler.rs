//! The operator: what all workers share.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, OnceLock};

use morphgl_graph_store::Dataset;
use morphgl_platform::direct::{Fetch, Method, Reader};
use morphgl_registry::{Batching, BatchingContext, BatchingWorker, Error, Result, SamplerSettings, SeedSet};
use morphgl_sampler_core::{Epochs, check_host, check_limits, weight_sum};

use crate::caches::{Caches, DiskGraph};
use crate::files::Files;
use crate::offsets::{self, Offsets};
use crate::options::Options;
use crate::stats::{Counters, Counts};
use prepare::Worker;

mod prepare;

/// Bytes that a seed takes in the orders, and beside its label.
const BYTES_A_SEED: u64 = Epochs::BYTES_A_SEED + 8;

/// Phase Batching by neighbour sampling of a graph on disk, `Batching_CPU+Disk_Neighbor`.
#[derive(Clone)]
pub struct DiskNeighbor(Arc<Shared>);

/// What all workers read.
pub(crate) struct Shared {
    pub(crate) dataset: Arc<Dataset>,
    pub(crate) settings: SamplerSettings,
    pub(crate) options: Options,
    pub(crate) files: Files,
    pub(crate) offsets: Offsets,
    pub(crate) caches: Caches,
    pub(crate) counters: Counters,
    /// Why a reader fell back to threads; empty as long as all have io_uring.
    refused: OnceLock<String>,
    /// Sum of each node's edge weights, where the graph has weights.
    pub(crate) weight_sums: Option<Vec<f32>>,
    pub(crate) num_nodes: u32,
    /// The seeds in ascending order, and the class of each, where the graph has labels.
    labels: Option<(Vec<u32>, Vec<i32>)>,
    pub(crate) epochs: Epochs,
}

impl DiskNeighbor {
    /// Builds the operator: opens the files, brings the offsets into memory where they fit, finds what is hot, and fills the caches.
    ///
    /// # Errors
    ///
    /// A place other than the host, unknown options, a dataset that was made in memory or whose edge weights lie on disk, what
    /// [`check_limits`] refuses, and files that cannot be read or whose content is impossible.
    ///
    /// # Complexity
    ///
    /// One pass over the offsets, and over the neighbours one a hop and one more (by inclusion probability), or one (by degree).
    pub fn new(context: &BatchingContext) -> Result<Self> {
        let BatchingContext { dataset, seeds, settings, gather, place, options } = context;
        check_host(place)?;
        let options = Options::parse(options)?;
        let weights = dataset.topology.weights();
        if weights.is_some_and(|w| w.is_mapped()) {
            let cure = "keep the dataset in memory, or import it without weights";
            let what = format!("{}: edge weights are not read from disk; {cure}", dataset.path.display());
            return Err(Error::setting("dataset", what));
        }
        let gather = *gather && dataset.features.as_ref().is_some_and(|f| f.row_bytes() > 0);
        let files = Files::open(dataset, gather, &options)?;
        let num_nodes = u32::try_from(files.indptr.len - 1).ok().filter(|&n| n < u32::MAX);
        let num_nodes = num_nodes.filter(|&n| n as usize == dataset.num_nodes());
        let num_nodes = num_nodes.ok_or_else(|| {
            let what = format!("{} offsets are not those of the dataset's nodes", files.indptr.len);
            files.indptr.wrong(0, what)
        })?;
        // Nothing that costs a pass over a file is begun for settings that cannot work.
        check_limits(num_nodes as usize, weights.is_some(), || 0, seeds, settings)?;
        let fixed = seeds.nodes().len() as u64 * BYTES_A_SEED + weights.map_or(0, |_| 4 * u64::from(num_nodes));
        let budget = options.memory_bytes.saturating_sub(fixed);
        let keep = 2 * Offsets::num_bytes_of(num_nodes as usize) <= budget;
        // Of a worker's size: smaller rings may be allowed where those are not.
        let refused = files.reader(&options)?.refused().map_or_else(OnceLock::new, |why| why.to_string().into());
        let mut reader = files.long_reader(&options)?;
        let (offsets, largest) = Offsets::load(&files.indptr, files.indices.len, &mut reader, keep)?;
        check_limits(num_nodes as usize, weights.is_some(), || largest, seeds, settings)?;
        let weight_sums = match weights {
            Some(weights) => Some(weight_sums(&files, weights, &mut reader)?),
            None => None,
        };
        let labels = labels(&files, dataset, seeds, &mut reader)?;
        let caches = if matches!(offsets, Offsets::Ram { .. }) {
            let graph =
                DiskGraph { indices: &files.indices, offsets: &offsets, num_nodes, reader: RefCell::new(reader) };
            let left = budget - offsets.num_bytes();
            Caches::new(&graph, &files, (seeds.nodes(), settings), options.hotness, left)?
        } else {
            Caches { by: "nothing", ..Caches::default() }
        };
        Ok(Self(Arc::new(Shared {
            dataset: Arc::clone(dataset),
            settings: settings.clone(),
            options,
            files,
            offsets,
            caches,
            counters: Counters::default(),
            refused,
            weight_sums,
            num_nodes,
            labels,
            epochs: Epochs::new(seeds, settings),
        })))
    }

    /// What all its workers did so far.
    pub fn counts(&self) -> Counts {
        let hits = self.0.caches.features.as_ref().map(|c| c.hits());
        self.0.counters.counts(hits.unwrap_or_default())
    }

    /// Bytes that offsets, orders, labels and caches take: at most [`Options::memory_bytes`] where that allows the orders and labels.
    pub fn num_bytes(&self) -> u64 {
        let shared = &*self.0;
        let seeds = shared.epochs.num_seeds() as u64;
        let sums = shared.weight_sums.as_ref().map_or(0, |s| 4 * s.len() as u64);
        shared.offsets.num_bytes() + shared.caches.num_bytes() + seeds * BYTES_A_SEED + sums
    }

    /// How reads are carried out: by threads, too, once a worker was refused io_uring.
    pub fn method(&self) -> Method {
        match self.0.options.method() {
            Some(method) => method,
            None if self.0.refused.get().is_some() => Method::Threads,
            None => Method::Ring,
        }
    }
}

/// A summary of what is cached and how the rest is read.
impl fmt::Debug for DiskNeighbor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { offsets, caches, files, options, num_nodes, .. } = &*self.0;
        let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
        write!(f, "reads by {}, {} in flight a worker", self.method(), options.depth)?;
        if let Some(why) = self.0.refused.get() {
            write!(f, " ({why})")?;
        }
        if !files.indices.file.is_direct() {
            f.write_str(", through the page cache (this file system has no direct reads)")?;
        }
        match offsets {
            Offsets::Ram { .. } => write!(f, "; offsets in memory, {}", mib(offsets.num_bytes()))?,
            Offsets::Disk { .. } => f.write_str("; offsets on disk")?,
        }
        let share = |held: usize| 100.0 * held as f64 / f64::from((*num_nodes).max(1));
        let (rows, features) = (caches.rows.as_ref(), caches.features.as_ref());
        let (rows, features) = (rows.map_or(0, |c| c.len()), features.map_or(0, |c| c.map().len()));
        write!(
            f,
            "; held by {}: rows of {:.1}% and features of {:.1}% of the nodes, {}",
            caches.by,
            share(rows),
            share(features),
            mib(caches.num_bytes())
        )
    }
}

/// The class of each seed, read once.
fn labels(
    files: &Files,
    dataset: &Dataset,
    seeds: &SeedSet,
    reader: &mut Reader,
) -> Result<Option<(Vec<u32>, Vec<i32>)>> {
    let Some(on_disk) = files.labels.as_ref().filter(|_| dataset.labels.is_some()) else { return Ok(None) };
    let mut nodes = seeds.nodes().to_vec();
    nodes.sort_unstable();
    let fetches: Vec<Fetch> = nodes.iter().zip(0..).map(|(&node, to)| Fetch { element: node.into(), to }).collect();
    let mut labels = vec![0i32; nodes.len()];
    on_disk.read(reader, &fetches, bytemuck::cast_slice_mut(&mut labels))?;
    let classes = dataset.num_classes as i32;
    if let Some(i) = labels.iter().position(|&l| l < -1 || l >= classes) {
        let what = format!("the label is {}, outside -1 (none) and 0..{classes}", labels[i]);
        return Err(on_disk.wrong(nodes[i].into(), what));
    }
    Ok(Some((nodes, labels)))
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
    /// Starts a worker's reads.
    pub(crate) fn reader(&self) -> Result<Reader> {
        let reader = self.files.reader(&self.options)?;
        if let Some(why) = reader.refused() {
            self.refused.get_or_init(|| why.to_string());
        }
        Ok(reader)
    }

    /// The class of a seed; `None` where the graph has no labels.
    pub(crate) fn label(&self, seed: u32) -> Option<i32> {
        let (nodes, labels) = self.labels.as_ref()?;
        nodes.binary_search(&seed).ok().map(|i| labels[i])
    }
}

impl Batching for DiskNeighbor {
    fn num_batches(&self) -> usize {
        self.0.epochs.num_batches()
    }

    fn worker(&self, threads: usize) -> Result<Box<dyn BatchingWorker>> {
        Ok(Box::new(Worker::new(Arc::clone(&self.0), threads)?))
    }
}
