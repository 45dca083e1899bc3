//! `morphgl generate`: seeded graphs, streamed to disk.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use morphgl_generate::{
    RelationalConfig, RelationalTask, RmatConfig, SbmConfig, TypedConfig, TypedFeatures, relational_to_disk,
    rmat_to_disk, sbm_to_disk, typed_to_disk,
};
use morphgl_graph_store::Dtype;

use super::budget::beside_program;
use super::show::{Show, Stages};
use super::{Outcome, info};
use crate::memory::small_pages;
use crate::usage::Usage;
use crate::values;

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    /// Degree-corrected stochastic block model: classes, power-law degrees, class-dependent features
    Sbm,
    /// Recursive matrix (Kronecker) graph: hubs and communities, as in Graph500
    Rmat,
    /// Typed block model of papers, authors, institutions and fields of study, with years, like ogbn-mag
    Typed,
    /// Relational database with times: orders and reviews that point at customers and products, as a typed graph
    Relational,
}

/// Node types of `typed` that have features.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum FeaturesOf {
    /// Papers alone
    Papers,
    /// Each type features of its own width: --dim of papers, then a half, a quarter, an eighth
    ByType,
    /// All nodes, in one matrix
    All,
}

/// What is to be predicted of `relational`.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Task {
    /// The class of a review's customer
    ReviewClass,
    /// The class of the product that a customer orders next: rows of a task, customers at days
    NextOrder,
}

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl generate sbm -o small                               the embedded default of `morphgl train`
  morphgl generate sbm -o big --nodes 2000000 --degree 50 --dim 100 --dtype f16 --classes 47
  morphgl generate rmat -o web --nodes 1048576 --degree 16 --symmetrise --seed 7
  morphgl generate typed -o mag --nodes 1939743 --dim 128 --dtype f16 --classes 349
  morphgl generate relational -o shop --nodes 200000 --degree 20
  morphgl generate relational -o orders --task next-order")]
pub(crate) struct Args {
    /// Kind of graph
    kind: Kind,
    /// Directory of the new dataset
    #[arg(short, long, value_name = "DATASET")]
    output: PathBuf,
    /// Number of nodes [default: 50,000 (sbm; typed and relational, of all types), 65,536 (rmat)]
    #[arg(long)]
    nodes: Option<u64>,
    /// sbm: mean number of neighbours [default: 15]; rmat, typed: edges drawn per node [default: 16, 10.9];
    /// relational: events per customer [default: 12]
    #[arg(long)]
    degree: Option<f64>,
    /// Number of classes
    #[arg(long, default_value_t = SbmConfig::default().classes)]
    classes: usize,
    /// Values a node's features have
    #[arg(long, default_value_t = SbmConfig::default().dim)]
    dim: usize,
    /// Stored type of the features: f32, f16, bf16 or u8
    #[arg(long, value_parser = values::feature_dtype, default_value = "f32")]
    dtype: Dtype,
    /// sbm: share of the edges whose ends are of one class; typed: of classes that go together; relational: of the events whose
    /// product is of the class of their customer [default: 0.65]
    #[arg(long)]
    homophily: Option<f64>,
    /// Length scale of the class means of the features, where the noise has deviation 1
    #[arg(long, default_value_t = SbmConfig::default().signal)]
    signal: f64,
    /// rmat: store each edge in both directions (all others always do)
    #[arg(long)]
    symmetrise: bool,
    /// typed: nodes that have features [default: papers]
    #[arg(long, value_enum)]
    features: Option<FeaturesOf>,
    /// relational: what is to be predicted [default: review-class]
    #[arg(long, value_enum)]
    task: Option<Task>,
    /// Shares of training, validation and test nodes; typed: of papers, relational: of reviews or the task's rows, by time
    #[arg(long, value_parser = values::fractions, default_value = "0.6,0.2,0.2")]
    split: [f64; 3],
    /// Seed of everything
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Memory to stay within, for example 512MiB; too little is refused
    #[arg(long, value_parser = values::bytes, default_value = "2GiB")]
    memory: u64,
    /// Replace a dataset that exists
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(args: &Args, show: Show) -> anyhow::Result<Outcome> {
    if matches!(args.kind, Kind::Rmat) && args.homophily.is_some() {
        return Err(Usage::error("--homophily: rmat does not read it; leave it out"));
    }
    if !matches!(args.kind, Kind::Typed) && args.features.is_some() {
        return Err(Usage::error("--features: typed alone reads it; leave it out"));
    }
    if !matches!(args.kind, Kind::Relational) && args.task.is_some() {
        return Err(Usage::error("--task: relational alone reads it; leave it out"));
    }
    if matches!(args.kind, Kind::Typed | Kind::Relational) && args.symmetrise {
        return Err(Usage::error("--symmetrise: typed graphs have every edge in both directions; leave it out"));
    }
    let [train, valid, test] = args.split;
    let stages = Stages::new(show);
    let progress = |stage: &str, done: u64, total: u64| stages.set(stage, done, total);
    macro_rules! config {
        ($Config:ident { $($field:ident: $value:expr),* }) => {
            $Config {
                $($field: $value,)*
                nodes: args.nodes.unwrap_or($Config::default().nodes),
                classes: args.classes,
                dim: args.dim,
                dtype: args.dtype,
                signal: args.signal,
                seed: args.seed,
                train,
                valid,
                test,
                ..$Config::default()
            }
        };
    }
    let _pages = small_pages(args.memory);
    let path = match args.kind {
        Kind::Sbm => {
            let default = SbmConfig::default();
            let config = config!(SbmConfig {
                degree: args.degree.unwrap_or(default.degree),
                homophily: args.homophily.unwrap_or(default.homophily)
            });
            let memory = beside_program(args.memory, config.least_memory().map_err(usage)?)?;
            sbm_to_disk(&config, &args.output, memory, args.force, &progress)
        }
        Kind::Rmat => {
            let degree = args.degree.unwrap_or(RmatConfig::default().edge_factor);
            let config = config!(RmatConfig { edge_factor: degree, symmetrise: args.symmetrise });
            let memory = beside_program(args.memory, config.least_memory().map_err(usage)?)?;
            rmat_to_disk(&config, &args.output, memory, args.force, &progress)
        }
        Kind::Typed => {
            let default = TypedConfig::default();
            let config = config!(TypedConfig {
                degree: args.degree.unwrap_or(default.degree),
                homophily: args.homophily.unwrap_or(default.homophily),
                features: match args.features {
                    None | Some(FeaturesOf::Papers) => TypedFeatures::Papers,
                    Some(FeaturesOf::ByType) => TypedFeatures::ByType,
                    Some(FeaturesOf::All) => TypedFeatures::All,
                }
            });
            let memory = beside_program(args.memory, config.least_memory().map_err(usage)?)?;
            typed_to_disk(&config, &args.output, memory, args.force, &progress)
        }
        Kind::Relational => {
            let default = RelationalConfig::default();
            let config = config!(RelationalConfig {
                degree: args.degree.unwrap_or(default.degree),
                homophily: args.homophily.unwrap_or(default.homophily),
                task: match args.task {
                    None | Some(Task::ReviewClass) => RelationalTask::ReviewClass,
                    Some(Task::NextOrder) => RelationalTask::NextOrder,
                }
            });
            let memory = beside_program(args.memory, config.least_memory().map_err(usage)?)?;
            relational_to_disk(&config, &args.output, memory, args.force, &progress)
        }
    };
    let path = path.map_err(usage)?;
    stages.finish();
    info::describe(&path)
}

/// Reports a wrong argument as the option that sets it.
fn usage(error: morphgl_generate::Error) -> anyhow::Error {
    match error {
        // Fields have the names of their options, except one.
        morphgl_generate::Error::Argument { name, what, cure } => {
            let option = if name == "edge_factor" { "degree" } else { name };
            Usage::error(format!("--{option}: {what}; {cure}"))
        }
        other => other.into(),
    }
}
