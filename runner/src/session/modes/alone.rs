//! One trainer, whose plan may be replaced while it trains.

use super::{Mode, Start};
use crate::{Executor, ExecutorSettings, Job, Plan, Problem};

/// One trainer.
#[derive(Debug)]
pub(crate) struct OneTrainer {
    pub(crate) plan: Plan,
    /// The problem that plans are made of during the run; `None` keeps the plan.
    pub(crate) replanned: Option<Problem>,
}

impl Mode for OneTrainer {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn executor(&self, job: Job, _: Start, settings: ExecutorSettings) -> anyhow::Result<Executor> {
        Executor::new(job, &self.plan, self.replanned.clone(), settings)
    }
}
