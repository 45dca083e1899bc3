//! Scores of a dataset's splits.

use morphgl_graph_store::Dataset;
use morphgl_model_core::{ClassCounts, Confusion, Predicted, ScoreKind, Task};
use std::sync::Arc;

use morphgl_registry::{Key, Score};
use serde_json::Value;

use super::Trained;
use crate::budget::Purpose;
use crate::evaluate::{Sampled, scored};
use crate::evaluated::Scored;
use crate::links::{any_filtered, known_bytes};
use crate::task::{Examples, Split};
use crate::{Evaluation, MemoryLimit, OperatorBuilder, examples, links};

/// The score of a split.
#[derive(Debug, Clone, PartialEq)]
pub struct SplitScore {
    /// `train`, `valid` or `test`.
    pub split: &'static str,
    /// Its nodes, or rows of the task, with a target and without; its pairs, of a model of links or edges.
    pub nodes: usize,
    /// Accuracy and loss of those with a target; of no nodes where none has.
    pub score: Score,
    /// The values of the scores that were asked for, in their order; NaN where one is not defined.
    pub values: Vec<f64>,
    /// How many examples of each class are predicted to be of each, where the evaluation kept their outputs.
    pub confusion: Option<Confusion>,
    /// What each class or label says, where the evaluation kept outputs; none of values and links.
    pub classes: Vec<ClassCounts>,
}

/// The scores of a trained model.
#[derive(Debug, Clone, PartialEq)]
pub struct Scores {
    /// What the model predicts.
    pub task: Task,
    /// Whether it predicts links or edges.
    pub of_pairs: bool,
    /// Whether it predicts rows of a task.
    pub of_rows: bool,
    /// The splits that have nodes, or pairs.
    pub splits: Vec<SplitScore>,
    /// Names of the classes, where the model file has them.
    pub class_names: Option<Vec<String>>,
    /// How they were evaluated.
    pub evaluation: Evaluation,
    /// What sampled the mini-batches of a sampled evaluation.
    pub sampled_by: Option<Key>,
    /// What each rank of MPI did, as JSON and in words.
    pub ranks: Option<(Value, String)>,
}

impl Trained {
    /// Calls `work` with what samples and computes mini-batches of `dataset`. Where memory is limited, a mini-batch of the examples
    /// `first` is made beforehand, to see whether it fits.
    ///
    /// # Errors
    ///
    /// A mini-batch that does not fit in memory; a failing operator.
    pub(super) fn sampled<R>(
        &mut self,
        dataset: &Arc<Dataset>,
        first: &[u32],
        work: impl FnOnce(&mut Sampled<'_>) -> anyhow::Result<R>,
    ) -> anyhow::Result<R> {
        let context = self.context.clone();
        let builder = OperatorBuilder { dataset, config: &self.config, context: &context };
        let mut transferring = builder.transferring(&self.route, builder.carries_features(&self.route))?;
        let mut sampled = Sampled {
            builder,
            purpose: Purpose::Evaluation,
            route: &self.route,
            workers: 0,
            threads: self.config.num_threads(context.registry()),
            // The process's memory includes mapped files, which the limit does not.
            memory: self.options.memory.filter(|_| !self.options.data.mmap),
            transferring: transferring.as_mut(),
            training: self.training.as_mut(),
            group: context.ranks().map(|ranks| &*ranks.group),
        };
        let peak = || context.memory().take_peak();
        if let Some(limit) = sampled.memory
            && let Some(excess) = sampled.admit(first, MemoryLimit { limit, peak: &peak })?
        {
            return Err(self.too_little(limit, excess));
        }
        work(&mut sampled)
    }

    /// Scores the dataset's splits: as `requested`, else with all neighbours where they fit in memory and the model was trained so;
    /// accuracy and loss always, and what `kinds` name.
    ///
    /// # Errors
    ///
    /// No splits; an evaluation that does not fit in memory, or that does not keep what a score needs; a failing operator, or rank.
    pub fn evaluate(&mut self, requested: Option<Evaluation>, kinds: &[ScoreKind]) -> anyhow::Result<Scores> {
        self.batch().check_sampling(&self.config.spec.model)?;
        let (model, dataset) = (self.config.spec.model.clone(), Arc::clone(&self.dataset));
        let examples = Examples::of(&model);
        let size = |split: &Split| split.num_examples(&dataset, examples);
        let splits: Vec<Split> = Split::ALL.into_iter().filter(|split| size(split) > 0).collect();
        let Some(first) = splits.first() else {
            anyhow::bail!("{}: the dataset has no splits; import it with {}", dataset.name, examples.split_option());
        };
        let context = self.context.clone();
        let requested = requested.or(self.batch().evaluation());
        let known = if any_filtered(kinds) { known_bytes(&dataset) } else { 0 };
        let mut evaluation = self.inference.with(known).choose(requested, &context)?;
        let group = context.ranks().map(|ranks| &*ranks.group);
        if let Some(ranks) = context.ranks() {
            let requested = requested.map_or("none".to_string(), |requested| format!("{requested:?}"));
            ranks.check_same(&[("--evaluation".to_string(), requested)])?;
            evaluation = ranks.agree_on_evaluation(evaluation)?;
        }
        let all = kinds.iter().copied().chain([ScoreKind::Loss]);
        all.into_iter().try_for_each(|kind| evaluation.check(kind, &model, &dataset))?;
        let threads = self.config.num_threads(context.registry());
        let of_sums = |sums: Score| {
            // Scores of sums alone are left, which look at no outputs.
            let none = Predicted::new(&[], &[], model.num_classes);
            Scored { sums, values: kinds.iter().map(|kind| kind.value(&sums, &none)).collect(), ..Scored::default() }
        };
        let all: Vec<Scored> = match evaluation {
            Evaluation::Full => scored(self.training.as_mut(), &dataset, &model, &splits, group, kinds)?,
            _ => {
                self.batch().differences().iter().for_each(|how| context.remark(how));
                let set = match model.learns_pairs() {
                    true => links::Ends::of_split(&dataset, examples, *first).nodes,
                    false => first.nodes(&dataset).to_vec(),
                };
                self.sampled(&dataset, &set, |sampled| {
                    if model.learns_pairs() {
                        return sampled.scored_pairs(&splits, kinds);
                    }
                    if examples::are_rows(&dataset) {
                        return sampled.scored_rows(&splits, kinds);
                    }
                    let sets: Vec<&[u32]> = splits.iter().map(|split| split.nodes(&dataset)).collect();
                    Ok(sampled.scores(&sets)?.into_iter().map(of_sums).collect())
                })?
            }
        };
        let of_split = splits.iter().zip(all).map(|(split, Scored { sums, values, confusion, classes })| SplitScore {
            split: split.name(),
            nodes: size(split),
            score: sums,
            values,
            confusion,
            classes,
        });
        Ok(Scores {
            splits: of_split.collect(),
            task: model.task,
            of_pairs: model.learns_pairs(),
            of_rows: examples::are_rows(&dataset),
            class_names: self.class_names.clone(),
            evaluation,
            sampled_by: (evaluation == Evaluation::Sampled).then(|| self.route.batching.clone()),
            ranks: context.ranks().map(|ranks| ranks.inference_summary(threads)).transpose()?,
        })
    }
}
