//! Plans executed in simulated time: by the executor's threads, with mini-batches that are sampled, copied and verified, on a
//! simulated accelerator whose phases take the durations of the plan.

mod roles;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use morphgl_batching_sim_neighbor::{CpuSimNeighbor, SimNeighbor};
use morphgl_execute::{Control, EpochReport, Executor, Settings, Stop};
use morphgl_graph_store::{Dataset, FeatureMatrix, Topology};
use morphgl_plan::{Schedule, ScheduleShare, simulate};
use morphgl_registry::{
    Batching, BatchingContext, Fanouts, Operators, Place, Route, RouteOperators, SamplerSettings, SeedSet,
    TrainingContext, TrainingOperator, Transferring, TransferringContext, VirtualClock,
};
use morphgl_sim::{Config, Device, Work};
use morphgl_training_sim_ledger::{Ledger, SimLedger};
use morphgl_transferring_sim_copy::{SimDma, SimGather};

use super::row::{Statement, Verdict, agrees};

/// The paper has a performance model in the place of executions.
pub(crate) const EXECUTED: Statement =
    agrees("Executed epochs take what is predicted (within a tenth; MorphGL, Section IV-B3)");

/// Coefficient of variation of every phase's durations, where the plan has their means: an assumption, more than the variation of sizes
/// that M:6 counts, so that an epoch is not what is predicted by construction.
const VARIATION: f64 = 0.05;

/// Executes an epoch of a schedule of one device, all of its mini-batches.
///
/// # Errors
///
/// Shares whose training differs, or that the executor refuses; a mini-batch that was not trained once, or not whole.
pub(crate) fn execute(schedule: &Schedule) -> Result<EpochReport> {
    let place: Place = "sim:0".parse()?;
    let device = Device::in_virtual_time(place.clone(), config(schedule)?);
    let batches: Vec<u32> = (0..schedule.num_batches() as u32).collect();
    let dataset = Arc::new(ring(batches.len())?);
    let training = schedule.shares[0].keys.training.clone();
    let routes = schedule.shares.iter().map(|share| route(share, &dataset, &device)).collect::<Result<_>>()?;
    let context =
        TrainingContext { place: place.clone(), ..TrainingContext::new(Arc::clone(&dataset), serde_json::Value::Null) };
    let operator = Box::new(SimLedger::new(&context, &device)?);
    let operators = Operators { routes, trainers: vec![TrainingOperator { key: training, place, operator }] };
    let mut executor =
        Executor::new(operators, schedule, Settings::default())?.in_virtual_time(VirtualClock::default());
    let report = executor.train(0, &batches, &Stop::new(), &mut |_| Control::Continue)?;
    let trained = Ledger::from_tensors(&executor.training_mut()?.parameters()?)?.indices(0);
    ensure!(trained == batches, "not every mini-batch was trained once");
    Ok(report)
}

/// The durations of a schedule: those of the share that the host batches, and of the one that the device batches.
fn config(schedule: &Schedule) -> Result<Config> {
    let mut config = Config { noise: VARIATION, ..Config::instant(usize::MAX) };
    for share in &schedule.shares {
        let works = match share.in_place {
            false => [Work::BatchingCpu, Work::TransferringPcie],
            true => [Work::BatchingDevice, Work::TransferringDevice],
        };
        for (work, seconds) in works.into_iter().zip([share.batching, share.transferring]) {
            config.durations[work as usize] = Duration::try_from_secs_f64(seconds.mean)?;
        }
        let training = Duration::try_from_secs_f64(share.training.mean)?;
        let before = std::mem::replace(&mut config.durations[Work::Training as usize], training);
        ensure!(before.is_zero() || before == training, "shares with different durations of training");
    }
    Ok(config)
}

/// A graph whose nodes are so many seeds, each with two neighbours.
fn ring(seeds: usize) -> Result<Dataset> {
    let n = seeds.max(3) as u32;
    let neighbours: Vec<u32> = (0..n).flat_map(|v| [(v + n - 1) % n, (v + 1) % n]).collect();
    let ends: Vec<u64> = (0..=u64::from(n)).map(|v| 2 * v).collect();
    let topology = Topology::new(ends, neighbours, None).map_err(anyhow::Error::msg)?;
    let data: Vec<f32> = (0..n).map(|v| v as f32).collect();
    let labels = vec![0_i32; n as usize];
    let features = Some(FeatureMatrix::F32 { data: data.into(), dim: 1 });
    Ok(Dataset { features, labels: Some(labels.into()), num_classes: 1, ..Dataset::new("ring", topology) })
}

/// The simulated operators in the place of a share's.
fn route(share: &ScheduleShare, dataset: &Arc<Dataset>, device: &Device) -> Result<RouteOperators> {
    let fanouts: Fanouts = "2".parse()?;
    let nodes: Vec<u32> = (0..dataset.num_nodes() as u32).collect();
    let seeds = SeedSet::new("seeds", &nodes, dataset.num_nodes())?;
    let settings = SamplerSettings { batch_size: 1, ..fanouts.into() };
    let to = device.place().clone();
    let from = if share.in_place { to.clone() } else { Place::Host };
    let batching =
        BatchingContext { place: from.clone(), ..BatchingContext::new(Arc::clone(dataset), seeds, settings) };
    let transferring = TransferringContext::new(Arc::clone(dataset), from.clone(), to.clone());
    let (batching, transferring): (Arc<dyn Batching>, Box<dyn Transferring>) = match share.in_place {
        false => (Arc::new(CpuSimNeighbor::new(&batching, device)?), Box::new(SimDma::new(&transferring, device)?)),
        true => {
            let batching = BatchingContext { gather: false, ..batching };
            (Arc::new(SimNeighbor::new(&batching, device)?), Box::new(SimGather::new(&transferring, device)?))
        }
    };
    let keys = [&share.keys.batching, &share.keys.transferring, &share.keys.training].map(Clone::clone);
    Ok(RouteOperators { route: Route::new(keys, from, to), batching, transferring })
}

/// Executed epochs beside predicted ones.
#[derive(Debug, Default)]
pub(crate) struct Executed {
    epochs: usize,
    /// That of executed from predicted seconds, over predicted ones.
    largest_difference: f64,
}

impl Executed {
    /// Executes an epoch of a schedule, whose own simulation predicts it.
    pub(crate) fn run(&mut self, schedule: &Schedule) -> Result<EpochReport> {
        let report = execute(schedule)?;
        self.note(simulate(schedule).seconds, report.seconds);
        Ok(report)
    }

    /// Notes an epoch that was executed otherwise.
    pub(crate) fn note(&mut self, predicted: f64, executed: f64) {
        self.epochs += 1;
        self.largest_difference = self.largest_difference.max((executed / predicted - 1.0).abs());
    }

    /// Whether every epoch took what is predicted, within a tenth.
    pub(crate) fn verdict(&self) -> Verdict {
        let Self { epochs, largest_difference } = *self;
        let text = format!("{epochs} epochs within {:.1}%", 100.0 * largest_difference);
        Verdict::new(epochs > 0 && largest_difference < 0.1, text)
    }
}

#[cfg(test)]
mod tests {
    use super::super::pair::{Pair, Route};
    use super::*;

    #[test]
    fn every_plan_of_a_pair_takes_what_is_predicted() {
        let pair = Pair {
            batches: 300,
            workers: 3,
            host: 0.06,
            copying: 0.004,
            device: 0.01,
            gathering: 0.008,
            training: 0.012,
        };
        let mut executed = Executed::default();
        for plan in pair.plans().all() {
            let report = executed.run(&plan.schedule).unwrap_or_else(|e| panic!("{plan}: {e}"));
            assert_eq!(report.batches, 300, "{plan}");
        }
        let Executed { epochs, largest_difference } = executed;
        assert!(epochs > 3 && largest_difference > 0.0 && largest_difference < 0.05, "{executed:?}");
        let seconds = |route| execute(&pair.schedule(route)).expect("executed").seconds;
        // Two executions are equal bit for bit: durations are functions of the mini-batch.
        assert_eq!(seconds(Route::Host), seconds(Route::Host));
        assert!(seconds(Route::Device) > 300.0 * 0.03 * 0.95);
    }
}
