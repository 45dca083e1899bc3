//! `morphgl evaluate`: scores a trained model.

use clap::Parser;
use indicatif::HumanCount;
use morphgl_model_core::{ClassCounts, ScoreKind, Task};
use serde_json::{Map, Value, json};

use super::show;
use super::{Invocation, Outcome};
use crate::session::{InferenceConfig, Scores, Trained};
use crate::usage::Usage;
use crate::{Evaluation, RunContext, values};

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl train cora --save cora.safetensors && morphgl evaluate cora.safetensors cora
  morphgl evaluate runs/cora                                   the model of a run, on its dataset, sampled as it did
  morphgl evaluate runs/cora --score macro-f1 --score roc-auc --classes     more scores, and those of each class
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
    /// Another score than accuracy and loss, one that `morphgl train --score` takes for the model's task; repeatable
    #[arg(long)]
    score: Vec<ScoreKind>,
    /// Precision, recall and F1 of each class, too
    #[arg(long)]
    classes: bool,
}

/// Precision, recall and F1 of each class, by split.
fn classes(scores: &Scores) -> anyhow::Result<String> {
    let mut rows = Vec::new();
    for split in &scores.splits {
        if scores.evaluation == Evaluation::Sampled && !scores.of_rows {
            return Err(Usage::error("--classes: sampled mini-batches keep no predictions; use --evaluation full"));
        }
        if split.classes.is_empty() {
            return Err(Usage::error(format!("--classes: a model of the task {} has none; leave it out", scores.task)));
        }
        for (class, counts) in split.classes.iter().enumerate() {
            let name = scores.class_names.as_ref().map_or(class.to_string(), |names| names[class].clone());
            let value = |of: fn(&ClassCounts) -> Option<f64>| of(counts).map_or("–".into(), |x| format!("{x:.4}"));
            let nodes = HumanCount(counts.nodes).to_string();
            let values = [ClassCounts::precision, ClassCounts::recall, ClassCounts::f1].map(value);
            rows.push([split.split.to_string(), name, nodes].into_iter().chain(values).collect());
        }
    }
    let of = if scores.of_rows { "rows" } else { "nodes" };
    Ok(show::table(&["split", "class", of, "precision", "recall", "F1"], &rows, &[0, 1]))
}

pub(crate) fn run(args: &Args, call: &Invocation<'_>) -> anyhow::Result<Outcome> {
    let context = &RunContext::of_inference(call.process, call.stop.clone(), call.observer(), args.trained.time_limit)?;
    let mut trained = Trained::open(context, args.trained.clone(), call.dataset.clone(), true)?;
    let scores = trained.evaluate(args.evaluation, &args.score)?;
    let accurate = scores.task != Task::Regress;
    // A split without labels has no score.
    let rows: Vec<Vec<String>> = scores
        .splits
        .iter()
        .map(|split| {
            let (s, scored, nodes) = (split.score, HumanCount(split.score.count), HumanCount(split.nodes as u64));
            let nodes = if s.count < split.nodes as u64 { format!("{scored} of {nodes}") } else { nodes.to_string() };
            let value = |text: String| if s.count > 0 { text } else { "–".to_string() };
            let (accuracy, loss) = (format!("{:.2}%", 100.0 * s.accuracy()), format!("{:.4}", s.loss()));
            let others = args.score.iter().zip(&split.values).map(|(kind, &of)| match of.is_nan() {
                true => "–".to_string(),
                false => kind.words(of),
            });
            let accuracy = accurate.then(|| value(accuracy));
            let sums = accuracy.into_iter().chain([value(loss)]);
            [split.split.to_string(), nodes].into_iter().chain(sums).chain(others).collect()
        })
        .collect();
    let score = |split: &crate::session::SplitScore| {
        let s = split.score;
        // A loss of pairs may count their negatives, too.
        let scored = s.count.min(split.nodes as u64);
        let unlabelled = split.nodes as u64 - scored;
        let scores: Map<String, Value> =
            args.score.iter().zip(&split.values).map(|(kind, value)| (kind.to_string(), json!(value))).collect();
        let mut json = json!({
            "nodes": scored, "unlabelled": unlabelled, "accuracy": accurate.then(|| s.accuracy()), "loss": s.loss(), "scores": scores,
        });
        if let Some(confusion) = split.confusion.as_ref().filter(|_| args.classes) {
            json["confusion"] = json!(confusion.rows().collect::<Vec<_>>());
        }
        json
    };
    let mut json: Map<String, Value> =
        scores.splits.iter().map(|split| (split.split.to_string(), score(split))).collect();
    let names: Vec<String> = args.score.iter().map(ScoreKind::to_string).collect();
    let nodes = match () {
        () if scores.of_pairs => "pairs",
        () if scores.of_rows => "rows",
        () => "nodes",
    };
    let accuracy = accurate.then_some("accuracy");
    let columns: Vec<&str> =
        ["split", nodes].into_iter().chain(accuracy).chain(["loss"]).chain(names.iter().map(String::as_str)).collect();
    let mut text = show::table(&columns, &rows, &[0]);
    if args.classes {
        text += &classes(&scores)?;
    }
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
