//! `morphgl train`: plan, train, evaluate.

use std::path::PathBuf;
use std::sync::Arc;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, Parser};

use super::{Invocation, Outcome};
use crate::RunContext;
use crate::session::{Session, SessionConfig, systems};
use crate::usage::Usage;

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl train                                             a generated graph, three-layer GraphSAGE
  morphgl train cora                                        until validation stops improving
  morphgl train --model mlp                                 the features alone, for comparison
  morphgl train cora --model gcn --fanouts=-1,-1 --hidden 16 --lr 0.01 --weight-decay 5e-4 --epochs 200
  morphgl train cora --optimizer adamw --lr 0.01 --lr-schedule cosine --warmup 5 --epochs 100 --clip-norm 1
  morphgl train products --fanouts 15,10,5 --run runs/products --patience 5
  morphgl train papers --memory 64GiB --cache inclusion:24GiB   from disk, hot rows cached
  morphgl train --machine a100 --run runs/simulated         in simulated time on a described machine; learns nothing
  morphgl train --as salient --machine a100                 by the plan and operators of SALIENT
  morphgl train --config runs/1/config.toml --run runs/2    trains as an earlier run did
  morphgl train --resume runs/products                      goes on after an interruption, a crash or a power failure
  morphgl train --resume runs/products --epochs 100         trains a run that is done for more epochs
  morphgl train --json | jq .test_accuracy")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) config: SessionConfig,
    /// Trains as a run did, whose RUN/config.toml is this file: its model, mini-batches, seed, operators and length; on its dataset
    /// where none is given. What says how and where it trains may be given: --plan, --run, --save, --epochs, --threads, --memory, …;
    /// and options of the sampler, such as --fanouts and --batch-size, which replace the run's
    #[arg(help_heading = "Training", id = "config", long = "config", value_name = "FILE", conflicts_with = "resume")]
    like: Option<PathBuf>,
    /// Continues the run in this directory from its last checkpoint, with its settings: the result is bit for bit that of
    /// training without interruption. --epochs may be raised; --save, --time-limit and --checkpoint-every may be given
    #[arg(help_heading = "Training", long, value_name = "DIR")]
    resume: Option<PathBuf>,
}

/// Options that may be given beside `--resume`: they do not change what is computed.
const FREE: [&str; 7] = ["resume", "epochs", "save", "time_limit", "checkpoint_every", "shard", "gradient_bucket"];

/// Options that may be given beside `--config`: where it trains, what it writes, and the sampler's, which replace the run's.
const FREE_OF_CONFIG: [&str; 35] = [
    "config",
    "machine",
    "dataset",
    "mmap",
    "no_verify",
    "epochs",
    "init",
    "plan",
    "shares",
    "exchange",
    "run",
    "save",
    "checkpoint_every",
    "time_limit",
    "gradient_bucket",
    "shard",
    "threads",
    "memory",
    "device_memory",
    "buffer",
    "profile_seconds",
    "fresh",
    "allow_staleness",
    "hot_ratio",
    "max_hot_ratio",
    "sampler",
    "sampler_option",
    "fanouts",
    "batch_size",
    "expansion",
    "weighted",
    "walks",
    "walk_length",
    "restart",
    "neighbors",
];

/// Refuses options that a resumed run takes from its directory, or a run from its --config; `matches` are those of the whole command
/// line.
pub(crate) fn refuse_options(matches: &ArgMatches) -> anyhow::Result<()> {
    let Some(matches) = matches.subcommand_matches("train") else { return Ok(()) };
    let given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    for (source, free, why) in [
        (
            "resume",
            &FREE[..],
            "a resumed run takes it from its directory; leave it out, or train anew with another --run directory",
        ),
        ("config", &FREE_OF_CONFIG, "--config says it; leave it out, or change it in a copy of the file"),
    ] {
        let command = Args::command();
        let is_other = |id: &str| given(id) && !free.contains(&id);
        let other = command.get_arguments().find(|arg| given(source) && is_other(arg.get_id().as_str()));
        if let Some(other) = other {
            let name = other.get_long().map_or_else(|| "DATASET".to_string(), |long| format!("--{long}"));
            return Err(Usage::error(format!("{name}: {why}")));
        }
    }
    Ok(())
}

pub(crate) fn run(args: &Args, call: &Invocation<'_>) -> anyhow::Result<Outcome> {
    if args.config.planning.as_system.as_deref() == Some(systems::LIST) {
        return Ok(super::systems::list());
    }
    let training = &args.config.training;
    let (limit, bucket) = (training.time_limit, training.gradient_bucket);
    let context = RunContext::of_ranks(call.process, call.stop.clone(), call.observer(), limit, bucket)?;
    let mut session = Session::new(context, args.config.clone());
    if let Some(dataset) = &call.dataset {
        session = session.on(Arc::clone(dataset));
    }
    if let Some(file) = &args.like {
        session = session.like(file)?;
    }
    let result = match &args.resume {
        None => session.train()?,
        Some(dir) => session.resume(dir)?,
    };
    let failed = result.is_interrupted();
    Ok(Outcome { failed, unwritten: result.unwritten, ..Outcome::new(result.text, result.json) })
}
