//! One of the ranks of an MPI run, which train by one route each and add up their gradients.

use std::sync::Arc;
use std::time::Duration;

use super::{Ended, Mode, Start, Summary};
use crate::ranks::Ranks;
use crate::usage::Usage;
use crate::{Executor, ExecutorSettings, Job, Plan, RunContext, Stop, Trainer};

/// This rank's part of the run.
#[derive(Debug)]
pub(crate) struct OfRanks {
    context: RunContext,
    plan: Plan,
}

impl OfRanks {
    /// Makes the job that of one rank, which trains by this plan, and the prediction that of all ranks.
    pub(crate) fn join(context: &RunContext, job: &mut Job, mut plan: Plan) -> anyhow::Result<Self> {
        if plan.schedule.shares.len() > 1 {
            return Err(Usage::error("--plan: ranks of MPI train by one route, and this plan has several; plan again"));
        }
        let mode = Self::resume(context, plan.clone());
        let ranks = mode.ranks();
        let parameters = match job.operators.trainers.first() {
            Some(trainer) => trainer.operator.parameters()?,
            None => Vec::new(),
        };
        ranks.check_parameters("initial parameters", &parameters)?;
        ranks.predict(job, &mut plan)?;
        job.join(Arc::clone(&ranks.group));
        Ok(Self { plan, ..mode })
    }

    /// The part of a rank whose job has joined the others already.
    pub(crate) fn resume(context: &RunContext, plan: Plan) -> Self {
        Self { context: context.clone(), plan }
    }

    fn ranks(&self) -> &Ranks {
        self.context.ranks().expect("this is the mode of a process that has joined other ranks")
    }
}

impl Mode for OfRanks {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn limits(&self, _: &RunContext, limit: Duration) -> (Stop, Duration) {
        // A training step contains its wait for other ranks, which has this limit of its own.
        (self.ranks().group.stop(), 2 * limit)
    }

    fn executor(&self, job: Job, _: Start, settings: ExecutorSettings) -> anyhow::Result<Executor> {
        Executor::new(job, &self.plan, None, settings)
    }

    fn check_restored(&self, trainer: &mut Trainer) -> anyhow::Result<()> {
        self.ranks().check_parameters("resumed parameters", &trainer.executor.training_mut()?.parameters()?)
    }

    fn summarise(&self, ended: Ended<'_>) -> anyhow::Result<Vec<Summary>> {
        let Ended { trainer, report, recorder, earlier } = ended;
        let ranks = self.ranks();
        ranks.check_parameters("trained parameters", &trainer.executor.training_mut()?.parameters()?)?;
        recorder.map_or(Ok(()), |recorder| ranks.join_timelines(recorder))?;
        let executor = &trainer.executor;
        let (json, text) = ranks.summary(report, earlier, (executor.threads(), executor.context.shards()))?;
        Ok(vec![Summary { field: "ranks", json, text }])
    }
}
