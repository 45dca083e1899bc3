//! Sessions on a described machine (`--machine`), which is simulated.

use std::path::Path;

use morphgl_sim::{MachineDescription, NAMED};
use serde_json::{Value, json};

use super::Session;
use super::options::{PlanChoice, PlanningOptions, TrainingOptions};
use super::run_dir::Configured;
use crate::Evaluation;
use crate::usage::{OrUsage, Usage};

/// Epochs of a run without `--epochs`: nothing is learned in more of them.
const EPOCHS: u32 = 3;

/// The machine that `--machine` names: a file where there is one, else one that comes with MorphGL.
pub(crate) fn named(named: &Path) -> anyhow::Result<MachineDescription> {
    let described = match (named.is_file(), named.to_str()) {
        (false, Some(name)) if named.extension().is_none() && !named.exists() => MachineDescription::named(name),
        _ => MachineDescription::load(named),
    };
    described.or_usage("--machine")
}

/// The first and the last line of what is printed about a described machine.
pub(crate) fn notice(machine: &MachineDescription, trains: bool) -> String {
    let what =
        if trains { "time is simulated, nothing was measured, and nothing is learned" } else { "nothing was measured" };
    format!("simulated: machine {} is described, not real; {what}", machine.name)
}

/// Names and descriptions of the machines that come with MorphGL.
pub(crate) fn list_json() -> Value {
    let machines = NAMED.map(|(name, _)| MachineDescription::named(name).expect("a test reads every one"));
    json!({ "machines": machines })
}

impl Session {
    /// The session on the machine that is described, where one is.
    pub(super) fn on_its_machine(&self) -> anyhow::Result<Self> {
        let of_like = self.like.as_ref().and_then(|configured| configured.job.machine.clone());
        let machine = self.config.planning.machine.as_deref().map(named).transpose()?.or(of_like);
        let Some(machine) = machine else { return Ok(self.clone()) };
        refuse(&self.config.planning, &self.config.training)?;
        if self.context.ranks().is_some() {
            return Err(Usage::error("--machine: ranks of MPI train on machines that there are; leave mpirun out"));
        }
        let mut own = Self { context: self.context.on_machine(machine)?, ..self.clone() };
        let training = &mut own.config.training;
        training.evaluation = Some(Evaluation::None);
        training.epochs = training.epochs.or(Some(EPOCHS).filter(|_| own.like.is_none()));
        Ok(own)
    }

    /// The session on the machine that the run in a directory was simulated on.
    pub(super) fn on_machine_of(&self, dir: &Path) -> anyhow::Result<Self> {
        // What cannot be read is reported when the run is resumed.
        let configured = Configured::of(dir).ok().flatten();
        match configured.and_then(|configured| configured.job.machine) {
            Some(machine) => Ok(Self { context: self.context.on_machine(machine)?, ..self.clone() }),
            None => Ok(self.clone()),
        }
    }
}

/// Refuses options that have no meaning where nothing is measured, or nothing is learned.
fn refuse(planning: &PlanningOptions, training: &TrainingOptions) -> anyhow::Result<()> {
    let measured = "nothing is measured on a described machine";
    let learned = "nothing is learned on a described machine";
    let splits_layers = match training.plan {
        PlanChoice::Factored => planning.split.splits_layers(),
        _ => planning.split.is_asked(),
    };
    let refused = [
        ("--profile-seconds", planning.profile_seconds.is_some(), measured),
        ("--fresh", planning.fresh, measured),
        ("--allow-staleness", splits_layers, "layers are split on machines that there are alone"),
        ("--evaluation", training.evaluation.is_some_and(|evaluation| evaluation != Evaluation::None), learned),
        ("--patience", training.patience.is_some(), learned),
        ("--evaluate-every", training.evaluate_every.is_some(), learned),
        ("--score", training.score.is_some(), learned),
        ("--init", training.init.is_some(), learned),
        ("--save", training.save.is_some(), learned),
        ("--shard", training.shard.is_some(), "ranks of MPI train on machines that there are"),
        ("--exchange", training.exchange.is_some(), "the all-reduce is that of the description"),
    ];
    match refused.into_iter().find(|(_, given, _)| *given) {
        Some((option, _, why)) => {
            Err(Usage::error(format!("{option} with --machine: {why}; leave one of the two out")))
        }
        None => Ok(()),
    }
}
