//! Opening the dataset.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use indicatif::HumanCount;
use morphgl_generate::SbmConfig;
use morphgl_graph_store::{ArrayMeta, Dataset, DatasetPath, Load, Meta, OpenOptions, Schema};
use morphgl_model_core::{ModelSpec, Task};
use morphgl_plan::Time;
use morphgl_platform::excerpt;
use morphgl_registry::{At, Key, Machine};

use super::options::DataOptions;
use crate::sufficient::{PROGRAM, Sizes};
use crate::{RunContext, examples, words};

/// The dataset of a session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) options: &'a DataOptions,
    /// A dataset in memory, used instead of the directory that the options name.
    pub(crate) given: Option<&'a Arc<Dataset>>,
    /// Whether ranks divide the features (`--shard`): they are mapped, not loaded, and this process reads its part of the rows.
    pub(crate) divided: bool,
}

impl<'a> Source<'a> {
    /// A dataset of which this process has all rows.
    pub(crate) fn of(options: &'a DataOptions, given: Option<&'a Arc<Dataset>>) -> Self {
        Self { options, given, divided: false }
    }

    /// Opens the dataset, or generates the embedded default. A dataset that does not fit in memory, or that the batching
    /// operator reads from disk, is left on disk: then with the budget that its caches are profiled with, half of the memory less the program's own.
    pub(crate) fn open_within(
        self,
        memory: Option<u64>,
        batching: Option<&Key>,
        context: &RunContext,
    ) -> anyhow::Result<(Arc<Dataset>, Option<u64>)> {
        memory.into_iter().for_each(|bytes| context.limit_memory(bytes));
        let Some(path) =
            self.options.dataset.as_ref().filter(|_| !self.options.mmap && !self.divided && self.given.is_none())
        else {
            return Ok((self.open(context)?, None));
        };
        let directory = DatasetPath::open(path)?;
        let arrays = directory.meta().into_iter().flat_map(|meta| meta.arrays.values());
        let bytes: u64 = arrays.map(num_bytes).sum();
        let memory = memory.unwrap_or_else(|| Machine::probe().available_bytes / 10 * 9);
        let requested = match batching {
            Some(key) => context.registry().get(key)?.reads == At::Disk,
            None => false,
        };
        // A quarter of the memory is for the program, the model, a step and its mini-batches.
        if !requested && bytes <= memory / 4 * 3 {
            return Ok((self.open(context)?, None));
        }
        let start = Instant::now();
        let dataset = Arc::new(Dataset::load(directory, OpenOptions { load: Load::Disk, verify: false })?);
        let budget = memory.saturating_sub(PROGRAM) / 2;
        let why = if requested { "as requested" } else { "it does not fit" };
        let [bytes, memory, cached] = [bytes, memory, budget].map(words::bytes);
        context.remark(format_args!(
            "left on disk ({why}): {bytes} of dataset, {memory} of memory, {cached} of it for caches until it is planned"
        ));
        remark_on_times(&dataset, context);
        describe(&dataset, start, context);
        Ok((dataset, Some(budget)))
    }

    /// The dataset's sizes, width of features and number of classes, before it is opened.
    pub(crate) fn sizes(self) -> anyhow::Result<(Sizes, usize, usize)> {
        let of_memory = |dataset: &Dataset| Sizes {
            nodes: dataset.num_nodes() as u64,
            edges: dataset.topology.num_edges(),
            weighted: dataset.topology.weights().is_some(),
            edge_types: dataset.topology.types().map_or(1, |types| types.edge_types().len() as u64),
            row_bytes: dataset.features.as_ref().map_or(0, |f| (f.dim() * f.dtype().size()) as u64),
            bytes: 0,
            on_disk: false,
        };
        let Some(path) = self.options.dataset.as_ref().filter(|_| self.given.is_none()) else {
            if let Some(given) = self.given {
                return Ok((of_memory(given), given.feature_dim(), given.num_classes));
            }
            let SbmConfig { nodes, degree, classes, dim, dtype, .. } = SbmConfig::default();
            let (edges, row_bytes) = ((nodes as f64 * degree) as u64, (dim * dtype.size()) as u64);
            let bytes = nodes * (row_bytes + 16) + 4 * edges;
            let sizes = Sizes { nodes, edges, weighted: false, edge_types: 1, row_bytes, bytes, on_disk: false };
            return Ok((sizes, dim, classes));
        };
        let meta = Meta::read(path)?;
        let features = meta.arrays.get("features");
        let dim = features.and_then(|f| f.shape.get(1)).copied().unwrap_or(0);
        let bytes = if self.options.mmap { 0 } else { meta.arrays.values().map(num_bytes).sum() };
        let on_disk = !self.options.mmap && !self.divided;
        // Mini-batches from disk have features per node type, too.
        let num_types = if on_disk { meta.types.as_ref().map_or(0, |types| types.node_types().len()) } else { 0 };
        let by_type = (0..num_types).filter_map(|number| meta.arrays.get(&Meta::features_of(number)));
        let row_bytes = |array: &ArrayMeta| array.shape.get(1).copied().unwrap_or(0) * array.dtype.size() as u64;
        let sizes = Sizes {
            nodes: meta.num_nodes,
            edges: meta.num_edges,
            weighted: meta.arrays.contains_key("weights"),
            edge_types: meta.types.as_ref().map_or(1, |types| types.edge_types().len() as u64),
            row_bytes: features.into_iter().chain(by_type).map(row_bytes).max().unwrap_or(0),
            bytes,
            on_disk,
        };
        Ok((sizes, dim as usize, meta.num_classes))
    }

    /// Bytes of the dataset in memory, or of the caches of one on disk, at least.
    pub(crate) fn held(self, disk_bytes: Option<u64>) -> anyhow::Result<u64> {
        Ok(disk_bytes.map_or(self.sizes()?.0.bytes, |budget| budget / 2))
    }

    /// Opens the dataset, or generates the embedded default.
    pub(crate) fn open(self, context: &RunContext) -> anyhow::Result<Arc<Dataset>> {
        let start = Instant::now();
        let dataset = match &self.options.dataset {
            _ if let Some(given) = self.given => Arc::clone(given),
            Some(path) if self.divided => {
                let options = OpenOptions { load: Load::AllButFeatures, verify: !self.options.no_verify };
                Arc::new(Dataset::open(path, options)?)
            }
            Some(path) => open(path, self.options.mmap, !self.options.no_verify)?,
            None => Arc::new(crate::default_dataset()),
        };
        remark_on_times(&dataset, context);
        describe(&dataset, start, context);
        Ok(dataset)
    }
}

fn describe(dataset: &Dataset, start: Instant, context: &RunContext) {
    context.remark(format_args!(
        "{}: {} nodes, {} edges, {}, {} classes ({})",
        excerpt(&dataset.name, 200),
        HumanCount(dataset.num_nodes() as u64),
        HumanCount(dataset.topology.num_edges()),
        words::features(dataset),
        dataset.num_classes,
        Time(start.elapsed().as_secs_f64()),
    ));
    let (of, repeated) = (examples::noun(dataset), dataset.splits.num_repeated(dataset.num_examples()));
    if let Some(rows) = &dataset.task_rows {
        let (rows, split) = (HumanCount(rows.len() as u64), &dataset.splits);
        let [train, valid, test] =
            [&split.train, &split.valid, &split.test].map(|split| HumanCount(split.len() as u64));
        context.remark(format_args!(
            "task: {rows} rows, {train} to train on, {valid} to validate, {test} to test; none sees what is later than it"
        ));
    }
    if repeated > 0 {
        context.remark(format_args!("{}", overlap(repeated, of)));
    }
    let oversampled = dataset.splits.num_oversampled(dataset.num_examples());
    if oversampled > 0 {
        context.remark(format_args!("{}", morphgl_formats::oversampling(oversampled, dataset.splits.train.len(), of)));
    }
    if dataset.labels.is_none() {
        return;
    }
    let splits = &dataset.splits;
    for (name, nodes) in [("training", &splits.train), ("validation", &splits.valid), ("test", &splits.test)] {
        let labelled = dataset.num_labelled(nodes);
        if labelled < nodes.len() {
            let [labelled, nodes] = [labelled, nodes.len()].map(|n| HumanCount(n as u64));
            context.remark(format_args!("{labelled} of {nodes} {name} {of}s have a label; scores are of these alone"));
        }
    }
    let untrained = dataset.untrained_classes();
    if !untrained.is_empty() && !splits.train.is_empty() {
        let some = untrained.iter().take(8).map(usize::to_string).collect::<Vec<_>>().join(", ");
        let more = if untrained.len() > 8 { ", …" } else { "" };
        let count = HumanCount(untrained.len() as u64);
        context
            .remark(format_args!("classes without a training {of}, never predicted rightly: {count} ({some}{more})"));
    }
}

/// Says what of a timed graph is not read.
fn remark_on_times(dataset: &Dataset, context: &RunContext) {
    let topology = &dataset.topology;
    // Rows of a task are always sampled within times.
    if dataset.task_rows.is_none() && topology.node_times().or(topology.edge_times()).is_some() {
        context.remark(format_args!(
            "times bound what is sampled by --sampler typed --sampler-option temporal=uniform or last alone"
        ));
    }
}

fn open(path: &Path, mmap: bool, verify: bool) -> anyhow::Result<Arc<Dataset>> {
    let load = if mmap { Load::Mmap } else { Load::Ram };
    Ok(Arc::new(Dataset::open(path, OpenOptions { load, verify })?))
}

/// Maximum bytes of the names of features and classes in a model file, whose header has at most 16 MiB.
const MAX_NAMES: usize = 4 << 20;

/// Names of the features of an open dataset and of what a model predicts, and how the features were normalised; empty for
/// one made in memory.
pub(crate) fn schema(dataset: &Dataset, model: &ModelSpec, context: &RunContext) -> Schema {
    let task = model.task;
    let named = |meta: &Meta| match model.learns_edges() {
        true => meta.edge_schema(dataset.edges.num_classes()),
        false => meta.schema(),
    };
    let mut schema = dataset.path.meta().map(named).unwrap_or_default();
    schema.classes.take_if(|_| task != Task::Classify);
    schema.targets.take_if(|_| !matches!(task, Task::Multilabel | Task::Regress));
    let bytes: usize = [&schema.classes, &schema.features, &schema.targets]
        .into_iter()
        .flatten()
        .flatten()
        .map(|name| name.len() + 3)
        .sum();
    if bytes <= MAX_NAMES {
        return schema;
    }
    context.remark(format_args!(
        "names of features and classes take {}, at most {} are used: classes and features are known by number",
        words::bytes(bytes as u64),
        words::bytes(MAX_NAMES as u64)
    ));
    Schema { classes: None, features: None, targets: None, ..schema }
}

/// The remark on examples, nodes or rows as `of` says, that several splits have.
pub(crate) fn overlap(repeated: usize, of: &str) -> String {
    format!("{repeated} {of}s are in more than one split: their accuracy says nothing of unseen {of}s")
}

/// Bytes of an array's values.
pub(crate) fn num_bytes(array: &ArrayMeta) -> u64 {
    array.shape.iter().product::<u64>() * array.dtype.size() as u64
}
