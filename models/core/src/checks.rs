//! Checks of an operator's context, mini-batches and results. `key` is the operator's key, which prefixes the errors.

use std::sync::Arc;

use crate::{ModelKind, ModelSpec, Task, TrainingSpec};
use morphgl_graph_store::Dataset;
use morphgl_registry::{BatchId, Block, Error, HostBatch, Key, Place, Result, Score, Targets, TrainingContext};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::edges::{check_edge_features, refused_edges};
use crate::given::{BlockSizes, blocks_chain, check_given};
use crate::typed::check_types;

/// Checks the context of an operator that trains on the host and has no options.
///
/// # Errors
///
/// A place other than the host, an option, or a model that does not fit the dataset.
pub fn check_context(key: Key, context: &TrainingContext, spec: &TrainingSpec) -> Result<()> {
    if context.place != Place::Host {
        return Err(Error::setting(key, format!("it trains at host, not at {}", context.place)));
    }
    if context.options.as_object().map_or(!context.options.is_null(), |o| !o.is_empty()) {
        return Err(Error::setting(key, format!("it has no options; leave {} out", context.options)));
    }
    check_model(context, spec)
}

/// Checks that the widths of a model fit the dataset.
///
/// # Errors
///
/// A custom model, another feature width, or fewer classes than the dataset's.
pub fn check_model(context: &TrainingContext, spec: &TrainingSpec) -> Result<()> {
    if spec.model.kind == ModelKind::Custom {
        let what = "a custom model is trained by the operator that brings it alone; name that one, or give one of gcn, sage, gat, gin, mlp, rgcn, rsage, rgat, hgt";
        return Err(Error::setting("model.kind", what));
    }
    check_types(&spec.model, &context.dataset)?;
    check_edge_features(&spec.model, &context.dataset)?;
    let by_type = !spec.model.input_widths.is_empty();
    let dim = if by_type { spec.model.in_dim } else { context.dataset.feature_dim() };
    let classes = output_width(&context.dataset, spec.model.task, spec.model.learns_edges());
    if dim != spec.model.in_dim {
        let what = format!("it is {}, the dataset's features have {dim} columns; give {dim}", spec.model.in_dim);
        return Err(Error::setting("model.in_dim", what));
    }
    let (width, exact) = (spec.model.target_width(), matches!(spec.model.task, Task::Multilabel | Task::Regress));
    if classes > width || exact && classes != width {
        let what = format!("it is {width}, the dataset has {classes}; give {classes}");
        let field = if spec.model.learns_edges() { "model.edge_outputs" } else { "model.num_classes" };
        return Err(Error::setting(field, what));
    }
    Ok(())
}

/// Width of the outputs that a dataset asks for ([`ModelSpec::target_width`]): its number of classes or of targets, of edges or of nodes; 0
/// of links, whose embeddings may have any width.
pub fn output_width(dataset: &Dataset, task: Task, of_edges: bool) -> usize {
    match (task, of_edges) {
        (Task::Classify, false) => dataset.num_classes,
        (Task::Classify, true) => dataset.edges.num_classes(),
        (Task::Multilabel | Task::Regress, false) => dataset.target_dim(),
        (Task::Multilabel | Task::Regress, true) => dataset.edges.target_dim(),
        (Task::Link, _) => 0,
    }
}

/// Refuses models and losses of other crates, for operators with layers and losses of their own alone. The error names no operator:
/// it is the same for all.
///
/// # Errors
///
/// A model or loss that a crate submitted.
pub fn refuse_submitted(model: &ModelSpec) -> Result<()> {
    match model.submitted() {
        Some(what) => {
            let cure = "operators over burn alone train it; leave --training out, or link morphgl-training-cpu-burn";
            Err(Error::setting(what, cure))
        }
        None => Ok(()),
    }
}

/// Starts the thread pool of an operator.
///
/// # Errors
///
/// Zero threads, or the system cannot start them.
pub fn start_threads(key: Key, threads: usize) -> Result<Arc<ThreadPool>> {
    if threads == 0 {
        return Err(Error::setting(key, "it is given 0 threads; give it at least one"));
    }
    let pool = ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("train-{i}")).build();
    pool.map(Arc::new).map_err(|e| Error::failed(key, e))
}

/// [`check_inputs`] and [`check_targets`].
///
/// # Errors
///
/// As theirs.
pub fn check_batch<'a>(
    key: Key,
    model: &ModelSpec,
    batch: &'a HostBatch,
    dim: Option<usize>,
) -> Result<(&'a [Block], usize)> {
    let checked = check_inputs(key.clone(), model, batch, dim)?;
    check_targets(key, model, batch)?;
    Ok(checked)
}

/// Returns the blocks that a model reads, and the number of input rows of its first layer; `dim` is the width of the
/// features, whether they are in the mini-batch or resident at the operator.
///
/// # Errors
///
/// Missing features; features, blocks or degrees that do not fit the model; blocks that do not chain.
pub fn check_inputs<'a>(
    key: Key,
    model: &ModelSpec,
    batch: &'a HostBatch,
    dim: Option<usize>,
) -> Result<(&'a [Block], usize)> {
    let wrong = |what: String| Err(Error::setting(format!("{key}, {}", batch.id), what));
    // Input rows per node type are made where the model is trained.
    let Some(dim) = dim.or((!model.input_widths.is_empty()).then_some(model.in_dim)) else {
        return wrong("it has no features; let batching gather them, or transfer it first".to_string());
    };
    if dim != model.in_dim {
        return wrong(format!("its features have {dim} columns, the model reads {}", model.in_dim));
    }
    let blocks = if model.reads_graph() { &batch.blocks[..] } else { &[] };
    if model.reads_graph() && blocks.len() != model.layers {
        let (blocks, layers) = (blocks.len(), model.layers);
        return wrong(format!("it has {blocks} blocks for {layers} layers; give one fanout per layer"));
    }
    if let Some(refused) = refused_importance(model, blocks.iter().any(|block| block.importance)) {
        return wrong(refused);
    }
    if model.kind.is_typed()
        && blocks.iter().any(|block| block.edge_types.as_ref().map(Vec::len) != Some(block.num_edges()))
    {
        let kind = model.kind;
        return wrong(format!("a {kind} reads the types of edges, and it has none; sample with --sampler typed"));
    }
    if let Some(refused) = refused_edges(model, blocks) {
        return wrong(refused);
    }
    let rows = blocks.first().map_or(batch.num_seeds, |b| b.num_src);
    if let Some(features) = batch.features.as_ref().filter(|features| features.num_rows() < rows) {
        return wrong(format!("it has features of {} nodes, its blocks read {rows}", features.num_rows()));
    }
    if !blocks.is_empty() && batch.degrees.len() < rows {
        return wrong(format!("it has degrees of {} nodes, its blocks read {rows}", batch.degrees.len()));
    }
    let num_given = check_given(&key, model, batch.id, batch.given.as_deref().map(Into::into))?;
    if !blocks_chain(blocks.iter().map(BlockSizes::from), num_given, batch.num_seeds) {
        return wrong("its blocks do not feed one another; batch it again".to_string());
    }
    Ok((blocks, rows))
}

/// Checks what the model's loss reads of the seeds.
///
/// # Errors
///
/// Labels, values or pairs that are missing, or do not fit the model.
pub fn check_targets(key: Key, model: &ModelSpec, batch: &HostBatch) -> Result<()> {
    match wrong_targets(model, batch.num_seeds, batch.into()).or_else(|| wrong_values(model, batch)) {
        Some(what) => Err(Error::setting(format!("{key}, {}", batch.id), what)),
        None => Ok(()),
    }
}

/// What the model's loss reads of the seeds, or of their pairs.
pub fn targets_of<'a>(model: &ModelSpec, batch: &'a HostBatch) -> Targets<'a> {
    match (model.task, &batch.pairs) {
        (Task::Link, Some(pairs)) => Targets::Pairs(pairs),
        (Task::Classify, Some(pairs)) if model.learns_edges() => Targets::PairClasses(pairs, &batch.labels),
        (_, Some(pairs)) if model.learns_edges() => Targets::PairValues(pairs, &batch.targets.values),
        (Task::Multilabel | Task::Regress, _) => Targets::Values(&batch.targets.values),
        _ => Targets::Classes(&batch.labels),
    }
}

/// How much a mini-batch, in host memory or on a device, has of what losses read of its seeds.
#[derive(Debug, Clone, Copy)]
pub struct TargetLengths {
    /// Number of classes.
    pub labels: usize,
    /// Target values per seed.
    pub width: usize,
    /// Number of target values.
    pub values: usize,
    /// Number of pairs; `None` where the seeds are nodes.
    pub pairs: Option<usize>,
}

impl From<&HostBatch> for TargetLengths {
    fn from(batch: &HostBatch) -> Self {
        Self {
            labels: batch.labels.len(),
            width: batch.targets.width,
            values: batch.targets.values.len(),
            pairs: batch.pairs.as_ref().map(|pairs| pairs.ends.len()),
        }
    }
}

/// What is wrong with the lengths of what the model's loss reads of so many seeds.
pub fn wrong_targets(model: &ModelSpec, seeds: usize, lengths: TargetLengths) -> Option<String> {
    let (width, TargetLengths { labels, width: found, values, pairs }) = (model.target_width(), lengths);
    let (examples, what) = match pairs {
        None if model.learns_pairs() => {
            let learned = if model.learns_edges() { "edges" } else { "links" };
            return Some(format!("it has no pairs, from which {learned} are learned; batch it from pairs of nodes"));
        }
        Some(pairs) if model.learns_pairs() && pairs > 0 && seeds == 0 => {
            return Some(format!("it has {pairs} pairs and no seeds; batch it again"));
        }
        Some(pairs) if model.learns_edges() => (pairs, "pairs"),
        _ => (seeds, "seeds"),
    };
    match model.task {
        Task::Classify => (labels != examples).then(|| format!("it has {labels} labels for {examples} {what}")),
        Task::Multilabel | Task::Regress => (found != width || values != examples * width).then(|| {
            format!("it has {values} targets, {found} each, for {examples} {what}; the model has {width} each")
        }),
        Task::Link => None,
    }
}

/// What is wrong with the values of what the model's loss reads of a mini-batch's seeds or pairs.
fn wrong_values(model: &ModelSpec, batch: &HostBatch) -> Option<String> {
    let (seeds, width) = (batch.num_seeds, model.target_width());
    let ends = batch.pairs.iter().filter(|_| model.learns_pairs()).flat_map(|pairs| pairs.ends.as_flattened());
    if let Some(end) = ends.copied().find(|&end| end as usize >= seeds) {
        return Some(format!("it has a pair of seed {end}, there are {seeds}; batch it again"));
    }
    if let Some(pairs) = batch.pairs.as_ref().filter(|_| model.relations > 0) {
        let (types, count) = (&pairs.edge_types, pairs.ends.len());
        if types.len() != count {
            let cure = "train on a dataset whose pairs have types, or decode by dot";
            return Some(format!("it has edge types of {} of its {count} pairs; {cure}", types.len()));
        }
        if let Some(of) = types.iter().find(|of| usize::from(**of) >= model.relations) {
            return Some(format!("it has a pair of edge type {of}, the model has {}", model.relations));
        }
    }
    let label = batch.labels.iter().filter(|_| model.task == Task::Classify).find(|l| **l >= width as i32)?;
    let what = if model.learns_edges() { "pair" } else { "seed" };
    Some(format!("it has a {what} of class {label}, the model has {width} classes"))
}

/// Why a model does not train on mini-batches whose edges have `importance`: GCN and GIN scale rows to degrees.
pub fn refused_importance(model: &ModelSpec, importance: bool) -> Option<String> {
    let refused = importance && matches!(model.kind, ModelKind::Gcn | ModelKind::Gin);
    let kind = model.kind;
    refused.then(|| {
        format!("{kind} does not read the importance of sampled edges; train sage or gat, or sample otherwise")
    })
}

/// Checks that the loss of a mini-batch is finite.
///
/// # Errors
///
/// It is infinite or not a number.
pub fn check_loss(key: Key, id: BatchId, score: &Score) -> Result<()> {
    if score.loss_sum.is_finite() {
        return Ok(());
    }
    let what = "the loss is not a number; lower the learning rate, or look for huge features";
    Err(Error::failed(format!("{key}, {id}"), what))
}

/// The error of a step after which parameter `name` is not finite; `last` is the mini-batch accumulated last.
pub fn broken_parameter(key: Key, name: &str, last: Option<BatchId>) -> Error {
    let last = last.map_or_else(|| "gradients from outside".to_string(), |id| id.to_string());
    let what = format!("{name} is no longer a number; go back to a checkpoint and lower the learning rate");
    Error::failed(format!("{key}, step after {last}"), what)
}

/// The error of a step without accumulated gradients.
pub fn nothing_accumulated(key: Key) -> Error {
    Error::setting(key, "no gradient was accumulated since the last step; accumulate labelled seeds first")
}

#[cfg(test)]
mod tests;
