//! Scores of a dataset's splits.

use morphgl_registry::{Key, Score};
use serde_json::Value;

use super::Trained;
use crate::budget::Purpose;
use crate::evaluate::{self, Sampled};
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
}

/// The scores of a trained model.
#[derive(Debug, Clone, PartialEq)]
pub struct Scores {
    /// The splits that have nodes.
    pub splits: Vec<SplitScore>,
    /// How they were evaluated.
    pub evaluation: Evaluation,
    /// What sampled the mini-batches of a sampled evaluation.
    pub sampled_by: Option<Key>,
    /// What each rank of MPI did, as JSON and in words.
    pub ranks: Option<(Value, String)>,
}

impl Trained {
    /// Scores the dataset's splits: as `requested`, else with all neighbours where they fit in memory and the model was trained so.
    ///
    /// # Errors
    ///
    /// No splits; an evaluation that does not fit in memory; a failing operator, or rank.
    pub fn evaluate(&mut self, requested: Option<Evaluation>) -> anyhow::Result<Scores> {
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
        let threads = self.config.num_threads(context.registry());
        let scores = match evaluation {
            Evaluation::Full => {
                let num_classes = self.config.spec.model.num_classes;
                evaluate::full(self.training.as_mut(), &self.dataset, num_classes, &sets, group)?
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
                sampled.scores(&sets)?
            }
        };
        let of_split =
            |((split, set), score): ((&'static str, &[u32]), Score)| SplitScore { split, nodes: set.len(), score };
        let all = ["train", "valid", "test"].into_iter().zip(sets).zip(scores);
        Ok(Scores {
            splits: all.map(of_split).filter(|split| split.nodes > 0).collect(),
            evaluation,
            sampled_by: (evaluation == Evaluation::Sampled).then(|| self.route.batching.clone()),
            ranks: context.ranks().map(|ranks| ranks.inference_summary(threads)).transpose()?,
        })
    }
}
