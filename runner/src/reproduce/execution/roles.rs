//! Devices with constant roles, executed in simulated time.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use morphgl_batching_sim_neighbor::{DEVICE_KEY, SimNeighbor};
use morphgl_execute::{Control, EpochReport, RolesDevice, RolesExecutor, Stop};
use morphgl_graph_store::Dataset;
use morphgl_group::{BUCKET_BYTES, GroupMember, HostExchange, VirtualSteps, Weights, join};
use morphgl_plan::{RolesProblem, Segment};
use morphgl_registry::{
    BatchId, BatchingContext, Fanouts, Operators, Place, Route, SamplerSettings, SeedSet, TrainingContext,
    TrainingOperator, Transferring, TransferringContext, VirtualClock,
};
use morphgl_sim::{Config, Device, Work};
use morphgl_training_sim_ledger::{KEY as LEDGER_KEY, Ledger, SimLedger};
use morphgl_transferring_sim_copy::{COPY_KEY, SimCopy};

use super::{Executed, VARIATION, ring};

/// Maximum wait of a trainer for the others, in real time.
const LIMIT: Duration = Duration::from_secs(60);

impl Executed {
    /// Executes an epoch in which `trainers` devices train and the others sample throughout; notes it beside the simulator's
    /// prediction.
    ///
    /// # Errors
    ///
    /// As [`execute`].
    pub(crate) fn run_roles(&mut self, problem: &RolesProblem, trainers: usize) -> Result<EpochReport> {
        let report = execute(problem, trainers)?;
        let predicted = problem.simulate(&[Segment { from: 0, trainers }]);
        self.note(predicted.unwrap_or(f64::INFINITY), report.seconds);
        Ok(report)
    }
}

/// Executes an epoch of devices with constant roles, all of its mini-batches, of which each trainer has one seed.
///
/// # Errors
///
/// Roles that the executor refuses; a share that was not trained once, or not whole.
fn execute(problem: &RolesProblem, trainers: usize) -> Result<EpochReport> {
    let schedule = problem.schedule(&[Segment { from: 0, trainers }]);
    let dataset = Arc::new(ring(problem.num_batches * trainers)?);
    let device = |number: usize| -> Result<Device> {
        Ok(Device::in_virtual_time(format!("sim:{number}").parse()?, config(problem, trainers)?))
    };
    let devices: Vec<Device> = (0..problem.devices).map(device).collect::<Result<_>>()?;
    let exchanges = HostExchange::group(trainers, LIMIT);
    let abort_handle = exchanges[0].abort_handle();
    let all_reduce = Duration::try_from_secs_f64(problem.all_reduce)?;
    let (samplers, origin) = (&devices[trainers..], Instant::now());
    let mut roles: Vec<RolesDevice> = devices.iter().map(without_a_role).collect();
    for (to, exchange) in exchanges.into_iter().enumerate() {
        let from = |sampler| transferring(&dataset, sampler, &devices[to]);
        roles[to].transferring = samplers.iter().map(from).collect::<Result<_>>()?;
        let member = GroupMember {
            exchange: Box::new(exchange),
            division: Arc::new(Weights::equal(1)),
            num_seeds: dataset.num_nodes(),
            batch_size: trainers,
            stop: None,
            observe: None,
            bucket_bytes: BUCKET_BYTES,
            virtual_steps: Some(VirtualSteps { clock: roles[to].clock.clone(), all_reduce, origin }),
        };
        let alone = Operators { routes: Vec::new(), trainers: vec![training(&dataset, &devices[to])?] };
        roles[to].training = join(alone, member)?.trainers.pop();
    }
    for (sampler, role) in samplers.iter().zip(&mut roles[trainers..]) {
        role.batching = Some((DEVICE_KEY, Arc::new(batching(&dataset, sampler, trainers)?)));
    }
    let abort = Box::new(move |why: &str| abort_handle.abort(why));
    let mut executor =
        RolesExecutor::new(roles, &schedule, Arc::new(share_of), abort, Some(LIMIT))?.in_virtual_time(all_reduce);
    let report = executor.train_on(0, EpochReport::default(), &Stop::new(), &mut |_| Control::Continue)?;
    let all: Vec<u32> = (0..problem.num_batches as u32).collect();
    for trainer in executor.trainers_mut()? {
        let trained = Ledger::from_tensors(&trainer.parameters()?)?.indices(0);
        ensure!(trained == all, "not every share was trained once");
    }
    Ok(report)
}

/// The positions of a trainer's seeds in a mini-batch, which has one seed per trainer.
fn share_of(_: BatchId, _: usize, rank: usize) -> Range<usize> {
    rank..rank + 1
}

/// The durations of a trainer's share.
fn config(problem: &RolesProblem, trainers: usize) -> Result<Config> {
    let mut config = Config { noise: VARIATION, ..Config::instant(usize::MAX) };
    let share = 1.0 / trainers as f64;
    for (work, seconds) in [
        (Work::BatchingDevice, problem.sampling.at(share)),
        (Work::TransferringPeer, problem.gathering.at(share)),
        (Work::Training, problem.training.at(share)),
    ] {
        config.durations[work as usize] = Duration::try_from_secs_f64(seconds)?;
    }
    Ok(config)
}

/// A device whose operators are still missing.
fn without_a_role(device: &Device) -> RolesDevice {
    RolesDevice {
        place: device.place().clone(),
        resource: device.place().to_string(),
        batching: None,
        transferring: Vec::new(),
        training: None,
        clock: VirtualClock::default(),
        ended: Arc::default(),
    }
}

fn batching(dataset: &Arc<Dataset>, device: &Device, batch_size: usize) -> Result<SimNeighbor> {
    let (fanouts, num_nodes): (Fanouts, _) = ("2".parse()?, dataset.num_nodes());
    let nodes: Vec<u32> = (0..num_nodes as u32).collect();
    let seeds = SeedSet::new("seeds", &nodes, num_nodes)?;
    let settings = SamplerSettings { batch_size, ..fanouts.into() };
    let context = BatchingContext::new(Arc::clone(dataset), seeds, settings);
    let context = BatchingContext { place: device.place().clone(), gather: false, ..context };
    Ok(SimNeighbor::new(&context, device)?)
}

fn transferring(dataset: &Arc<Dataset>, from: &Device, to: &Device) -> Result<(Route, Box<dyn Transferring>)> {
    let places = [from, to].map(|device| device.place().clone());
    let [source, target]: [Place; 2] = places.clone();
    let context = TransferringContext::new(Arc::clone(dataset), source, target);
    let [source, target] = places;
    let route = Route::new([DEVICE_KEY, COPY_KEY, LEDGER_KEY], source, target);
    Ok((route, Box::new(SimCopy::new(&context, from, to)?)))
}

fn training(dataset: &Arc<Dataset>, device: &Device) -> Result<TrainingOperator> {
    let (place, spec) = (device.place().clone(), serde_json::Value::Null);
    let context = TrainingContext { place: place.clone(), ..TrainingContext::new(Arc::clone(dataset), spec) };
    Ok(TrainingOperator { key: LEDGER_KEY, place, operator: Box::new(SimLedger::new(&context, device)?) })
}

#[cfg(test)]
mod tests {
    use morphgl_plan::Linear;

    use super::*;

    #[test]
    fn every_number_of_trainers_takes_what_is_predicted() {
        let of = |fixed, whole| Linear { fixed, whole };
        let problem = RolesProblem {
            num_batches: 200,
            devices: 4,
            sampling: of(0.001, 0.01),
            gathering: of(0.0005, 0.004),
            standby_gathering: of(0.0005, 0.004),
            training: of(0.002, 0.012),
            all_reduce: 0.001,
            queue: 16,
            ready: 2,
            switching: 0.0,
            staleness: 0,
        };
        let mut executed = Executed::default();
        for trainers in 1..4 {
            let report = executed.run_roles(&problem, trainers).expect("executed");
            assert_eq!(report.batches, 200, "{trainers} trainers");
        }
        let Executed { epochs, largest_difference } = executed;
        assert!(epochs == 3 && largest_difference > 0.0 && largest_difference < 0.05, "{executed:?}");
    }
}
