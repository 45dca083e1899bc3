//! What rows are made with: the operators of this program, and stand-ins, each generated once.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use morphgl_graph_store::Dataset;
use morphgl_registry::{Fanouts, NeighborSettings, SamplerSettings, Sampling};
use morphgl_sim::MachineDescription;

use super::stand_in::StandIn;
use super::workload::Workload;
use crate::session::{Sampled, Session, SessionConfig};
use crate::{Evaluation, RunContext};

/// What rows are made with.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) context: RunContext,
    /// By name and values per row.
    graphs: Mutex<BTreeMap<(&'static str, usize), Arc<Dataset>>>,
}

impl Setting {
    pub(crate) fn new(context: RunContext) -> Self {
        Self { context, graphs: Mutex::default() }
    }

    /// A stand-in's graph, with one value per row: counting reads no features.
    pub(crate) fn graph(&self, stand_in: &StandIn) -> Result<Arc<Dataset>> {
        self.graph_with(stand_in, 1)
    }

    fn graph_with(&self, stand_in: &StandIn, dim: usize) -> Result<Arc<Dataset>> {
        let mut graphs = self.graphs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(graph) = graphs.get(&(stand_in.name, dim)) {
            return Ok(Arc::clone(graph));
        }
        let graph = Arc::new(stand_in.generate(dim)?);
        graphs.insert((stand_in.name, dim), Arc::clone(&graph));
        Ok(graph)
    }

    /// The sampler of a stand-in, by fanouts and the paper's seeds per mini-batch, divided by the stand-in's scale.
    pub(crate) fn sampled(&self, stand_in: &StandIn, fanouts: &str, seeds: usize) -> Result<Sampled> {
        self.sampled_with(fanouts, stand_in, stand_in.seeds(seeds))
    }

    /// The sampler of a stand-in, by fanouts and this number of seeds.
    pub(crate) fn sampled_with(&self, fanouts: &str, stand_in: &StandIn, batch_size: usize) -> Result<Sampled> {
        let neighbor: NeighborSettings = fanouts.parse::<Fanouts>()?.into();
        self.sampled_by(stand_in, Sampling::Neighbor(neighbor), batch_size)
    }

    /// The sampler of a stand-in.
    pub(crate) fn sampled_by(&self, stand_in: &StandIn, sampling: Sampling, batch_size: usize) -> Result<Sampled> {
        Sampled::by(&self.context, self.graph(stand_in)?, SamplerSettings { batch_size, ..sampling.into() })
    }

    /// A session that trains an epoch of GraphSAGE on a stand-in with its features, by this number of seeds of the smaller graph, on
    /// this machine and by the best plan, but for what `set` sets.
    pub(crate) fn session(
        &self,
        stand_in: &StandIn,
        sampler: (&str, usize),
        set: impl FnOnce(&mut SessionConfig),
    ) -> Result<Session> {
        session_on(self.graph_with(stand_in, stand_in.dim)?, sampler, set)
    }

    /// Seconds of an epoch on a described machine, predicted and executed in simulated time: as [`Setting::session`].
    pub(crate) fn executed(
        &self,
        stand_in: &StandIn,
        sampler: (&str, usize),
        machine: &str,
        set: impl FnOnce(&mut SessionConfig),
    ) -> Result<[f64; 2]> {
        let on_machine = |config: &mut SessionConfig| {
            config.planning.machine = Some(PathBuf::from(machine));
            set(config);
        };
        let run = self.session(stand_in, sampler, on_machine)?.train()?;
        let epoch = run.report.epochs.last().context("no epoch was trained")?;
        Ok([epoch.predicted_seconds, epoch.seconds])
    }

    /// As [`Setting::session`], on a described machine that need not have a file.
    pub(crate) fn session_on_machine(
        &self,
        stand_in: &StandIn,
        sampler: (&str, usize),
        machine: MachineDescription,
        set: impl FnOnce(&mut SessionConfig),
    ) -> Result<Session> {
        let context = RunContext::new()?.on_machine(machine)?;
        let learns_nothing = |config: &mut SessionConfig| {
            config.training.evaluation = Some(Evaluation::None);
            set(config);
        };
        session_in(context, self.graph_with(stand_in, stand_in.dim)?, sampler, learns_nothing)
    }

    /// Mini-batches of a stand-in, by fanouts and the paper's seeds per mini-batch, at the paper's size.
    pub(crate) fn workload(&self, stand_in: &StandIn, fanouts: &str, seeds: usize) -> Result<Workload> {
        Workload::count(stand_in, &self.sampled(stand_in, fanouts, seeds)?, seeds)
    }
}

/// A session that trains an epoch of GraphSAGE on `dataset`, on this machine and by the best plan, but for what `set` sets.
pub(crate) fn session_on(
    dataset: Arc<Dataset>,
    sampler: (&str, usize),
    set: impl FnOnce(&mut SessionConfig),
) -> Result<Session> {
    session_in(RunContext::new()?, dataset, sampler, set)
}

/// As [`session_on`], in a context of its own.
fn session_in(
    context: RunContext,
    dataset: Arc<Dataset>,
    (fanouts, batch_size): (&str, usize),
    set: impl FnOnce(&mut SessionConfig),
) -> Result<Session> {
    let mut config = SessionConfig::default();
    config.planning.batch.fanouts = Some(fanouts.parse()?);
    config.planning.batch.batch_size = Some(batch_size);
    config.training.epochs = Some(1);
    set(&mut config);
    // Nobody watches it: its row is what is shown.
    Ok(Session::new(context, config).on(dataset))
}
