//! Several trainers of this process, each with a share of every mini-batch.

use morphgl_model_core::Normalization;
use morphgl_plan::{RouteKeys, Time};
use morphgl_report::Stale;
use serde_json::json;

use super::{Ended, Mode, Start, Summary, layer_split};
use crate::session::Session;
use crate::session::measure::Measured;
use crate::session::options::PlanChoice;
use crate::session::run::state::RunState;
use crate::usage::Usage;
use crate::{
    Executor, ExecutorSettings, Job, JobConfig, LinkUse, Plan, Recorder, RunContext, Shares, Simulated, SplitPlan,
    Unified, words,
};

/// A group of trainers.
#[derive(Debug)]
pub(crate) struct Group {
    unified: Unified,
    /// The first trainer's plan.
    plan: Plan,
    /// How layers are split for all of them; `None` where training is exact.
    split: Option<SplitPlan>,
}

impl Group {
    pub(crate) fn new(unified: Unified, split: Option<SplitPlan>) -> Self {
        Self { plan: unified.leading_plan(), unified, split }
    }

    /// How mini-batches are divided among the trainers that are measured; `None` measures no group. Batch normalization takes its
    /// statistics of each share: another model, which is not chosen without being asked for.
    pub(crate) fn wanted(session: &Session, context: &RunContext, config: &JobConfig) -> Option<Shares> {
        let training = &session.config.training;
        let same_model = config.spec.model.normalization != Normalization::Batch;
        let is_wanted = match training.plan {
            PlanChoice::Unified => true,
            PlanChoice::Auto => same_model && context.ranks().is_none(),
            _ => false,
        };
        is_wanted.then(|| training.shares.unwrap_or_default())
    }

    /// The group to train with: where it was asked for, or is predicted to be faster than the best plan of one trainer.
    pub(crate) fn choose(
        session: &Session,
        context: &RunContext,
        measured: &mut Measured,
    ) -> anyhow::Result<Option<Self>> {
        let training = &session.config.training;
        let exchange = training.exchange.unwrap_or_default();
        let of_group = session.splits_group(context)?;
        let split = if of_group { measured.split.take().transpose()? } else { None };
        let chosen = |unified: Unified| Some(Self::new(unified.exchanging(exchange), split));
        match (&training.plan, measured.unified.take()) {
            (PlanChoice::Unified, None) => {
                Err(Usage::error("--plan unified: one place alone can train here; use --plan auto"))
            }
            (PlanChoice::Unified, Some(planned)) => planned.map(chosen),
            (_, Some(Ok(unified))) if unified.is_chosen_over(measured.plans.chosen()) => Ok(chosen(unified)),
            (_, Some(Ok(unified))) if unified.trainers.len() == 1 => {
                let places = unified.left_out.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                context.line(format_args!("all trainers together: {places} would get no seed of a mini-batch"));
                Ok(None)
            }
            (_, Some(Ok(unified))) => {
                let seconds = Time(unified.epoch_seconds);
                context
                    .line(format_args!("all trainers together: {seconds} per epoch predicted, which one alone beats"));
                Ok(None)
            }
            (_, Some(Err(e))) => {
                context.remark(format_args!("all trainers together: {}", words::one_line(&e)));
                Ok(None)
            }
            (_, None) => Ok(None),
        }
    }

    /// Predicted seconds of an epoch.
    pub(crate) fn epoch_seconds(&self) -> f64 {
        self.unified.epoch_seconds
    }
}

impl Mode for Group {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn routes(&self) -> Vec<&RouteKeys> {
        let shares = self.unified.trainers.iter().flat_map(|trainer| &trainer.plan.schedule.shares);
        shares.map(|share| &share.keys).collect()
    }

    fn account(&self) -> Option<String> {
        let split = self.split.iter().map(|split| format!("\n{split}"));
        Some(self.unified.to_string() + &split.collect::<String>())
    }

    fn held(&self) -> Option<(&'static str, u64)> {
        self.split.as_ref().map(|split| ("given rows", split.bytes))
    }

    fn every_device(&self) -> bool {
        true
    }

    fn links(&self) -> &[LinkUse] {
        &self.unified.links
    }

    fn keep(&self, state: &mut RunState) {
        state.unified = Some(self.unified.clone());
        state.split.clone_from(&self.split);
    }

    fn recorder(&self, simulated: &Simulated) -> Recorder {
        Recorder::of_group(&self.unified, simulated)
    }

    fn executor(&self, job: Job, start: Start, settings: ExecutorSettings) -> anyhow::Result<Executor> {
        Executor::of_group(job, &self.unified, self.split.as_ref(), start, settings)
    }

    fn summarise(&self, ended: Ended<'_>) -> anyhow::Result<Vec<Summary>> {
        let group = Summary { field: "unified", json: json!(self.unified), text: String::new() };
        let split = self.split.as_ref().and_then(|split| layer_split::summary(split, &ended.trainer.executor));
        Ok([group].into_iter().chain(split).collect())
    }

    fn notes(&self, _: &Executor) -> Vec<String> {
        self.split.iter().map(ToString::to_string).collect()
    }

    fn staleness(&self, executor: &Executor) -> Vec<Stale> {
        layer_split::staleness(executor)
    }
}
