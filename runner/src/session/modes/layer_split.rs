//! Layer-split training: rows of the first layer of hot nodes are computed beside training, within a bound of staleness.

use std::time::Duration;

use morphgl_layer_split::{SplitStatistics, StaleRows};
use morphgl_plan::Time;
use morphgl_report::Stale;
use serde_json::{Value, json};

use super::ranks::OfRanks;
use super::{Ended, Mode, Start, Summary};
use crate::session::Session;
use crate::session::measure::Measured;
use crate::session::run::state::RunState;
use crate::{Executor, ExecutorSettings, Job, Plan, RunContext, SplitPlan, Stop, Trainer, words};

/// One trainer that splits layers, alone or as one of the ranks of an MPI run, each of which computes the rows of all hot nodes.
#[derive(Debug)]
pub(crate) struct LayerSplit {
    split: SplitPlan,
    ranks: Option<OfRanks>,
}

impl LayerSplit {
    /// The split to train with: where the hot ratio was given, or it is predicted to be faster than exact training, an epoch of which
    /// takes `exact` seconds, for `epochs`.
    pub(crate) fn choose(
        session: &Session,
        context: &RunContext,
        measured: &mut Measured,
        exact: f64,
        epochs: u32,
    ) -> anyhow::Result<Option<Self>> {
        let Some(planned) = measured.split.take() else { return Ok(None) };
        let asked = session.config.planning.split.hot_ratio.is_some();
        let mut split = match planned {
            Ok(split) => split,
            Err(e) if asked => return Err(e.context("--hot-ratio: layers cannot be split")),
            Err(e) => {
                context.remark(format_args!("layer split: {}; training is exact", words::one_line(&e)));
                return Ok(None);
            }
        };
        let seconds = split.epoch_seconds(epochs);
        if !asked && seconds >= exact {
            let (split, exact) = (Time(seconds), Time(exact));
            context.line(format_args!("layer split: {split} per epoch predicted, exact training {exact}: not split"));
            return Ok(None);
        }
        let mut ranks = None;
        if context.ranks().is_some() {
            let of_ranks = OfRanks::join(context, &mut measured.job, split.plan().clone())?;
            split.set_plan(of_ranks.plan().clone());
            ranks = Some(of_ranks);
        }
        Ok(Some(Self { split, ranks }))
    }

    /// The mode of a run that is resumed; a rank's job has joined the others already.
    pub(crate) fn resume(context: &RunContext, split: SplitPlan) -> Self {
        let ranks = context.ranks().map(|_| OfRanks::resume(context, split.plan().clone()));
        Self { split, ranks }
    }
}

impl Mode for LayerSplit {
    fn plan(&self) -> &Plan {
        self.split.plan()
    }

    fn account(&self) -> Option<String> {
        Some(self.split.to_string())
    }

    fn held(&self) -> Option<(&'static str, u64)> {
        Some(("given rows", self.split.bytes))
    }

    fn keep(&self, state: &mut RunState) {
        state.split = Some(self.split.clone());
    }

    fn limits(&self, context: &RunContext, limit: Duration) -> (Stop, Duration) {
        self.ranks.as_ref().map_or_else(|| (context.heed_stop(), limit), |ranks| ranks.limits(context, limit))
    }

    fn check_restored(&self, trainer: &mut Trainer) -> anyhow::Result<()> {
        self.ranks.as_ref().map_or(Ok(()), |ranks| ranks.check_restored(trainer))
    }

    fn executor(&self, job: Job, start: Start, settings: ExecutorSettings) -> anyhow::Result<Executor> {
        Executor::split(job, &self.split, start, settings)
    }

    fn summarise(&self, ended: Ended<'_>) -> anyhow::Result<Vec<Summary>> {
        let own = summary(&self.split, &ended.trainer.executor);
        let of_ranks = self.ranks.as_ref().map_or_else(|| Ok(Vec::new()), |ranks| ranks.summarise(ended))?;
        Ok(own.into_iter().chain(of_ranks).collect())
    }

    fn notes(&self, _: &Executor) -> Vec<String> {
        vec![self.split.to_string()]
    }

    fn staleness(&self, executor: &Executor) -> Vec<Stale> {
        staleness(executor)
    }
}

/// How stale given rows were, for the report.
pub(super) fn staleness(executor: &Executor) -> Vec<Stale> {
    let stale = |StaleRows { steps, batches, rows }| Stale { steps, batches, rows };
    executor.split_statistics().map_or(Vec::new(), |given| given.staleness().into_iter().map(stale).collect())
}

/// What was given and computed beside training; `None` where training is exact.
pub(super) fn summary(plan: &SplitPlan, executor: &Executor) -> Option<Summary> {
    let (text, json) = in_words(plan, executor.split_statistics()?);
    Some(Summary { field: "layer_split", json, text })
}

fn in_words(plan: &SplitPlan, statistics: &SplitStatistics) -> (String, Value) {
    let all = statistics.all();
    let sum = |of: fn(&morphgl_layer_split::SuperBatchStatistics) -> f64| all.iter().map(of).sum::<f64>();
    let share = sum(|s| s.given as f64) / sum(|s| s.occurrences as f64).max(1.0);
    let (choosing, computing) = (sum(|s| s.choosing), sum(|s| s.computing));
    let text = format!(
        "layer split: {:.1}% of rows of the first layer were given; {} super-batches, {} to choose their hot nodes, {} to \
         compute their rows\n",
        100.0 * share,
        all.len(),
        Time(choosing),
        Time(computing)
    );
    let ratios = [all.first(), all.last()].map(|s| s.map(|s| s.ratio));
    let text = match ratios {
        [Some(first), Some(last)] if plan.max_ratio.is_some() => {
            format!("{text}the hot ratio went from {:.1}% to {:.1}%\n", 100.0 * first, 100.0 * last)
        }
        _ => text,
    };
    let json = json!({
        "plan": plan, "hot_ratios": ratios, "super_batches": all.len(), "given_share": share, "hot_nodes": sum(|s| s.hot as f64),
        "staleness": statistics.staleness(), "choosing_seconds": choosing, "computing_seconds": computing,
    });
    (text, json)
}
