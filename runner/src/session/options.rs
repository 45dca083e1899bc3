//! What a session is asked for: one set of options for the command line, Python and Rust.

pub(crate) mod batch;
pub(crate) mod limits;
pub(crate) mod model;
pub(crate) mod optimizer;
pub(crate) mod plan;
pub(crate) mod staleness;
pub(crate) mod task;

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValue;
use clap::{Args, Command, FromArgMatches};
use morphgl_model_core::ScoreKind;

pub use batch::BatchOptions;
pub use limits::LimitOptions;
pub use model::ModelOptions;
pub use optimizer::OptimizerOptions;
pub use plan::PlanChoice;
pub use staleness::StalenessOptions;
pub use task::{On, PairOptions, TaskOptions};

use super::run_dir::checkpoints::Every;
use crate::values::{self, Cache};
use crate::{Evaluation, ExchangeKind, Shares};

/// All that a session is asked for. What is left open is chosen by measurement, or has the default that its documentation names.
///
/// Its fields are the options of `morphgl train`, whose help is their documentation.
#[derive(Debug, Clone, Args)]
pub struct SessionConfig {
    /// What is measured, and planned with.
    #[command(flatten)]
    pub planning: PlanningOptions,
    /// How long is trained, by which plan, and what is written.
    #[command(flatten)]
    pub training: TrainingOptions,
}

/// Where the dataset is.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Data")]
pub struct DataOptions {
    /// Directory of the dataset [default: a generated graph of 50,000 nodes]
    pub dataset: Option<PathBuf>,
    /// Map the dataset's files instead of reading them to memory
    #[arg(long, requires = "dataset")]
    pub mmap: bool,
    /// Skip checksums and the search for NaN features when opening the dataset
    #[arg(long, requires = "dataset")]
    pub no_verify: bool,
}

/// What is measured, and planned with.
#[derive(Debug, Clone, Args)]
pub struct PlanningOptions {
    /// Where the dataset is.
    #[command(flatten)]
    pub data: DataOptions,
    /// The model and its optimizer.
    #[command(flatten)]
    pub model: ModelOptions,
    /// Mini-batches, operators and threads.
    #[command(flatten)]
    pub batch: BatchOptions,
    /// Plans, and trains in simulated time, on a machine that is described, not measured: a TOML file, or one of those that come with
    /// MorphGL (`morphgl plan --machine list`; docs/machines.md). Nothing is learned on it
    #[arg(help_heading = "Mini-batches and machine", long, value_name = "FILE|NAME")]
    pub machine: Option<PathBuf>,
    /// Plans and trains as a system of the papers does, for example gnnlab: its plan, operators, buffer, caches and shares are set, and
    /// options that contradict them are refused. `morphgl plan --as list` prints the systems, and what each sets (docs/papers.md)
    #[arg(help_heading = "Mini-batches and machine", id = "as_system", long = "as", value_name = "NAME")]
    pub as_system: Option<String>,
    /// Approximate time budget of profiling, in seconds [default: about an epoch, 3 at most; where an epoch takes longer than
    /// that, choosing among training operators comes on top]
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds)]
    pub profile_seconds: Option<Duration>,
    /// Measures training operators anew: the choice of the last run on this dataset is not kept where they are equally fast
    #[arg(long)]
    pub fresh: bool,
    /// What operators cache, of a dataset on disk or for a device: auto, none, or the rows that a policy of `morphgl cache` ranks
    /// first; from disk also those read last (lru) or read again (sieve); and in at most how much memory, for example inclusion:2GiB. It is an error where nothing has a cache, or where
    /// the policy does not fit. --set KEY.cache=POLICY wins for one operator [default: auto]
    #[arg(help_heading = "Limits", long, value_name = "POLICY[:SIZE]", value_parser = values::cache)]
    pub cache: Option<Cache>,
    /// Limits of a plan.
    #[command(flatten)]
    pub limits: LimitOptions,
    /// Layer-split training.
    #[command(flatten)]
    pub split: StalenessOptions,
}

/// How long is trained, by which plan, and what is written.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Training")]
pub struct TrainingOptions {
    /// Number of epochs [default: until validation has not improved for 100 steps (at least 4 epochs), at most 2000 steps
    /// (at least 10 epochs); without validation 300 steps (at least 5 epochs)]
    #[arg(long)]
    pub epochs: Option<u32>,
    /// Stops after this many epochs without a better validation score
    #[arg(long)]
    pub patience: Option<u32>,
    /// What the best model and early stopping go by, on the validation nodes or pairs. Of classes: accuracy, loss,
    /// balanced-accuracy, macro-f1, micro-f1, roc-auc, average-precision, or a score of a linked crate, which `morphgl ops` lists; of
    /// labels: those but balanced-accuracy; of values: mae, rmse, r2, loss; of links: roc-auc, average-precision, mrr, hits@K,
    /// accuracy, loss, and among all nodes filtered-mrr, filtered-hits@K. All but accuracy and loss need --evaluation full [default: accuracy of classes, micro-f1 of labels, rmse
    /// of values, roc-auc of links; loss of labels and values on sampled mini-batches]
    #[arg(long)]
    pub score: Option<ScoreKind>,
    /// How to evaluate: with all neighbours, on sampled mini-batches, or not at all
    /// [default: full; sampled where that does not fit in memory, and with any --sampler but neighbor]
    #[arg(long, value_parser = values::one_of::<Evaluation, _>(["full", "sampled", "none"]))]
    pub evaluation: Option<Evaluation>,
    /// Epochs between evaluations [default: 1; without --epochs, as many as make 5 steps]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub evaluate_every: Option<u32>,
    /// The plan: auto has the minimum predicted epoch time, of one trainer, of all together or of devices with roles (several ways to prepare mini-batches
    /// at once only where that is 5% shorter), and one trainer plans again when durations change or epochs take a tenth longer than
    /// another plan promises; unified trains on the CPU and all devices together, or on all devices by the training operator that
    /// --training names, each on a share of every mini-batch; factored lets some devices sample and the others train; sequential, pipeline, device, paper, interleaved, or a file written by `morphgl plan --output`
    #[arg(long, default_value = "auto", value_name = "PLAN")]
    pub plan: PlanChoice,
    /// How --plan unified divides mini-batches: dynamic by the speeds of the trainers, measured in every step; static by those measured
    /// before training; or equal, with as many seeds for each. With static and equal, runs of a plan have the same bits [default: dynamic]
    #[arg(long, value_parser = values::one_of::<Shares, _>([
        PossibleValue::new("static"),
        PossibleValue::new("dynamic").alias("balanced"),
        PossibleValue::new("equal"),
    ]))]
    pub shares: Option<Shares>,
    /// What adds up the gradients of several trainers: NCCL between CUDA devices, where it is found and measured to be faster, else
    /// host memory; or one of the two [default: auto]
    #[arg(long, value_parser = values::one_of::<ExchangeKind, _>(["auto", "host", "nccl"]))]
    pub exchange: Option<ExchangeKind>,
    /// Seconds after which a phase of one mini-batch counts as hanging, and the run ends
    #[arg(long, default_value = "300", value_name = "SECONDS", value_parser = values::seconds)]
    pub time_limit: Duration,
    /// Ranks of MPI add up the gradients of the last layers while backward goes on, in buckets of so many bytes or more; 0: all
    /// gradients after backward [default: 128KiB]
    #[arg(long, value_name = "BYTES", value_parser = values::bytes_or_none)]
    pub gradient_bucket: Option<u64>,
    /// Writes config.toml, plan.json, status.json, metrics.jsonl, checkpoints, trace.json, report.html and model.safetensors
    /// into this directory
    #[arg(long, value_name = "DIR")]
    pub run: Option<PathBuf>,
    /// Under mpirun, divides the rows of the features among the ranks: each holds its part, and copies of the rows that a policy of
    /// `morphgl cache` ranks first, in at most so much memory, for example inclusion:1GiB; it reads all others from the ranks
    /// that hold them. Evaluation is then on sampled mini-batches
    #[arg(long, value_name = "POLICY:SIZE", num_args = 0..=1, value_parser = values::cache)]
    pub shard: Option<Option<Cache>>,
    /// Time or number of mini-batches between checkpoints within an epoch, for example 600s, 10m, 2h or 500b. Checkpoints
    /// between epochs are written too, as long as they take at most 1% of the time [default: 10m, and at most 1% of the time]
    #[arg(long, value_name = "INTERVAL")]
    pub checkpoint_every: Option<Every>,
    /// Starts from the parameters of this safetensors file, ours or a PyG `state_dict` saved as one
    #[arg(long, value_name = "FILE")]
    pub init: Option<PathBuf>,
    /// Writes the trained model to this safetensors file
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
}

/// Options as they are where none is given.
fn defaults<T: Args + FromArgMatches>() -> T {
    let command = T::augment_args(Command::new("defaults").no_binary_name(true));
    let matches = command.try_get_matches_from::<_, &str>([]).expect("no option is required");
    T::from_arg_matches(&matches).expect("the defaults are values")
}

macro_rules! defaults {
    ($($options:ty),+) => {
        $(impl Default for $options {
            fn default() -> Self {
                defaults()
            }
        })+
    };
}

defaults!(
    SessionConfig,
    DataOptions,
    PlanningOptions,
    TrainingOptions,
    ModelOptions,
    BatchOptions,
    LimitOptions,
    StalenessOptions
);
