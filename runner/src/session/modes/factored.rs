//! Devices with roles: some sample, the others train.

use morphgl_group::StalenessCounts;
use morphgl_model_core::Normalization;
use morphgl_plan::{RouteKeys, Time};
use morphgl_report::Timeline;
use serde_json::json;

use super::{Ended, Mode, Start, Summary};
use crate::recorder::predicted_roles;
use crate::session::Session;
use crate::session::measure::Measured;
use crate::session::options::PlanChoice;
use crate::session::run::state::RunState;
use crate::usage::Usage;
use crate::{Executor, ExecutorSettings, Factored, Job, JobConfig, Plan, Recorder, RunContext, Simulated, words};

/// Devices with roles.
#[derive(Debug)]
pub(crate) struct WithRoles {
    pub(crate) factored: Factored,
}

impl WithRoles {
    /// Whether devices with roles are measured: as for a group, where they are asked for, or anything goes. Where the user names
    /// what moves mini-batches between devices, a group has one sampler for all trainers.
    pub(crate) fn wanted(session: &Session, context: &RunContext, config: &JobConfig) -> bool {
        let same_model = config.spec.model.normalization != Normalization::Batch;
        match session.config.training.plan {
            PlanChoice::Factored => true,
            PlanChoice::Auto => same_model && context.ranks().is_none() && config.operators.transferring.is_none(),
            _ => false,
        }
    }

    /// The roles to train with: where they were asked for, or are predicted to be faster than all else, an epoch of which takes `other`
    /// seconds.
    pub(crate) fn choose(
        session: &Session,
        context: &RunContext,
        measured: &mut Measured,
        other: f64,
    ) -> anyhow::Result<Option<Self>> {
        let training = &session.config.training;
        let asked = matches!(training.plan, PlanChoice::Factored);
        let exchange = training.exchange.unwrap_or_default();
        match measured.factored.take() {
            None if asked => Err(Usage::error(
                "--plan factored: no two devices of a kind sample, copy to each other and train here; use --plan auto",
            )),
            None => Ok(None),
            Some(Err(e)) if asked => Err(e.context("--plan factored")),
            Some(Err(e)) => {
                context.remark(format_args!("devices with roles: {}", words::one_line(&e)));
                Ok(None)
            }
            Some(Ok(factored)) if asked || factored.epoch_seconds() < other => {
                Ok(Some(Self { factored: factored.exchanging(exchange) }))
            }
            Some(Ok(factored)) => {
                let (roles, other) = (Time(factored.epoch_seconds()), Time(other));
                context.line(format_args!(
                    "devices with roles: {roles} per epoch predicted, other plans {other}: not chosen"
                ));
                Ok(None)
            }
        }
    }
}

impl Mode for WithRoles {
    fn plan(&self) -> &Plan {
        &self.factored.plan
    }

    fn routes(&self) -> Vec<&RouteKeys> {
        vec![&self.factored.keys]
    }

    fn account(&self) -> Option<String> {
        Some(self.factored.to_string())
    }

    fn every_device(&self) -> bool {
        true
    }

    fn has_roles(&self) -> bool {
        true
    }

    fn keep(&self, state: &mut RunState) {
        state.factored = Some(self.factored.clone());
    }

    fn recorder(&self, simulated: &Simulated) -> Recorder {
        Recorder::of_roles(&self.factored, simulated)
    }

    fn predicted(&self, simulated: &Simulated) -> Timeline {
        predicted_roles(&self.factored, simulated)
    }

    fn executor(&self, job: Job, _: Start, settings: ExecutorSettings) -> anyhow::Result<Executor> {
        Executor::factored(job, &self.factored, settings)
    }

    fn summarise(&self, ended: Ended<'_>) -> anyhow::Result<Vec<Summary>> {
        let plan = Summary { field: "factored", json: json!(self.factored), text: String::new() };
        let stale = ended.trainer.executor.stale_gradients().map(|counts| {
            let (bound, shares) = (counts.bound(), counts.shares());
            let text = stale_gradients(counts) + "\n";
            Summary { field: "stale_gradients", json: json!({ "bound": bound, "shares": shares }), text }
        });
        Ok([plan].into_iter().chain(stale).collect())
    }

    fn notes(&self, executor: &Executor) -> Vec<String> {
        executor.stale_gradients().map(stale_gradients).into_iter().collect()
    }
}

/// How stale gradients were, since the run was resumed, for the user.
fn stale_gradients(counts: &StalenessCounts) -> String {
    let (bound, shares) = (counts.bound(), counts.shares());
    let all = shares.iter().sum::<u64>().max(1) as f64;
    let parts = shares.iter().enumerate().map(|(steps, &n)| format!("{:.1}% by {steps}", 100.0 * n as f64 / all));
    let parts = parts.collect::<Vec<_>>().join(", ");
    format!("gradients of shares by the steps that they were stale, {bound} at most: {parts}")
}
