//! Two routes without the runner: every mini-batch is trained exactly once, with the content that the CPU computes.

use std::collections::VecDeque;
use std::sync::Arc;

use morphgl_batching_cpu::CpuNeighbor;
use morphgl_batching_sim_neighbor::{CpuSimNeighbor, SimNeighbor};
use morphgl_conformance::batching::graphs;
use morphgl_registry::{
    BatchId, Batching, BatchingContext, Fanouts, Handle, MiniBatch, ModelState, Place, SamplerSettings, SeedSet,
    Training, TrainingContext, Transferring, TransferringContext,
};
use morphgl_sim::{Device, digest};
use morphgl_training_sim_ledger::{Ledger, SimLedger};
use morphgl_transferring_sim_copy::{SimDma, SimGather};

const NUM_BATCHES: u32 = 50;

fn context(place: &Place, gather: bool) -> BatchingContext {
    let dataset = Arc::new(graphs::random(1000, 6, true));
    let seeds: Vec<u32> = (0..1000).collect();
    let fanouts: Fanouts = "4,3".parse().expect("fanouts");
    BatchingContext {
        gather,
        place: place.clone(),
        ..BatchingContext::new(
            dataset,
            SeedSet::new("seeds", &seeds, 1000).expect("every node"),
            SamplerSettings { batch_size: 20, seed: 3, ..fanouts.into() },
        )
    }
}

fn id(index: u32) -> BatchId {
    BatchId { epoch: 2, index }
}

fn wait<T>(handle: Handle<T>) -> T {
    handle.wait().expect("no fault").0
}

/// Trains even mini-batches on route 0 and odd ones on route 1, with as many in flight as memory allows.
fn train(device: &Device) -> Ledger {
    let on_host = context(&Place::Host, true);
    let on_device = context(device.place(), false);
    let (cpu, sim) = (CpuSimNeighbor::new(&on_host, device), SimNeighbor::new(&on_device, device));
    let (cpu, sim) = (cpu.expect("built"), sim.expect("built"));
    assert_eq!((cpu.num_batches(), sim.num_batches()), (NUM_BATCHES as usize, NUM_BATCHES as usize));
    let (mut cpu, mut sim) = (cpu.worker(1).expect("a worker"), sim.worker(1).expect("a worker"));
    let transferring =
        |from: &Place| TransferringContext::new(Arc::clone(&on_host.dataset), from.clone(), device.place().clone());
    let mut dma = SimDma::new(&transferring(&Place::Host), device).expect("built");
    let mut gather = SimGather::new(&transferring(device.place()), device).expect("built");
    let training = TrainingContext {
        place: device.place().clone(),
        ..TrainingContext::new(Arc::clone(&on_host.dataset), Default::default())
    };
    let mut training = SimLedger::new(&training, device).expect("built");
    let mut arriving: VecDeque<Handle<MiniBatch>> = VecDeque::new();
    let mut train_first = |arriving: &mut VecDeque<Handle<MiniBatch>>| {
        let batch = wait(arriving.pop_front().expect("one is on its way"));
        wait(training.accumulate(&batch).expect("queued"));
        wait(training.step().expect("queued"));
    };
    for index in 0..NUM_BATCHES {
        if arriving.len() + 1 == device.config().memory {
            train_first(&mut arriving);
        }
        arriving.push_back(if index % 2 == 0 {
            dma.transfer(wait(cpu.prepare(id(index), None).expect("made"))).expect("queued")
        } else {
            gather.transfer(wait(sim.prepare(id(index), None).expect("queued"))).expect("queued")
        });
    }
    while !arriving.is_empty() {
        train_first(&mut arriving);
    }
    Ledger::from_tensors(&training.parameters().expect("a ledger")).expect("what a ledger wrote")
}

#[test]
fn fifty_mini_batches_on_two_routes() {
    let config = "batching-cpu=300us,transferring-pcie=200us,batching-device=400us,transferring-device=100us,\
                  training=500us,memory=4,noise=0.3";
    let device = Device::new("sim:0".parse().expect("a place"), config.parse().expect("a configuration"));
    let ledger = train(&device);
    assert_eq!(ledger.indices(2), (0..NUM_BATCHES).collect::<Vec<_>>(), "each exactly once");
    assert_eq!(ledger.entries.len(), NUM_BATCHES as usize, "of this epoch alone");
    let reference = CpuNeighbor::new(&context(&Place::Host, true)).expect("built");
    let mut reference = reference.worker(1).expect("a worker");
    for index in 0..NUM_BATCHES {
        let batch = wait(reference.prepare(id(index), None).expect("made"));
        let host = batch.host().expect("on the host");
        assert!(host.features.is_some());
        let entry = ledger.entries[&id(index)];
        assert_eq!((entry.digest, entry.changes), (digest(host), 0), "{}", host.id);
    }
    let statistics = device.statistics();
    assert_eq!((statistics.sim.operations, statistics.pcie.operations), (100, 75), "{statistics:?}");
    assert_eq!(statistics.memory_used, 0);
    assert!((2..=4).contains(&statistics.memory_peak), "{statistics:?}");
    let busy: std::time::Duration =
        (0..NUM_BATCHES).map(|i| device.config().duration(morphgl_sim::Work::Training, id(i))).sum();
    assert!(statistics.sim.busy >= busy, "every training held the device for its whole duration");
}
