//! `morphgl evaluate`: scores a trained model.

use std::sync::Arc;

use clap::Parser;
use indicatif::HumanCount;
use serde_json::{Map, Value, json};

use super::inference::{Trained, TrainedArgs};
use super::show::{self, Show};
use super::{Outcome, values};
use crate::budget::Purpose;
use crate::evaluate::{self, Sampled};
use crate::{Evaluation, MemoryLimit, OperatorBuilder, Process, RunContext, Stop};

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl train cora --save cora.safetensors && morphgl evaluate cora.safetensors cora
  morphgl evaluate runs/cora                                   the model of a run, on its dataset, sampled as it did
  morphgl evaluate model.safetensors products --evaluation sampled --fanouts 15,10,5
  morphgl evaluate model.safetensors papers --memory 8GiB      read from disk where it does not fit
  mpirun -n 4 morphgl evaluate model.safetensors products      each rank computes a part of every layer")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) trained: TrainedArgs,
    /// With all neighbours, or on sampled mini-batches [default: full; sampled where that does not fit in
    /// memory, and with --sampler shadow and walk]
    #[arg(long, value_parser = values::one_of::<Evaluation, _>(["full", "sampled"]))]
    evaluation: Option<Evaluation>,
}

pub(crate) fn run(args: &mut Args, (process, stop): (&Arc<Process>, &Stop), show: Show) -> anyhow::Result<Outcome> {
    let ranks = args.trained.enter(process)?;
    // MPI is initialized before operators are probed: drivers may start threads.
    let context = &RunContext::of(process, stop.clone())?;
    let show = ranks.map_or(show, |ranks| ranks.show(show));
    let Trained { dataset, config, route, mut training, inference, .. } = args.trained.open(context, show, true)?;
    args.trained.batch.check_sampling(&config.spec.model)?;
    let names = ["train", "valid", "test"];
    let splits = &dataset.splits;
    let sets: [&[u32]; 3] = [&splits.train, &splits.valid, &splits.test];
    if sets.iter().all(|s| s.is_empty()) {
        anyhow::bail!("{}: the dataset has no splits; import it with --split 0.6,0.2,0.2", dataset.name);
    }
    let requested = args.evaluation.or(args.trained.batch.evaluation());
    let mut evaluation = inference.choose(requested, show)?;
    let group = ranks.map(|ranks| &*ranks.group);
    if let Some(ranks) = ranks {
        let requested = requested.map_or("none".to_string(), |requested| format!("{requested:?}"));
        ranks.check_same(&[("--evaluation".to_string(), requested)])?;
        evaluation = ranks.agree_on_evaluation(evaluation)?;
    }
    let threads = config.num_threads(context.registry());
    let scores = match evaluation {
        Evaluation::Full => evaluate::full(training.as_mut(), &dataset, config.spec.model.num_classes, &sets, group)?,
        _ => {
            args.trained.sampled_as.iter().for_each(|how| show.say(how));
            let builder = OperatorBuilder { dataset: &dataset, config: &config, context };
            let mut transferring = builder.transferring(&route, builder.carries_features(&route))?;
            let mut sampled = Sampled {
                builder,
                purpose: Purpose::Evaluation,
                route: &route,
                workers: 0,
                threads,
                // The process's memory includes mapped files, which the limit does not.
                memory: args.trained.memory.filter(|_| !args.trained.data.mmap),
                transferring: transferring.as_mut(),
                training: training.as_mut(),
                group,
            };
            let first = sets.iter().find(|set| !set.is_empty()).expect("it was checked above");
            if let Some(limit) = sampled.memory
                && let Some(excess) =
                    sampled.admit(first, MemoryLimit { limit, peak: &|| context.memory().take_peak() })?
            {
                return Err(args.trained.too_little(limit, excess, &config));
            }
            sampled.scores(&sets)?
        }
    };
    let present = || names.iter().zip(&scores).zip(sets).filter(|(_, set)| !set.is_empty());
    // A split without labels has no score.
    let rows: Vec<Vec<String>> = present()
        .map(|((name, s), set)| {
            let (scored, nodes) = (HumanCount(s.count), HumanCount(set.len() as u64));
            let nodes = if s.count < set.len() as u64 { format!("{scored} of {nodes}") } else { nodes.to_string() };
            let value = |text: String| if s.count > 0 { text } else { "–".to_string() };
            let (accuracy, loss) = (format!("{:.2}%", 100.0 * s.accuracy()), format!("{:.4}", s.loss()));
            vec![name.to_string(), nodes, value(accuracy), value(loss)]
        })
        .collect();
    let mut json: Map<String, Value> = present()
        .map(|((name, s), set)| {
            let (accuracy, loss) = (s.accuracy(), s.loss());
            let score = json!({ "nodes": s.count, "unlabelled": set.len() as u64 - s.count, "accuracy": accuracy, "loss": loss });
            (name.to_string(), score)
        })
        .collect();
    let mut text = show::table(&["split", "nodes", "accuracy", "loss"], &rows, &[0]);
    let sampled_by = (evaluation == Evaluation::Sampled).then_some(&route.batching);
    text.extend(sampled_by.map(|by| format!("mini-batches sampled by {by}: {}\n", config.sampler.sampling)));
    json.insert("evaluation".to_string(), json!(evaluation));
    json.insert("sampled_by".to_string(), json!(sampled_by));
    if let Some(ranks) = ranks {
        let (of_ranks, words) = ranks.inference_summary(threads)?;
        json.insert("ranks".to_string(), of_ranks);
        text += &words;
    }
    Ok(Outcome::new(text, json.into()))
}
