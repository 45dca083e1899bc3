//! `morphgl evaluate`: scores a trained model.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use morphgl_model_spec::load_model;
use serde_json::json;

use super::Outcome;
use super::batch::BatchArgs;
use super::data::DataArgs;
use super::inference::MemoryArgs;
use super::planned;
use super::show::{self, Show};
use crate::budget::{self, Use};
use crate::{Evaluation, JobConfig, Sampled, Scores, TrainingSpec, evaluate};

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl train cora --save cora.safetensors && morphgl evaluate cora.safetensors cora
  morphgl evaluate model.safetensors products --evaluation sampled --fanouts 15,10,5
  morphgl evaluate model.safetensors papers --memory 8GiB      read from disk where it does not fit")]
pub(crate) struct Args {
    /// Model file that `morphgl train --save` or --run wrote
    model: PathBuf,
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    batch: BatchArgs,
    /// With all neighbours, or on sampled mini-batches [default: full; sampled where that does not fit in memory]
    #[arg(long, value_enum)]
    evaluation: Option<How>,
    #[command(flatten)]
    memory: MemoryArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum How {
    Full,
    Sampled,
}

pub(crate) fn run(args: &Args, show: Show) -> anyhow::Result<Outcome> {
    args.batch.limit_threads()?;
    let (model, parameters) = load_model(&args.model)?;
    args.batch.check_layers(model.layers)?;
    let (dataset, disk_bytes) = args.data.open_within(args.memory.memory, &args.batch, show)?;
    let config = planned::with_spec(TrainingSpec { model, optimizer: Default::default() }, &args.batch)?;
    let config = JobConfig { disk_bytes, ..config };
    let names = ["train", "valid", "test"];
    let splits = &dataset.splits;
    let sets: [&[u32]; 3] = [&splits.train, &splits.valid, &splits.test];
    if sets.iter().all(|s| s.is_empty()) {
        anyhow::bail!("{}: the dataset has no splits; import it with --split 0.6,0.2,0.2", dataset.name);
    }
    let registry = crate::registry()?;
    let (route, mut training) = crate::trained_route(&dataset, &config, &registry)?;
    training.set_parameters(&parameters)?;
    let asked = args.evaluation.map(|how| match how {
        How::Full => Evaluation::Full,
        How::Sampled => Evaluation::Sampled,
    });
    let Scores(scores) = match args.memory.inference(disk_bytes, training.as_ref()).choose(asked, show)? {
        Evaluation::Full => evaluate::full(training.as_mut(), &dataset, config.spec.model.num_classes, &sets)?,
        _ => {
            let gather = crate::brings_features(&config, &registry, &route);
            let mut transferring = crate::build_transferring(&dataset, &config, &registry, &route, gather)?;
            let mut sampled = Sampled {
                registry: &registry,
                route: &route,
                dataset: &dataset,
                settings: &config.sampler,
                gather,
                options: budget::options(&config, &registry, &route.batching, Use::Evaluation)?,
                workers: 0,
                threads: config.threads.unwrap_or(registry.machine().cores),
                // Mapped files count as held, and are not.
                memory: args.memory.memory.filter(|_| !args.data.mmap),
                transferring: transferring.as_mut(),
                training: training.as_mut(),
            };
            sampled.scores(&sets)?
        }
    };
    let present = || names.iter().zip(&scores).filter(|(_, s)| s.count > 0);
    let rows: Vec<Vec<String>> = present()
        .map(|(name, s)| {
            let accuracy = format!("{:.2}%", 100.0 * s.accuracy());
            vec![name.to_string(), show::number(s.count), accuracy, format!("{:.4}", s.loss())]
        })
        .collect();
    let json: serde_json::Map<String, serde_json::Value> = present()
        .map(|(name, s)| (name.to_string(), json!({ "nodes": s.count, "accuracy": s.accuracy(), "loss": s.loss() })))
        .collect();
    Ok(Outcome::new(show::table(&["split", "nodes", "accuracy", "loss"], &rows, &[0]), json.into()))
}
