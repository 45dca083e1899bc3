//! What a dataset has for a task: training examples, and targets to score by.

use std::sync::Arc;

use anyhow::bail;
use morphgl_graph_store::{Dataset, FeatureMatrix, PairTargets, TargetMatrix};
use morphgl_model_core::{Decoder, LossKind, ModelKind, ModelSpec, Predicted, Task, output_width, targets_of};
use morphgl_platform::{SPLITMIX_STEP, splitmix64};
use morphgl_registry::{HostBatch, Targets};

use crate::{JobConfig, RunContext};

/// Number of random features of a graph without features whose links or edges are learned.
const RANDOM_FEATURES: usize = 64;

/// What the examples of a mini-batch are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Examples {
    /// Nodes, or rows of the dataset's task, which are nodes at times.
    Nodes,
    /// Pairs that exist, and drawn ones that do not.
    Links,
    /// Pairs with a class, labels or values.
    Edges,
}

impl Examples {
    /// Those that a model learns from.
    pub(crate) fn of(model: &ModelSpec) -> Self {
        match model.task {
            Task::Link => Self::Links,
            _ if model.learns_edges() => Self::Edges,
            _ => Self::Nodes,
        }
    }

    /// The options that ask for them.
    pub(crate) fn option(self) -> &'static str {
        match self {
            Self::Nodes => "--on nodes",
            Self::Links => "--task link",
            Self::Edges => "--on edges",
        }
    }

    /// The option of an import that splits them.
    pub(crate) fn split_option(self) -> &'static str {
        if self == Self::Nodes { "--split 0.6,0.2,0.2" } else { "--edge-split 0.85,0.05,0.1" }
    }
}

/// One of the dataset's splits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Split {
    Train,
    Valid,
    Test,
}

impl Split {
    pub(crate) const ALL: [Split; 3] = [Split::Train, Split::Valid, Split::Test];

    /// `train`, `valid` or `test`.
    pub(crate) fn name(self) -> &'static str {
        ["train", "valid", "test"][self as usize]
    }

    /// Its nodes, or its rows of the dataset's task.
    pub(crate) fn nodes(self, dataset: &Dataset) -> &[u32] {
        let splits = &dataset.splits;
        [&splits.train, &splits.valid, &splits.test][self as usize]
    }

    /// Whether a model can be scored by it: it has a node or an edge with a known target, or a pair.
    pub(crate) fn is_known(self, dataset: &Dataset, model: &ModelSpec) -> bool {
        let nodes = self.nodes(dataset);
        match (model.task, Examples::of(model)) {
            (Task::Classify, Examples::Edges) => {
                self.of_pairs(dataset).labels.iter().any(|l| l.iter().any(|&l| l >= 0))
            }
            (_, Examples::Edges) => {
                let values = self.of_pairs(dataset).values.iter();
                values.flat_map(|values| values.values().iter()).any(|value| !value.is_nan())
            }
            (Task::Classify, _) => dataset.any_labelled(nodes),
            (Task::Multilabel | Task::Regress, _) => num_known(dataset, nodes) > 0,
            (Task::Link, _) => self.num_examples(dataset, Examples::Links) > 0,
        }
    }

    /// Number of examples that can be scored; links of training are not.
    pub(crate) fn num_examples(self, dataset: &Dataset, examples: Examples) -> usize {
        match (examples, self) {
            (Examples::Nodes, _) => self.nodes(dataset).len(),
            (Examples::Links, Split::Train) => 0,
            _ => self.pairs(dataset).len(),
        }
    }

    /// Its pairs, as far as the dataset names them.
    pub(crate) fn pairs(self, dataset: &Dataset) -> &[[u32; 2]] {
        match self {
            Split::Train => dataset.edges.train.as_deref().unwrap_or_default().as_chunks().0,
            Split::Valid => dataset.edges.valid_pairs(),
            Split::Test => dataset.edges.test_pairs(),
        }
    }

    /// Number of the edge type of each of its pairs; none where pairs have no types, and of edges that the dataset does not list.
    pub(crate) fn types(self, dataset: &Dataset) -> &[u16] {
        dataset.edges.types[self as usize].as_deref().unwrap_or_default()
    }

    /// What is to be predicted of its pairs.
    pub(crate) fn of_pairs(self, dataset: &Dataset) -> &PairTargets {
        &dataset.edges.targets[self as usize]
    }
}

/// Number of `nodes` of which a target is known.
fn num_known(dataset: &Dataset, nodes: &[u32]) -> usize {
    let known = |&&v: &&u32| dataset.targets.iter().any(|targets| targets.row(v).iter().any(|value| !value.is_nan()));
    nodes.iter().filter(known).count()
}

/// Number of training examples: nodes, or pairs.
pub(crate) fn num_examples(dataset: &Dataset, config: &JobConfig) -> usize {
    match config.pairs {
        Some(_) => dataset.train_pairs().len(),
        None => dataset.splits.train.len(),
    }
}

/// Whether a mini-batch has anything to learn from.
pub(crate) fn has_examples(model: &ModelSpec, batch: &HostBatch) -> bool {
    match targets_of(model, batch) {
        Targets::Classes(labels) => labels.iter().any(|&label| label >= 0),
        Targets::Values(values) => values.iter().any(|value| !value.is_nan()),
        Targets::Pairs(pairs) => pairs.num_positives > 0,
        Targets::PairClasses(_, labels) => labels.iter().any(|&label| label >= 0),
        Targets::PairValues(_, values) => values.iter().any(|value| !value.is_nan()),
    }
}

/// Targets of nodes.
#[derive(Debug)]
pub(crate) enum NodeTargets {
    Classes(Vec<i32>),
    Values(Vec<f32>),
}

impl NodeTargets {
    /// Of these nodes, one after another.
    ///
    /// # Errors
    ///
    /// A dataset without what the task is scored by.
    pub(crate) fn of(dataset: &Dataset, task: Task, nodes: &[u32]) -> anyhow::Result<Self> {
        match (task, &dataset.labels, &dataset.targets) {
            (Task::Classify, Some(labels), _) => Ok(Self::Classes(nodes.iter().map(|&v| labels[v as usize]).collect())),
            (Task::Multilabel | Task::Regress, _, Some(targets)) => {
                Ok(Self::Values(nodes.iter().flat_map(|&v| targets.row(v)).copied().collect()))
            }
            (Task::Classify, ..) => bail!("{}: the dataset has no labels to evaluate with", dataset.name),
            _ => bail!("{}: the dataset has no targets to evaluate with; import it with --targets", dataset.name),
        }
    }

    /// What is predicted for the nodes from `first` to `last`.
    pub(crate) fn predicted<'a>(
        &'a self,
        outputs: &'a [f32],
        (first, last): (usize, usize),
        width: usize,
    ) -> Predicted<'a> {
        let outputs = &outputs[first * width..last * width];
        match self {
            Self::Classes(labels) => Predicted::new(outputs, &labels[first..last], width),
            Self::Values(values) => Predicted::of_values(outputs, &values[first * width..last * width], width),
        }
    }
}

/// Checks that a dataset, called `at` in errors, has what a model is trained on.
///
/// # Errors
///
/// No labels, targets or pairs, or none of a training node; labels of several that are neither 0 nor 1.
pub(crate) fn check(dataset: &Dataset, at: &str, config: &JobConfig) -> anyhow::Result<()> {
    let (task, train) = (config.spec.model.task, &dataset.splits.train);
    if config.spec.model.learns_edges() {
        return check_edges(dataset, at, &config.spec.model);
    }
    match task {
        Task::Classify if dataset.labels.is_none() => {
            let other = match dataset.target_dim() {
                _ if Split::Train.of_pairs(dataset).labels.is_some() => {
                    "it has labels of edges: learn them by --on edges"
                }
                0 => "import it with labels, or learn its links by --task link",
                _ => "it has targets: learn them by --task regress or --task multilabel, or import it with labels",
            };
            bail!("{at}: the dataset has no labels to train on; {other}")
        }
        Task::Classify if !train.is_empty() && !dataset.any_labelled(train) => {
            let cure = "import the dataset with labels of its training nodes, or draw others by --split";
            bail!("{at}: none of the {} training nodes has a label; {cure}", train.len())
        }
        Task::Multilabel | Task::Regress => {
            let Some(targets) = &dataset.targets else {
                if Split::Train.of_pairs(dataset).values.is_some() {
                    bail!("{at}: the dataset has targets of edges alone; learn them by --on edges")
                }
                bail!("{at}: the dataset has no targets, which --task {task} learns; import it with --targets FILE")
            };
            if !train.is_empty() && num_known(dataset, train) == 0 {
                let cure = "import the dataset with targets of its training nodes, or draw others by --split";
                bail!("{at}: none of the {} training nodes has a target; {cure}", train.len());
            }
            check_labels(at, task, targets)?;
        }
        Task::Link if dataset.train_pairs().is_empty() => {
            bail!("{at}: the graph has no edge to learn from; import one with edges")
        }
        Task::Classify | Task::Link => {}
    }
    Ok(())
}

/// Refuses labels that are neither 0 nor 1, where the task is multi-label.
fn check_labels(at: &str, task: Task, targets: &TargetMatrix) -> anyhow::Result<()> {
    let is_label = |value: &&f32| value.is_nan() || **value == 0.0 || **value == 1.0;
    let other = targets.values().iter().find(|value| !is_label(value)).filter(|_| task == Task::Multilabel);
    match other {
        Some(value) => {
            bail!("{at}: a target is {value}, and --task multilabel learns labels of 0 and 1; give --task regress")
        }
        None => Ok(()),
    }
}

/// As [`check`], of a model of edges.
fn check_edges(dataset: &Dataset, at: &str, model: &ModelSpec) -> anyhow::Result<()> {
    let task = model.task;
    let of_train = Split::Train.of_pairs(dataset);
    let (known, option) = match task {
        Task::Classify => (of_train.labels.is_some(), "--edge-label-column COLUMN"),
        _ => (of_train.values.is_some(), "--edge-target-columns COLUMNS"),
    };
    if !known {
        let what = if task == Task::Classify { "labels" } else { "targets" };
        bail!(
            "{at}: the dataset has no {what} of edges, which --task {task} --on edges learns; import it with {option}"
        )
    }
    if !Split::Train.is_known(dataset, model) {
        let count = Split::Train.pairs(dataset).len();
        bail!("{at}: none of the {count} training edges has a known target; draw others by --edge-split")
    }
    dataset
        .edges
        .targets
        .iter()
        .filter_map(|of_split| of_split.values.as_ref())
        .try_for_each(|values| check_labels(at, task, values))
}

/// Width of the outputs that a dataset, called `at` in errors, asks for.
///
/// # Errors
///
/// Edges that have no targets: a model of them would be one of nodes.
pub(crate) fn width(dataset: &Dataset, at: &str, task: Task, examples: Examples) -> anyhow::Result<usize> {
    let width = output_width(dataset, task, examples == Examples::Edges);
    if width == 0 && examples == Examples::Edges {
        let spec = ModelSpec { task, edge_outputs: 1, ..ModelSpec::new(ModelKind::Sage, 1, 1) };
        check_edges(dataset, at, &spec)?;
        bail!("{at}: no edge has a class; import it with --edge-label-column COLUMN");
    }
    Ok(width)
}

/// What of a dataset a model reads: nodes, links or edges as examples, and whether features of edges.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Learned {
    pub(crate) examples: Examples,
    pub(crate) kind: ModelKind,
    /// Whether its layers may read features of edges.
    pub(crate) edge_features: bool,
    /// Whether its decoder has a vector per edge type, where pairs have types.
    pub(crate) relations: bool,
}

impl Learned {
    pub(crate) fn of(model: &ModelSpec) -> Self {
        Self {
            examples: Examples::of(model),
            kind: model.kind,
            edge_features: model.reads_edges(),
            relations: model.relations > 0,
        }
    }
}

/// The dataset as a model learns from it: [`with_pairs`] of links and edges, and without features of edges that the model does not read.
pub(crate) fn dataset_for(
    learned: Learned,
    dataset: Arc<Dataset>,
    context: &RunContext,
) -> anyhow::Result<Arc<Dataset>> {
    let Learned { examples, kind, edge_features, .. } = learned;
    let dataset = match dataset.edge_features.is_empty() || edge_features && !edge_widths(kind, &dataset).is_empty() {
        true => dataset,
        false => {
            if !ModelSpec::can_read_edges(kind) {
                context.remark(format_args!("{kind} reads no features of edges; gat, gin and rgat do"));
            } else if edge_features {
                let cure = if kind.is_typed() { "gat and gin do" } else { "rgat does" };
                context.remark(format_args!("{kind} does not read this graph's features of edges; {cure}"));
            }
            Arc::new((*dataset).clone().without_edge_features())
        }
    };
    if examples == Examples::Nodes { Ok(dataset) } else { with_pairs(dataset, learned, context) }
}

/// Width of the features of each edge type that a model of this kind reads; empty where it reads none.
fn edge_widths(kind: ModelKind, dataset: &Dataset) -> Vec<usize> {
    // A model without parameters per edge type reads the features of one type.
    let readable = if kind.is_typed() { dataset.topology.types().is_some() } else { dataset.edge_features.len() == 1 };
    if !ModelSpec::can_read_edges(kind) || !readable {
        return Vec::new();
    }
    dataset.edge_features.iter().map(|features| features.as_ref().map_or(0, FeatureMatrix::dim)).collect()
}

/// Whether a decoder has a vector for each edge type of a dataset's links.
fn has_relations(decoder: Decoder, dataset: &Dataset) -> bool {
    decoder == Decoder::DistMult && dataset.edges.have_types(&dataset.topology)
}

/// The dataset as links or edges are learned from it: training pairs listed once, and random features where it has none; a model that
/// has parameters per edge type has learned embeddings instead.
fn with_pairs(dataset: Arc<Dataset>, learned: Learned, context: &RunContext) -> anyhow::Result<Arc<Dataset>> {
    let Learned { examples, kind, relations, .. } = learned;
    let mut own = (*dataset).clone();
    if own.task_rows.take().is_some() {
        // Labels, targets and splits are those of the rows.
        let Dataset { labels, num_classes, targets, splits, .. } = Dataset::new("", own.topology.clone());
        own = Dataset { labels, num_classes, targets, splits, ..own };
    }
    let without_layers = kind == ModelKind::Embedding;
    let embeds = kind.is_typed() || without_layers || relations && own.edges.have_types(&own.topology);
    let is_whole = own.edges.is_empty();
    if own.edges.train.is_none() && examples == Examples::Links {
        let (pairs, types) = (own.train_pairs().into_owned(), own.train_pair_types().map(|types| types.into_owned()));
        own.edges.train = Some(pairs.into_flattened().into());
        own.edges.types[0] = types.map(Into::into);
    }
    let count = |n: usize| indicatif::HumanCount(n as u64);
    let [train, valid, test] = Split::ALL.map(|split| split.pairs(&own).len());
    let unsplit = if is_whole { "; to score it, import the graph with --edge-split 0.85,0.05,0.1" } else { "" };
    context.remark(format_args!(
        "{}: {} pairs to train on, {} to validate, {} to test{unsplit}",
        if examples == Examples::Links { "links" } else { "labelled edges" },
        count(train),
        count(valid),
        count(test)
    ));
    if without_layers && own.features.is_none() && own.topology.types().is_none() {
        let cure = "import it with types (import triples, import manifest), or with features";
        bail!("{}: the model {kind} has embeddings of graphs with types, and this one has none; {cure}", own.name)
    }
    if own.features.is_none() && own.features_by_type.is_empty() && !embeds {
        context.remark(format_args!("the graph has no features: each node has {RANDOM_FEATURES} random ones"));
        own.features = Some(random_features(&own));
    }
    Ok(Arc::new(own))
}

/// Gives a model the types of a dataset, where it is typed or its decoder has a vector per edge type, and inputs per node type, where
/// features are, or a model with types has none. These are as wide as hidden layers, or, without layers, as embeddings. It reads the features of edges that [`dataset_for`]
/// has left.
pub(crate) fn set_types(model: &mut ModelSpec, dataset: &Dataset) {
    model.edge_widths = edge_widths(model.kind, dataset);
    let by_type = &dataset.features_by_type;
    let relations = model.task == Task::Link && has_relations(model.decoder, dataset);
    let typed = model.kind.is_typed() || model.kind == ModelKind::Embedding || relations;
    (model.types, model.input_widths, model.relations) = (None, Vec::new(), 0);
    let Some(types) = dataset.topology.types().filter(|_| typed || !by_type.is_empty()) else { return };
    model.types = Some((**types).clone());
    if relations {
        model.relations = types.edge_types().len();
    }
    if dataset.features.is_none() {
        let width = |of_type: usize| by_type.get(of_type).and_then(Option::as_ref).map_or(0, FeatureMatrix::dim);
        model.input_widths = (0..types.node_types().len()).map(width).collect();
        model.in_dim = if model.kind == ModelKind::Embedding { model.num_classes } else { model.hidden };
    }
}

/// Features drawn from -1 to 1, a function of a node's number before any reordering.
fn random_features(dataset: &Dataset) -> FeatureMatrix {
    let row = |v: u32| {
        let key = u64::from(dataset.topology.draw_key(v)) * RANDOM_FEATURES as u64;
        (0..RANDOM_FEATURES as u64).map(move |i| mixed(key + i) as f32 / (1u64 << 31) as f32 - 1.0)
    };
    let data: Vec<f32> = (0..dataset.num_nodes() as u32).flat_map(row).collect();
    FeatureMatrix::F32 { data: data.into(), dim: RANDOM_FEATURES }
}

/// 32 random bits of a number: the upper half of SplitMix64's output of that number, from 0.
pub(crate) fn mixed(number: u64) -> u32 {
    (splitmix64(number.wrapping_add(1).wrapping_mul(SPLITMIX_STEP)) >> 32) as u32
}

/// Writes weights in inverse proportion to the training nodes or edges of each class, with a mean of 1 over them, where
/// `class_weights=balanced` asks for them. A class without any has weight 0.
pub(crate) fn balance(model: &mut ModelSpec, dataset: &Dataset) {
    const NAME: &str = "class_weights";
    let asked = model.loss_settings.get(NAME).and_then(|value| value.as_str()) == Some("balanced");
    if !asked || model.loss != LossKind::CrossEntropy {
        return;
    }
    let mut counts = vec![0u64; model.target_width()];
    let mut count = |label: i32| usize::try_from(label).into_iter().for_each(|class| counts[class] += 1);
    match (model.learns_edges(), &Split::Train.of_pairs(dataset).labels, &dataset.labels) {
        (true, Some(labels), _) => labels.iter().for_each(|&label| count(label)),
        (false, _, Some(labels)) => dataset.splits.train.iter().for_each(|&v| count(labels[v as usize])),
        _ => return,
    }
    let all: u64 = counts.iter().sum();
    let present = counts.iter().filter(|count| **count > 0).count() as f64;
    let weight = |count: &u64| if *count == 0 { 0.0 } else { (all as f64 / (present * *count as f64)) as f32 };
    let text: Vec<String> = counts.iter().map(|count| weight(count).to_string()).collect();
    model.loss_settings.insert(NAME.to_string(), text.join(",").into());
}
