//! What a dataset has for a task: training examples, and targets to score by.

use std::sync::Arc;

use anyhow::bail;
use morphgl_graph_store::{Dataset, FeatureMatrix};
use morphgl_model_core::{LossKind, ModelSpec, Predicted, Task, targets_of};
use morphgl_platform::{SPLITMIX_STEP, splitmix64};
use morphgl_registry::{HostBatch, Targets};

use crate::{JobConfig, RunContext};

/// Number of random features of a graph without features whose links are learned.
const RANDOM_FEATURES: usize = 64;

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

    /// Its nodes.
    pub(crate) fn nodes(self, dataset: &Dataset) -> &[u32] {
        let splits = &dataset.splits;
        [&splits.train, &splits.valid, &splits.test][self as usize]
    }

    /// Whether a model of `task` can be scored by it: it has a node with a known target, or a pair.
    pub(crate) fn is_known(self, dataset: &Dataset, task: Task) -> bool {
        let nodes = self.nodes(dataset);
        match task {
            Task::Classify => dataset.any_labelled(nodes),
            Task::Multilabel | Task::Regress => num_known(dataset, nodes) > 0,
            Task::Link => self.num_pairs(dataset) > 0,
        }
    }

    /// Number of pairs of links; those of training are not scored.
    pub(crate) fn num_pairs(self, dataset: &Dataset) -> usize {
        match self {
            Split::Train => 0,
            Split::Valid => dataset.edges.valid_pairs().len(),
            Split::Test => dataset.edges.test_pairs().len(),
        }
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
    match task {
        Task::Classify if dataset.labels.is_none() => {
            let other = match dataset.target_dim() {
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
                bail!("{at}: the dataset has no targets, which --task {task} learns; import it with --targets FILE")
            };
            if !train.is_empty() && num_known(dataset, train) == 0 {
                let cure = "import the dataset with targets of its training nodes, or draw others by --split";
                bail!("{at}: none of the {} training nodes has a target; {cure}", train.len());
            }
            let is_label = |value: &&f32| value.is_nan() || **value == 0.0 || **value == 1.0;
            let other = targets.values().iter().find(|value| !is_label(value)).filter(|_| task == Task::Multilabel);
            if let Some(value) = other {
                bail!("{at}: a target is {value}, and --task multilabel learns labels of 0 and 1; give --task regress")
            }
        }
        Task::Link if dataset.train_pairs().is_empty() => {
            bail!("{at}: the graph has no edge to learn from; import one with edges")
        }
        Task::Classify | Task::Link => {}
    }
    Ok(())
}

/// The dataset as the task learns from it: [`with_pairs`] of links, else as it is.
pub(crate) fn dataset_for(task: Task, dataset: Arc<Dataset>, context: &RunContext) -> anyhow::Result<Arc<Dataset>> {
    if task == Task::Link { with_pairs(dataset, context) } else { Ok(dataset) }
}

/// The dataset as links are learned from it: training pairs listed once, and random features where it has none.
pub(crate) fn with_pairs(dataset: Arc<Dataset>, context: &RunContext) -> anyhow::Result<Arc<Dataset>> {
    let mut own = (*dataset).clone();
    let is_whole = own.edges.is_empty();
    if own.edges.train.is_none() {
        let pairs = own.train_pairs().into_owned();
        own.edges.train = Some(pairs.into_flattened().into());
    }
    let count = |n: usize| indicatif::HumanCount(n as u64);
    let [train, valid, test] = [own.train_pairs().len(), Split::Valid.num_pairs(&own), Split::Test.num_pairs(&own)];
    let unsplit = if is_whole { "; to score it, import the graph with --edge-split 0.85,0.05,0.1" } else { "" };
    context.remark(format_args!(
        "links: {} pairs to train on, {} to validate, {} to test{unsplit}",
        count(train),
        count(valid),
        count(test)
    ));
    if own.features.is_none() {
        context.remark(format_args!("the graph has no features: each node has {RANDOM_FEATURES} random ones"));
        own.features = Some(random_features(&own));
    }
    Ok(Arc::new(own))
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

/// Writes weights in inverse proportion to the training nodes of each class, with a mean of 1 over the nodes, where
/// `class_weights=balanced` asks for them. A class without a training node has weight 0.
pub(crate) fn balance(model: &mut ModelSpec, dataset: &Dataset) {
    const NAME: &str = "class_weights";
    let asked = model.loss_settings.get(NAME).and_then(|value| value.as_str()) == Some("balanced");
    let Some(labels) = dataset.labels.as_deref().filter(|_| asked && model.loss == LossKind::CrossEntropy) else {
        return;
    };
    let mut counts = vec![0u64; model.num_classes];
    let classes = dataset.splits.train.iter().filter_map(|&v| usize::try_from(labels[v as usize]).ok());
    classes.for_each(|class| counts[class] += 1);
    let all: u64 = counts.iter().sum();
    let present = counts.iter().filter(|count| **count > 0).count() as f64;
    let weight = |count: &u64| if *count == 0 { 0.0 } else { (all as f64 / (present * *count as f64)) as f32 };
    let text: Vec<String> = counts.iter().map(|count| weight(count).to_string()).collect();
    model.loss_settings.insert(NAME.to_string(), text.join(",").into());
}
