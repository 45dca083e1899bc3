//! A trained model in use, and the memory that inference with all neighbours needs.

mod evaluate;
mod pairs;
mod predict;
mod read;
mod rows;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use morphgl_graph_store::{Dataset, NodeNames, Schema};
use morphgl_model_core::{Fitting, ModelFile, ModelSpec, Task, check_edge_features};
use morphgl_platform::excerpt;
use morphgl_registry::{Error, Machine, Route, SamplerSettings, Sampling, Training};

pub use self::evaluate::{Scores, SplitScore};
pub use self::pairs::{PairScores, Partners};
pub use self::predict::{Embeddings, Predicted, Predictions};
use super::data::{self, Source};
use super::options::batch::MiniBatches;
use super::options::limits::{self, Known};
use super::options::{BatchOptions, DataOptions};
use super::run_dir::{self, Configured};
use crate::admission::Excess;
use crate::build::label;
use crate::ranks::{Ranks, digest, gathering_bytes};
use crate::task::Learned;
use crate::usage::Usage;
use crate::{
    Evaluation, JobConfig, OperatorBuilder, Plan, Problem, RunContext, TrainingSpec, memory, task, values, words,
};

/// A trained model, the dataset to use it on, and limits.
#[derive(Debug, Clone, Args)]
pub struct InferenceConfig {
    /// Model file that `morphgl train --save` wrote, or the directory of a run, whose dataset is used where none is given
    pub model: PathBuf,
    /// Where the dataset is.
    #[command(flatten)]
    pub data: DataOptions,
    /// Mini-batches, operators and threads.
    #[command(flatten)]
    pub batch: BatchOptions,
    /// Memory the whole program may use, for example 8GiB, the files of --mmap not counted [default: nine tenths of what is
    /// free]
    #[arg(help_heading = "Limits", long, value_name = "BYTES", value_parser = values::bytes)]
    pub memory: Option<u64>,
    /// Under mpirun, seconds after which a rank that others wait for counts as hanging, and all end
    #[arg(help_heading = "Limits", long, default_value = "300", value_name = "SECONDS", value_parser = values::seconds)]
    pub time_limit: Duration,
}

impl InferenceConfig {
    /// The model in a file, or of the run in a directory, with all else by default.
    pub fn of(model: impl Into<PathBuf>) -> Self {
        Self {
            model: model.into(),
            data: DataOptions::default(),
            batch: BatchOptions::default(),
            memory: None,
            time_limit: Duration::from_secs(300),
        }
    }
}

/// A trained model on a dataset: scores its splits, and predicts classes.
#[derive(Debug)]
pub struct Trained {
    context: RunContext,
    options: InferenceConfig,
    given: Option<Arc<Dataset>>,
    /// How the run samples whose model this is.
    sampled: Option<SamplerSettings>,
    dataset: Arc<Dataset>,
    /// Names of the dataset's nodes, where its directory has them.
    names: Option<NodeNames>,
    config: JobConfig,
    route: Route,
    training: Box<dyn Training>,
    inference: Inference,
    /// Whether predictions are made on sampled mini-batches.
    predicts_sampled: bool,
    /// Names of the classes, where the model has them.
    class_names: Option<Vec<String>>,
    /// Names of the labels or values, where the model has them.
    target_names: Option<Vec<String>>,
}

impl Trained {
    /// Reads the model, opens the dataset, `given` or by the options, matches the two by the names of features and classes, and
    /// builds the training operator. Ranks have to have the same. With `scores`, a label of a class that the model lacks is refused;
    /// without, the dataset's labels are not read.
    ///
    /// # Errors
    ///
    /// Files that cannot be read, a dataset that does not fit the model, or no operator that has it; each names the option or file
    /// and the cure.
    pub fn open(
        context: &RunContext,
        mut options: InferenceConfig,
        given: Option<Arc<Dataset>>,
        scores: bool,
    ) -> anyhow::Result<Self> {
        let mut sampled = None;
        if let Some(configured) = Configured::of(&options.model)? {
            if let Some(machine) = &configured.job.machine {
                let (dir, machine) = (options.model.display(), &machine.name);
                return Err(Usage::error(format!(
                    "{dir}: the run was simulated on machine {machine} and learned nothing; train without --machine"
                )));
            }
            options.model = run_dir::model(&options.model);
            if options.data.dataset.is_none() && given.is_none() {
                let Configured { dataset, mmap, no_verify, .. } = configured;
                options.data = DataOptions { dataset, mmap, no_verify };
            }
            sampled = Some(configured.job.sampler);
        }
        let mut memory = options.memory;
        if let Some(ranks) = context.ranks() {
            options.batch.threads = Some(ranks.threads(options.batch.threads));
            memory = ranks.memory(memory);
        }
        let mut file = ModelFile::open(&options.model)?;
        let spec = file.spec()?;
        let batch =
            MiniBatches { run: sampled.as_ref(), ..MiniBatches::by(&options.batch, spec.kind) }.resolve(context)?;
        let schema = file.schema(&spec)?;
        let parameters = file.parameters(&spec)?;
        let source = Source::of(&options.data, given.as_ref());
        let (dataset, disk_bytes) = source.open_within(memory, options.batch.batching.as_ref(), context)?;
        let mut dataset = task::dataset_for(Learned::of(&spec), dataset, context)?;
        check_edge_features(&spec, &dataset)?;
        let fitting = fit(&spec, &schema, &dataset, context)?;
        if let [first, ..] = &fitting.unknown_classes[..] {
            let (class, count) = (excerpt(first, 60), fitting.unknown_classes.len());
            if scores {
                anyhow::bail!(
                    "{}: {count} of its classes, such as {class:?}, are none of the model's; leave these labels empty and import it \
                     again, or train a model on it",
                    label(&dataset)
                );
            }
            context.remark(format_args!(
                "{count} of the dataset's classes, such as {class:?}, are none of the model's: never predicted"
            ));
            dataset = Arc::new(Dataset { labels: None, num_classes: 0, ..(*dataset).clone() });
        }
        let (model, parameters) = fitting.apply(&spec, parameters)?;
        let config = batch.of(&dataset).job(TrainingSpec { model, optimizer: Default::default() });
        let config = JobConfig { disk_bytes, ..config };
        let builder = OperatorBuilder { dataset: &dataset, config: &config, context };
        builder.check_weights()?;
        let (route, mut training) = builder.first_route()?;
        training.set_parameters(&parameters)?;
        if let Some(ranks) = context.ranks() {
            let mut facts = Ranks::facts_of(&dataset)?;
            let model = serde_json::to_string(&config.spec.model)?;
            let fact = |name: &str, value: String| (name.to_string(), value);
            facts.push(fact("model", format!("{} of {model}", digest(&parameters))));
            facts.push(fact("training operator (--training)", route.training.to_string()));
            facts.push(fact("mini-batches", serde_json::to_string(&config.sampler)?));
            // From here on, all have their datasets in memory.
            ranks.check_same(&facts)?;
        }
        let needed = training.infer_bytes().map(|bytes| bytes + gathering_bytes(context));
        let inference = match disk_bytes {
            Some(_) => Inference::OnDisk,
            None => Inference::InMemory { needed, available: available_bytes(options.memory, context) },
        };
        let names = if options.data.dataset.is_some() { NodeNames::of(&dataset.path)? } else { None };
        Ok(Self {
            context: context.clone(),
            given,
            sampled,
            names,
            config,
            route,
            training,
            inference,
            predicts_sampled: false,
            class_names: fitting.class_names,
            target_names: schema.targets,
            dataset,
            options,
        })
    }

    /// From now on predicts nodes, and embeds the ends of pairs, as `evaluation` says: with all neighbours, the default, or on sampled
    /// mini-batches. Rows of a task are always sampled.
    ///
    /// # Errors
    ///
    /// No evaluation at all, or all neighbours of rows of a task.
    pub fn predict_by(&mut self, evaluation: Evaluation) -> anyhow::Result<()> {
        match evaluation {
            Evaluation::None => return Err(Usage::error("--evaluation none: predictions are full or sampled")),
            Evaluation::Full if self.predicts_rows() => {
                let why = "rows of a task are predicted within their times, which all neighbours are not";
                return Err(Usage::error(format!("--evaluation full: {why}; use sampled, or leave it out")));
            }
            _ => {}
        }
        self.predicts_sampled = evaluation == Evaluation::Sampled;
        Ok(())
    }

    /// How mini-batches are sampled, of a sampled evaluation.
    pub fn sampling(&self) -> &Sampling {
        &self.config.sampler.sampling
    }

    fn batch(&self) -> MiniBatches<'_> {
        let batch = MiniBatches::by(&self.options.batch, self.config.spec.model.kind).of(&self.dataset);
        MiniBatches { run: self.sampled.as_ref(), ..batch }
    }

    /// The error for a mini-batch that exceeds the memory.
    fn too_little(&self, memory: u64, excess: Excess) -> anyhow::Error {
        let (seeds, bytes) = (excess.seeds, words::bytes(excess.bytes));
        let why = format!("a mini-batch of {seeds} seeds takes the process to {bytes}");
        let (source, config) = (Source::of(&self.options.data, self.given.as_ref()), &self.config);
        match (source.sizes(), source.held(config.disk_bytes)) {
            (Ok((sizes, ..)), Ok(held)) => limits::too_little(memory, &why, Known::Tried(excess, held), sizes, config),
            (Err(unknown), _) | (_, Err(unknown)) => unknown,
        }
    }
}

/// Memory for inference, within `limit`.
fn available_bytes(limit: Option<u64>, context: &RunContext) -> u64 {
    match limit {
        Some(all) => all.saturating_sub(memory::anonymous()),
        None => {
            let of_rank = context.ranks().and_then(|ranks| ranks.memory(None));
            of_rank.unwrap_or_else(|| Machine::probe().available_bytes / 10 * 9)
        }
    }
}

/// Matches a model with a dataset by the names of features and classes, and says what was matched otherwise than by position.
pub(crate) fn fit(
    spec: &ModelSpec,
    model: &Schema,
    dataset: &Dataset,
    context: &RunContext,
) -> anyhow::Result<Fitting> {
    let schema = data::schema(dataset, spec, context);
    if let (Some(of_model), Some(of_dataset)) = (&model.targets, &schema.targets)
        && of_model != of_dataset
    {
        let [of_model, of_dataset] = [of_model, of_dataset].map(|names| names.join(","));
        anyhow::bail!(
            "{}: its targets are {}, those of the model {}; import it with --target-columns as the model has them",
            label(dataset),
            excerpt(&of_dataset, 200),
            excerpt(&of_model, 200)
        );
    }
    if let (Some(of_model), Some(of_dataset)) = (&model.classes, &schema.classes)
        && spec.learns_edges()
        && of_model != of_dataset
    {
        let [of_model, of_dataset] = [of_model, of_dataset].map(|names| names.join(","));
        anyhow::bail!(
            "{}: the classes of its edges are {}, those of the model {}; import it with the same classes",
            label(dataset),
            excerpt(&of_dataset, 200),
            excerpt(&of_model, 200)
        );
    }
    let classes = if spec.task == Task::Classify && !spec.learns_edges() { dataset.num_classes } else { 0 };
    let fitting =
        Fitting::new(spec, model, &schema, classes).map_err(|error| Error { context: label(dataset), ..error })?;
    fitting.remarks.iter().for_each(|remark| context.remark(remark));
    Ok(fitting)
}

/// The memory that inference with all neighbours needs.
#[derive(Debug)]
pub(crate) enum Inference {
    /// The dataset is on disk.
    OnDisk,
    /// Bytes needed, `None` where not known, and bytes available.
    InMemory { needed: Option<u64>, available: u64 },
}

impl Inference {
    /// The evaluation requested, else with all neighbours where they fit.
    ///
    /// # Errors
    ///
    /// All neighbours are requested and do not fit.
    pub(crate) fn choose(&self, requested: Option<Evaluation>, context: &RunContext) -> anyhow::Result<Evaluation> {
        Ok(match (requested, self.obstacle()) {
            (Some(Evaluation::Full), Some(why)) => {
                return Err(Usage::error(format!(
                    "--evaluation full: {why}; use sampled or none, or allow more memory"
                )));
            }
            (Some(requested), _) => requested,
            (None, None) => Evaluation::Full,
            (None, Some(why)) => {
                context.remark(format_args!("evaluating on sampled mini-batches: {why}"));
                Evaluation::Sampled
            }
        })
    }

    /// The same with as many more bytes needed.
    pub(crate) fn with(&self, more: u64) -> Self {
        match *self {
            Self::OnDisk => Self::OnDisk,
            Self::InMemory { needed, available } => {
                Self::InMemory { needed: needed.map(|needed| needed + more), available }
            }
        }
    }

    /// Why inference is impossible, where it is.
    pub(crate) fn obstacle(&self) -> Option<String> {
        match *self {
            Self::OnDisk => {
                Some("the dataset is left on disk, and all neighbours of all nodes do not fit in memory".to_string())
            }
            Self::InMemory { needed: Some(needed), available } if needed > available => {
                let (needed, available) = (words::bytes(needed), words::bytes(available));
                Some(format!("all neighbours of all nodes take {needed} of memory, there are {available}"))
            }
            Self::InMemory { .. } => None,
        }
    }
}

/// Number of workers for sampled evaluation that fit in `available` bytes, since the plan's own workers keep their memory meanwhile;
/// `None` where as many fit as the plan has.
pub(crate) fn fewer_workers(problem: &Problem, plan: &Plan, available: u64) -> Option<usize> {
    let share = plan.schedule.shares.first()?;
    let route = problem.routes().iter().find(|r| r.keys == share.keys)?;
    // A worker has one mini-batch in the making, and one that waits.
    let each = route.bytes.worker + 2 * route.bytes.batched;
    usize::try_from(available / each.max(1)).ok().filter(|&n| n < share.workers)
}
