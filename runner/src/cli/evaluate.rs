//! `morphgl evaluate`: scores a trained model.

use clap::Parser;
use indicatif::HumanCount;
use serde_json::{Map, Value, json};

use super::show;
use super::{Invocation, Outcome};
use crate::session::{InferenceConfig, Trained};
use crate::{Evaluation, RunContext, values};

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl train cora --save cora.safetensors && morphgl evaluate cora.safetensors cora
  morphgl evaluate runs/cora                                   the model of a run, on its dataset, sampled as it did
  morphgl evaluate model.safetensors products --evaluation sampled --fanouts 15,10,5
  morphgl evaluate model.safetensors papers --memory 8GiB      read from disk where it does not fit
  mpirun -n 4 morphgl evaluate model.safetensors products      each rank computes a part of every layer")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) trained: InferenceConfig,
    /// With all neighbours, or on sampled mini-batches [default: full; sampled where that does not fit in
    /// memory, and with any --sampler but neighbor]
    #[arg(long, value_parser = values::one_of::<Evaluation, _>(["full", "sampled"]))]
    evaluation: Option<Evaluation>,
}

pub(crate) fn run(args: &Args, call: &Invocation<'_>) -> anyhow::Result<Outcome> {
    let context = &RunContext::of_inference(call.process, call.stop.clone(), call.observer(), args.trained.time_limit)?;
    let mut trained = Trained::open(context, args.trained.clone(), call.dataset.clone(), true)?;
    let scores = trained.evaluate(args.evaluation)?;
    // A split without labels has no score.
    let rows: Vec<Vec<String>> = scores
        .splits
        .iter()
        .map(|split| {
            let (s, scored, nodes) = (split.score, HumanCount(split.score.count), HumanCount(split.nodes as u64));
            let nodes = if s.count < split.nodes as u64 { format!("{scored} of {nodes}") } else { nodes.to_string() };
            let value = |text: String| if s.count > 0 { text } else { "–".to_string() };
            let (accuracy, loss) = (format!("{:.2}%", 100.0 * s.accuracy()), format!("{:.4}", s.loss()));
            vec![split.split.to_string(), nodes, value(accuracy), value(loss)]
        })
        .collect();
    let score = |split: &crate::session::SplitScore| {
        let s = split.score;
        let unlabelled = split.nodes as u64 - s.count;
        json!({ "nodes": s.count, "unlabelled": unlabelled, "accuracy": s.accuracy(), "loss": s.loss() })
    };
    let mut json: Map<String, Value> =
        scores.splits.iter().map(|split| (split.split.to_string(), score(split))).collect();
    let mut text = show::table(&["split", "nodes", "accuracy", "loss"], &rows, &[0]);
    let sampling = trained.sampling();
    text.extend(scores.sampled_by.iter().map(|by| format!("mini-batches sampled by {by}: {sampling}\n")));
    json.insert("evaluation".to_string(), json!(scores.evaluation));
    json.insert("sampled_by".to_string(), json!(scores.sampled_by));
    if let Some((of_ranks, words)) = scores.ranks {
        json.insert("ranks".to_string(), of_ranks);
        text += &words;
    }
    Ok(Outcome::new(text, json.into()))
}
