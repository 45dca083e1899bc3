//! Scores of a dataset's splits.

use morphgl_model_core::{Confusion, Predicted, ScoreKind};
use morphgl_registry::{Key, Score};
use serde_json::Value;

use super::Trained;
use crate::budget::Purpose;
use crate::evaluate::{Inferred, Sampled};
use crate::{Evaluation, MemoryLimit, OperatorBuilder};

/// The score of a split.
#[derive(Debug, Clone, PartialEq)]
pub struct SplitScore {
    /// `train`, `valid` or `test`.
    pub split: &'static str,
    /// Its nodes, with a label and without.
    pub nodes: usize,
    /// Accuracy and loss of those with a label; of no nodes where none has.
    pub score: Score,
    /// The values of the scores that were asked for, in their order; NaN where one is not defined.
    pub values: Vec<f64>,
    /// How many nodes of each class are predicted to be of each, where the evaluation was with all neighbours.
    pub confusion: Option<Confusion>,
}

/// The scores of a trained model.
#[derive(Debug, Clone, PartialEq)]
pub struct Scores {
    /// The splits that have nodes.
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
    /// Scores the dataset's splits: as `requested`, else with all neighbours where they fit in memory and the model was trained so;
    /// accuracy and loss always, and what `kinds` name.
    ///
    /// # Errors
    ///
    /// No splits; an evaluation that does not fit in memory, or that does not keep what a score needs; a failing operator, or rank.
    pub fn evaluate(&mut self, requested: Option<Evaluation>, kinds: &[ScoreKind]) -> anyhow::Result<Scores> {
        self.batch().check_sampling(&self.config.spec.model)?;
        let splits = &self.dataset.splits;
        let sets: [&[u32]; 3] = [&splits.train, &splits.valid, &splits.test];
        let Some(first) = sets.iter().find(|set| !set.is_empty()) else {
            anyhow::bail!("{}: the dataset has no splits; import it with --split 0.6,0.2,0.2", self.dataset.name);
        };
        let context = self.context.clone();
        let requested = requested.or(self.batch().evaluation());
        let mut evaluation = self.inference.choose(requested, &context)?;
        let group = context.ranks().map(|ranks| &*ranks.group);
        if let Some(ranks) = context.ranks() {
            let requested = requested.map_or("none".to_string(), |requested| format!("{requested:?}"));
            ranks.check_same(&[("--evaluation".to_string(), requested)])?;
            evaluation = ranks.agree_on_evaluation(evaluation)?;
        }
        kinds.iter().try_for_each(|&kind| evaluation.check(kind))?;
        let threads = self.config.num_threads(context.registry());
        let num_classes = self.config.spec.model.num_classes;
        let of_sums = |score: Score| {
            // Scores of sums alone are left, which look at no logits.
            let none = Predicted::new(&[], &[], num_classes);
            (score, kinds.iter().map(|kind| kind.value(&score, &none)).collect(), None)
        };
        let scores: Vec<(Score, Vec<f64>, Option<Confusion>)> = match evaluation {
            Evaluation::Full => {
                let inferred = Inferred::of(self.training.as_mut(), &self.dataset, num_classes, &sets, group)?;
                let mut scored = Vec::new();
                for predicted in inferred.sets() {
                    let sums = self.training.score_logits(predicted.logits(), predicted.labels(), num_classes)?;
                    let values = kinds.iter().map(|kind| kind.value(&sums, &predicted)).collect();
                    scored.push((sums, values, Some(predicted.confusion())));
                }
                scored
            }
            _ => {
                self.batch().differences().iter().for_each(|how| context.remark(how));
                let builder = OperatorBuilder { dataset: &self.dataset, config: &self.config, context: &context };
                let mut transferring = builder.transferring(&self.route, builder.carries_features(&self.route))?;
                let mut sampled = Sampled {
                    builder,
                    purpose: Purpose::Evaluation,
                    route: &self.route,
                    workers: 0,
                    threads,
                    // The process's memory includes mapped files, which the limit does not.
                    memory: self.options.memory.filter(|_| !self.options.data.mmap),
                    transferring: transferring.as_mut(),
                    training: self.training.as_mut(),
                    group,
                };
                let peak = || context.memory().take_peak();
                if let Some(limit) = sampled.memory
                    && let Some(excess) = sampled.admit(first, MemoryLimit { limit, peak: &peak })?
                {
                    return Err(self.too_little(limit, excess));
                }
                sampled.scores(&sets)?.into_iter().map(of_sums).collect()
            }
        };
        let all = ["train", "valid", "test"].into_iter().zip(sets).zip(scores);
        let of_split = all.map(|((split, set), (score, values, confusion))| SplitScore {
            split,
            nodes: set.len(),
            score,
            values,
            confusion,
        });
        Ok(Scores {
            splits: of_split.filter(|split| split.nodes > 0).collect(),
            class_names: self.class_names.clone(),
            evaluation,
            sampled_by: (evaluation == Evaluation::Sampled).then(|| self.route.batching.clone()),
            ranks: context.ranks().map(|ranks| ranks.inference_summary(threads)).transpose()?,
        })
    }
}
