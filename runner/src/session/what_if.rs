//! Best plans for machines with faster resources.

use anyhow::Result;
use morphgl_plan::WhatIf;

use crate::usage::OrUsage;
use crate::{Plan, Problem, Scheduler};

/// The best plan of a changed machine.
pub(crate) struct Changed {
    pub(crate) change: String,
    pub(crate) plan: Plan,
    pub(crate) speed_up: f64,
}

/// The best plan for each change.
pub(crate) fn changed(problem: &Problem, best: &Plan, changes: &[WhatIf]) -> Result<Vec<Changed>> {
    let of = |change: &WhatIf| {
        let changed = change.apply(problem).or_usage(format_args!("--what-if {change}"))?;
        let plan = Scheduler::schedule(&changed)?.chosen().clone();
        let speed_up = best.prediction.epoch_seconds / plan.prediction.epoch_seconds;
        Ok(Changed { change: change.to_string(), plan, speed_up })
    };
    changes.iter().map(of).collect()
}

/// The default changes: each resource of the problem twice as fast, and all of them.
pub(crate) fn each_twice(problem: &Problem) -> Vec<WhatIf> {
    let one: Vec<String> = problem.resources().iter().map(|r| format!("{}*2", r.name)).collect();
    let all = (one.len() > 1).then(|| one.join(","));
    one.into_iter().chain(all).map(|change| change.parse().expect("names of resources and a factor")).collect()
}
