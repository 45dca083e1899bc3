//! How the trainers of a run work together: each mode is one file, and the training loop names none.

pub(crate) mod alone;
pub(crate) mod factored;
pub(crate) mod group;
pub(crate) mod layer_split;
pub(crate) mod ranks;

use std::fmt::Debug;
use std::time::Duration;

use morphgl_plan::RouteKeys;
use morphgl_registry::BatchId;
use morphgl_report::{Stale, Timeline};
use serde_json::Value;

use super::measure::Measured;
use super::run::state::RunState;
use super::{Session, options::PlanChoice};
use crate::{
    Executor, ExecutorSettings, Job, LinkUse, Plan, Problem, Recorder, RunContext, Simulated, Stop, Trainer,
    predicted_timeline, words,
};
use alone::OneTrainer;
use factored::WithRoles;
use group::Group;
use layer_split::LayerSplit;
use ranks::OfRanks;

/// Where an executor begins: its first mini-batch, and whether the state of a checkpoint is restored there.
pub(crate) type Start = (BatchId, bool);

/// What a mode adds to the result of a run: a field of its JSON, and lines of its text.
pub(crate) struct Summary {
    pub(crate) field: &'static str,
    pub(crate) json: Value,
    pub(crate) text: String,
}

/// A mode of training with its plan.
pub(crate) trait Mode: Debug {
    /// The plan to begin with: of several trainers, the first one's.
    fn plan(&self) -> &Plan;

    /// The routes that it trains by.
    fn routes(&self) -> Vec<&RouteKeys> {
        self.plan().schedule.shares.iter().map(|share| &share.keys).collect()
    }

    /// The mode's own plan in words.
    fn account(&self) -> Option<String> {
        None
    }

    /// Bytes that it holds on the host besides the plan's caches, buffers and workers, and what they are.
    fn held(&self) -> Option<(&'static str, u64)> {
        None
    }

    /// Whether operators are built on every device.
    fn every_device(&self) -> bool {
        false
    }

    /// Whether devices have roles, so that routes lead from every one to every other.
    fn has_roles(&self) -> bool {
        false
    }

    /// What a checkpoint has of it.
    fn keep(&self, _state: &mut RunState) {}

    /// What stops the run, and the longest time that a phase of one mini-batch may take, where `limit` is asked for.
    fn limits(&self, context: &RunContext, limit: Duration) -> (Stop, Duration) {
        (context.heed_stop(), limit)
    }

    /// The recorder of its timeline.
    fn recorder(&self, simulated: &Simulated) -> Recorder {
        Recorder::new(self.plan(), simulated)
    }

    /// The timeline of an epoch that is predicted.
    fn predicted(&self, simulated: &Simulated) -> Timeline {
        predicted_timeline(self.plan(), simulated)
    }

    /// The executor that trains so.
    fn executor(&self, job: Job, start: Start, settings: ExecutorSettings) -> anyhow::Result<Executor>;

    /// Checks the state of a run that is resumed.
    fn check_restored(&self, _trainer: &mut Trainer) -> anyhow::Result<()> {
        Ok(())
    }

    /// What the run did by it, for its result. `earlier` epochs were not trained by this process alone.
    fn summarise(&self, _ended: Ended<'_>) -> anyhow::Result<Vec<Summary>> {
        Ok(Vec::new())
    }

    /// The links that its trainers share.
    fn links(&self) -> &[LinkUse] {
        &[]
    }

    /// What else the report says of the run.
    fn notes(&self, _executor: &Executor) -> Vec<String> {
        Vec::new()
    }

    /// Steps by which rows were out of date, for the report.
    fn staleness(&self, _executor: &Executor) -> Vec<Stale> {
        Vec::new()
    }
}

/// A run that has ended, for its mode's summary.
pub(crate) struct Ended<'a> {
    pub(crate) trainer: &'a mut Trainer,
    pub(crate) report: &'a crate::TrainReport,
    pub(crate) recorder: Option<&'a mut Recorder>,
    pub(crate) earlier: usize,
}

/// The mode that is asked for, else the one of the shortest predicted epoch.
pub(crate) fn choose(
    session: &Session,
    context: &RunContext,
    measured: &mut Measured,
    plan_of_file: Option<Plan>,
    epochs: u32,
) -> anyhow::Result<Box<dyn Mode>> {
    let group = Group::choose(session, context, measured)?;
    let other = group.as_ref().map_or(measured.plans.chosen().prediction.epoch_seconds, Group::epoch_seconds);
    let roles = WithRoles::choose(session, context, measured, other)?;
    let exact = roles.as_ref().map_or(other, |roles| roles.factored.epoch_seconds());
    if let Some(split) = LayerSplit::choose(session, context, measured, exact, epochs)? {
        return Ok(Box::new(split));
    }
    if let Some(roles) = roles {
        return Ok(Box::new(roles));
    }
    if let Some(group) = group {
        return Ok(Box::new(group));
    }
    let plan = session.config.training.plan.choose(plan_of_file, &measured.plans, &measured.problem)?;
    if context.ranks().is_some() {
        return Ok(Box::new(OfRanks::join(context, &mut measured.job, plan)?));
    }
    // Only an automatic plan may be replaced during the run.
    let replanned = matches!(session.config.training.plan, PlanChoice::Auto).then(|| measured.problem.clone());
    if replanned.is_some() {
        words::passed_over(&measured.plans).iter().for_each(|text| context.line(text));
    }
    Ok(Box::new(OneTrainer { plan, replanned }))
}

/// The mode of a run that is resumed, at this plan; `replanned` is the problem that it is planned by again, where it is.
pub(crate) fn resume(
    context: &RunContext,
    state: &RunState,
    plan: &Plan,
    replanned: Option<&Problem>,
) -> Box<dyn Mode> {
    if let Some(unified) = &state.unified {
        return Box::new(Group::new(unified.clone(), state.split.clone()));
    }
    if let Some(split) = &state.split {
        return Box::new(LayerSplit::resume(context, split.clone()));
    }
    if let Some(factored) = &state.factored {
        return Box::new(WithRoles { factored: factored.clone() });
    }
    match context.ranks() {
        Some(_) => Box::new(OfRanks::resume(context, plan.clone())),
        None => Box::new(OneTrainer { plan: plan.clone(), replanned: replanned.cloned() }),
    }
}
