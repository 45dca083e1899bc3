//! Trained models: the options of commands that use one, and the memory that inference with all neighbours needs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use morphgl_graph_store::{Dataset, Schema};
use morphgl_model_core::{Fitting, ModelFile, ModelSpec};
use morphgl_platform::excerpt;
use morphgl_registry::{Error, Machine, Route, Training};

use super::batch::BatchArgs;
use super::data::{self, DataArgs};
use super::limits::{self, Known};
use super::ranks;
use super::run_dir::{self, Configured};
use super::show::{self, Show};
use super::usage::Usage;
use super::values;
use crate::admission::Excess;
use crate::build::label;
use crate::ranks::{Ranks, digest};
use crate::{Evaluation, JobConfig, OperatorBuilder, Plan, Problem, Process, RunContext, TrainingSpec, memory};

/// The options of a command that uses a trained model.
#[derive(Debug, Args)]
pub(crate) struct TrainedArgs {
    /// Model file that `morphgl train --save` wrote, or the directory of a run, whose dataset is used where none is given
    model: PathBuf,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    #[command(flatten)]
    pub(crate) batch: BatchArgs,
    /// Memory the whole program may use, for example 8GiB, the files of --mmap not counted [default: nine tenths of what is
    /// free]
    #[arg(help_heading = "Limits", long, value_name = "BYTES", value_parser = values::bytes)]
    pub(crate) memory: Option<u64>,
    /// Under mpirun, seconds after which a rank that others wait for counts as hanging, and all end
    #[arg(help_heading = "Limits", long, default_value = "300", value_name = "SECONDS", value_parser = values::seconds)]
    time_limit: Duration,
    /// What is not sampled as the run did whose model is used, in words.
    #[arg(skip)]
    pub(crate) sampled_as: Option<String>,
}

/// A trained model, and the dataset to use it on.
pub(crate) struct Trained {
    pub(crate) dataset: Arc<Dataset>,
    pub(crate) config: JobConfig,
    pub(crate) route: Route,
    pub(crate) training: Box<dyn Training>,
    pub(crate) inference: Inference,
    /// Names of the classes, where the model has them.
    pub(crate) class_names: Option<Vec<String>>,
}

impl TrainedArgs {
    /// Finds the model of a run directory, which is sampled for as the run did but for the options given, and joins the other ranks
    /// under `mpirun`, with which the cores are shared.
    pub(crate) fn enter<'a>(&mut self, process: &'a Process) -> anyhow::Result<Option<&'a Ranks>> {
        if let Some(configured) = Configured::of(&self.model)? {
            self.model = run_dir::model(&self.model);
            self.sampled_as = self.batch.sample_as(&configured.job.sampler);
            if self.data.dataset.is_none() && self.data.given.is_none() {
                let Configured { dataset, mmap, no_verify, .. } = configured;
                self.data = DataArgs { dataset, mmap, no_verify, ..self.data.clone() };
            }
        }
        let ranks = ranks::enter_to_infer(process, self.time_limit)?;
        if let Some(ranks) = ranks {
            self.batch.threads = Some(ranks.threads(self.batch.threads));
        }
        Ok(ranks)
    }

    /// Reads the model, opens the dataset, matches the two by the names of features and classes, and builds the training operator.
    /// Ranks have to have the same. Without `scores`, the dataset's labels are not read.
    pub(crate) fn open(&self, context: &RunContext, show: Show, scores: bool) -> anyhow::Result<Trained> {
        let batch = self.batch.resolve(context)?;
        let mut file = ModelFile::open(&self.model)?;
        let spec = file.spec()?;
        let schema = file.schema(&spec)?;
        let parameters = file.parameters(&spec)?;
        let memory = context.ranks().map_or(self.memory, |ranks| ranks.memory(self.memory));
        let (mut dataset, disk_bytes) = self.data.open_within(memory, &self.batch, context, show)?;
        let fitting = fit(&spec, &schema, &dataset, show)?;
        if let [first, ..] = &fitting.unknown_classes[..] {
            let (class, count) = (excerpt(first, 60), fitting.unknown_classes.len());
            if scores {
                anyhow::bail!(
                    "{}: {count} of its classes, such as {class:?}, are none of the model's; leave these labels empty and import it \
                     again, or train a model on it",
                    label(&dataset)
                );
            }
            show.say(format_args!(
                "{count} of the dataset's classes, such as {class:?}, are none of the model's: never predicted"
            ));
            dataset = Arc::new(Dataset { labels: None, num_classes: 0, ..(*dataset).clone() });
        }
        let (model, parameters) = fitting.apply(&spec, parameters)?;
        let config = batch.job(TrainingSpec { model, optimizer: Default::default() });
        let config = JobConfig { disk_bytes, ..config };
        let builder = OperatorBuilder { dataset: &dataset, config: &config, context };
        builder.check_weights()?;
        let (route, mut training) = builder.first_route()?;
        training.set_parameters(&parameters)?;
        if let Some(ranks) = context.ranks() {
            let mut facts = Ranks::facts(&dataset.name, &dataset.path.checksums())?;
            let model = serde_json::to_string(&config.spec.model)?;
            let fact = |name: &str, value: String| (name.to_string(), value);
            facts.push(fact("model", format!("{} of {model}", digest(&parameters))));
            facts.push(fact("training operator (--training)", route.training.to_string()));
            facts.push(fact("mini-batches", serde_json::to_string(&config.sampler)?));
            // From here on, all have their datasets in memory.
            ranks.check_same(&facts)?;
        }
        let needed = training.infer_bytes().map(|bytes| bytes + ranks::gathering_bytes(context));
        let inference = match disk_bytes {
            Some(_) => Inference::OnDisk,
            None => Inference::InMemory { needed, available: self.available_bytes(context) },
        };
        let class_names = fitting.class_names;
        Ok(Trained { dataset, config, route, training, inference, class_names })
    }

    /// The error for a mini-batch that exceeds the memory.
    pub(crate) fn too_little(&self, memory: u64, excess: Excess, config: &JobConfig) -> anyhow::Error {
        let (seeds, bytes) = (excess.seeds, show::bytes(excess.bytes));
        let why = format!("a mini-batch of {seeds} seeds takes the process to {bytes}");
        match (self.data.sizes(), self.data.held(config.disk_bytes)) {
            (Ok((sizes, ..)), Ok(held)) => limits::too_little(memory, &why, Known::Tried(excess, held), sizes, config),
            (Err(unknown), _) | (_, Err(unknown)) => unknown,
        }
    }

    /// Memory for inference.
    fn available_bytes(&self, context: &RunContext) -> u64 {
        match self.memory {
            Some(all) => all.saturating_sub(memory::anonymous()),
            None => {
                let of_rank = context.ranks().and_then(|ranks| ranks.memory(None));
                of_rank.unwrap_or_else(|| Machine::probe().available_bytes / 10 * 9)
            }
        }
    }
}

/// Matches a model with a dataset by the names of features and classes, and says what was matched otherwise than by position.
pub(crate) fn fit(spec: &ModelSpec, model: &Schema, dataset: &Dataset, show: Show) -> anyhow::Result<Fitting> {
    let schema = data::schema(dataset, show);
    let fitting = Fitting::new(spec, model, &schema, dataset.num_classes)
        .map_err(|error| Error { context: label(dataset), ..error })?;
    fitting.remarks.iter().for_each(|remark| show.say(remark));
    Ok(fitting)
}

/// The memory that inference with all neighbours needs.
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
    pub(crate) fn choose(&self, requested: Option<Evaluation>, show: Show) -> anyhow::Result<Evaluation> {
        Ok(match (requested, self.obstacle()) {
            (Some(Evaluation::Full), Some(why)) => {
                return Err(Usage::error(format!(
                    "--evaluation full: {why}; use sampled or none, or allow more memory"
                )));
            }
            (Some(requested), _) => requested,
            (None, None) => Evaluation::Full,
            (None, Some(why)) => {
                show.say(format_args!("evaluating on sampled mini-batches: {why}"));
                Evaluation::Sampled
            }
        })
    }

    /// Why inference is impossible, where it is.
    pub(crate) fn obstacle(&self) -> Option<String> {
        match *self {
            Self::OnDisk => {
                Some("the dataset is left on disk, and all neighbours of all nodes do not fit in memory".to_string())
            }
            Self::InMemory { needed: Some(needed), available } if needed > available => {
                let (needed, available) = (show::bytes(needed), show::bytes(available));
                Some(format!("all neighbours of all nodes take {needed} of memory, there are {available}"))
            }
            Self::InMemory { .. } => None,
        }
    }
}

/// Number of workers that fit in `available` bytes for sampled evaluation, beside those of the plan, which keep their memory;
/// `None` where all fit.
pub(crate) fn fewer_workers(problem: &Problem, plan: &Plan, available: u64) -> Option<usize> {
    let share = plan.schedule.shares.first()?;
    let route = problem.routes().iter().find(|r| r.keys == share.keys)?;
    // A worker has one mini-batch in the making, and one that waits.
    let each = route.bytes.worker + 2 * route.bytes.batched;
    usize::try_from(available / each.max(1)).ok().filter(|&n| n < share.workers)
}
