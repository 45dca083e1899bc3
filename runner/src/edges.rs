//! Classes, labels and values of edges: predictions, and scores of a split.

use anyhow::{Result, bail};
use morphgl_graph_store::Dataset;
use morphgl_model_core::{ModelSpec, Predicted, ScoreKind, Task};
use morphgl_registry::{BatchPairs, Targets, Training};

use crate::evaluated::Scored;
use crate::links::{Embed, Ends, decoder_elements};
use crate::task::Split;

/// The outputs of pairs of rows of embeddings, `[pairs, outputs]`, by the operator's own decoder or that of the model.
pub(crate) fn outputs(
    training: &mut dyn Training,
    model: &ModelSpec,
    rows: &[f32],
    pairs: &[[u32; 2]],
) -> Result<Vec<f32>> {
    if let Some(outputs) = training.pair_scores(rows, pairs, model.num_classes) {
        return Ok(outputs?);
    }
    let decoder = decoder_elements(model, training.parameters()?);
    Ok(model.decoder.outputs((rows, model.num_classes, model.edge_outputs), (pairs, &[]), &decoder))
}

/// Scores splits of labelled edges by the embeddings of their ends, which are computed once for all splits.
pub(crate) fn scored(
    training: &mut dyn Training,
    dataset: &Dataset,
    model: &ModelSpec,
    splits: &[Split],
    embed: Embed<'_>,
    kinds: &[ScoreKind],
) -> Result<Vec<Scored>> {
    let all = splits.iter().flat_map(|split| split.pairs(dataset).iter().copied());
    let embedded = Ends::of(dataset.num_nodes(), all).embedded(training, embed)?;
    let (mut left, width) = (&embedded.pairs[..], model.edge_outputs);
    let mut scored = Vec::new();
    for split in splits {
        let (pairs, rest) = left.split_at(split.pairs(dataset).len());
        left = rest;
        let batch = BatchPairs { num_positives: pairs.len(), ends: pairs.to_vec(), ..BatchPairs::default() };
        let outputs = outputs(training, model, &embedded.rows, pairs)?;
        let of_pairs = split.of_pairs(dataset);
        let (predicted, targets) = match (model.task, &of_pairs.labels, &of_pairs.values) {
            _ if pairs.is_empty() => (Predicted::new(&[], &[], width), Targets::PairClasses(&batch, &[])),
            (Task::Classify, Some(labels), _) => {
                (Predicted::new(&outputs, labels, width), Targets::PairClasses(&batch, labels))
            }
            (Task::Multilabel | Task::Regress, _, Some(values)) => {
                let values = values.values();
                (Predicted::of_values(&outputs, values, width), Targets::PairValues(&batch, values))
            }
            (task, ..) => {
                let what = if task == Task::Classify { "labels" } else { "targets" };
                bail!("{}: the {} edges have no {what} to evaluate with", dataset.name, split.name())
            }
        };
        if pairs.is_empty() {
            scored.push(Scored { values: vec![f64::NAN; kinds.len()], ..Scored::default() });
            continue;
        }
        let sums = training.score_logits(&embedded.rows, targets, model.num_classes)?;
        scored.push(Scored::of(sums, &predicted, model.task, kinds));
    }
    Ok(scored)
}
