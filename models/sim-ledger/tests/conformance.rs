//! The part of the Training suite that applies to a trainer that learns nothing: state, not numbers. The mini-batches are
//! the suite's.

use std::sync::Arc;
use std::time::Duration;

use morphgl_conformance::training::{batch, tiny};
use morphgl_registry::{Gradients, HostBatch, MiniBatch, ModelState, NamedTensor, Training, TrainingContext};
use morphgl_sim::{Device, SimBatch, digest};
use morphgl_training_sim_ledger::{Entry, KEY, SimLedger};

fn device(config: &str) -> Device {
    Device::new("sim:0".parse().expect("a place"), config.parse().expect("a configuration"))
}

fn context() -> TrainingContext {
    TrainingContext {
        place: "sim:0".parse().expect("a place"),
        ..TrainingContext::new(Arc::new(tiny()), Default::default())
    }
}

fn trainer(device: &Device) -> SimLedger {
    SimLedger::new(&context(), device).expect("built")
}

fn host(seeds: &[u32], epoch: u32) -> HostBatch {
    batch(&tiny(), seeds, 2, epoch)
}

fn on(device: &Device, batch: &HostBatch) -> MiniBatch {
    SimBatch::copy(device, &KEY, batch).expect("room").into_batch()
}

fn accumulate(trainer: &mut SimLedger, batch: &MiniBatch) -> u64 {
    let (score, _) = trainer.accumulate(batch).and_then(|h| h.wait()).expect("accumulated");
    assert_eq!((score.loss_sum, score.correct), (0.0, 0));
    score.count
}

fn step(trainer: &mut SimLedger) -> Result<Duration, String> {
    trainer.step().and_then(|h| h.wait()).map(|((), took)| took).map_err(|e| e.to_string())
}

#[test]
fn trained_mini_batches_are_recorded() {
    let device = device("training=0s");
    let mut trainer = trainer(&device);
    let batch = host(&[0, 1, 2], 3);
    let labelled = batch.labels.iter().filter(|l| **l >= 0).count() as u64;
    for times in 1..3 {
        let ours = on(&device, &batch);
        assert_eq!(accumulate(&mut trainer, &ours), labelled);
        let ledger = trainer.ledger().expect("a ledger");
        let entry = Entry { times, digest: digest(&batch), changes: 0 };
        assert_eq!(ledger.entries.into_iter().collect::<Vec<_>>(), [(batch.id, entry)]);
    }
    let other = HostBatch { id: batch.id, ..host(&[4, 5], 3) };
    accumulate(&mut trainer, &on(&device, &other));
    let ledger = trainer.ledger().expect("a ledger");
    assert_eq!(ledger.entries[&batch.id], Entry { times: 3, digest: digest(&other), changes: 1 });
    assert_eq!(ledger.indices(3), [batch.id.index; 3]);
}

#[test]
fn training_occupies_the_device_and_a_step_takes_no_time() {
    let device = device("training=40ms");
    let mut trainer = trainer(&device);
    let ours = on(&device, &host(&[0, 1], 0));
    let handle = trainer.accumulate(&ours).expect("queued");
    drop(ours);
    assert!(handle.wait().expect("trained").1 >= Duration::from_millis(40));
    assert_eq!(device.statistics().memory_used, 0, "the mini-batch was kept for as long as it was read");
    assert_eq!(step(&mut trainer), Ok(Duration::ZERO));
    assert_eq!((device.statistics().sim.operations, device.statistics().pcie.operations), (1, 0));
}

#[test]
fn a_step_needs_accumulated_seeds() {
    let device = device("training=0s");
    let mut trainer = trainer(&device);
    let nothing =
        "Training_SIM_Ledger: nothing was accumulated since the last step; accumulate a mini-batch first".to_string();
    assert_eq!(step(&mut trainer), Err(nothing.clone()));
    let count = accumulate(&mut trainer, &on(&device, &host(&[0, 1], 0)));
    assert_eq!(trainer.gradients().expect("a count"), Gradients { tensors: Vec::new(), count });
    assert!(step(&mut trainer).is_ok());
    assert_eq!(step(&mut trainer), Err(nothing));
    trainer.set_gradients(&Gradients { tensors: Vec::new(), count: 5 }).expect("a count alone");
    assert!(step(&mut trainer).is_ok());
}

#[test]
fn a_restored_copy_continues_alike() {
    let device = device("training=0s");
    let (mut one, mut two) = (trainer(&device), trainer(&device));
    accumulate(&mut one, &on(&device, &host(&[0, 1], 0)));
    two.set_parameters(&one.parameters().expect("a ledger")).expect("what a ledger wrote");
    two.set_optimizer_state(&one.optimizer_state().expect("none")).expect("none");
    for trainer in [&mut one, &mut two] {
        accumulate(trainer, &on(&device, &host(&[2], 1)));
    }
    let ledger = one.ledger().expect("a ledger");
    assert_eq!(ledger, two.ledger().expect("a ledger"));
    assert_eq!(ledger.entries.len(), 2);
    let foreign = NamedTensor { name: "layers.0.weight".into(), shape: vec![1], values: vec![0.5] };
    let error = two.set_parameters(std::slice::from_ref(&foreign)).expect_err("no ledger").to_string();
    assert_eq!(
        error,
        "Training_SIM_Ledger: tensor \"layers.0.weight\" is not part of a ledger; give what a ledger wrote"
    );
    assert!(two.set_optimizer_state(std::slice::from_ref(&foreign)).is_err());
    assert!(two.set_gradients(&Gradients { tensors: vec![foreign], count: 1 }).is_err());
    assert_eq!(two.ledger().expect("a ledger"), ledger, "refused tensors change nothing");
}

#[test]
fn scores_and_inference_are_errors() {
    let device = device("");
    let mut trainer = trainer(&device);
    let said = "Training_SIM_Ledger: the simulated accelerator learns nothing; evaluate with --evaluate none";
    assert_eq!(trainer.infer(&[0]).expect_err("refused").to_string(), said);
    let ours = on(&device, &host(&[0], 0));
    assert_eq!(trainer.score(&ours).expect_err("refused").to_string(), said);
}

#[test]
fn errors_name_mini_batch_and_cause() {
    let sim = device("training=0s");
    let mut trainer = trainer(&sim);
    let lacking = HostBatch { features: None, ..host(&[0], 0) };
    let error = trainer.accumulate(&on(&sim, &lacking)).and_then(|h| h.wait()).expect_err("no features").to_string();
    assert!(error.starts_with(&format!("{KEY}, {}: it has no features; ", lacking.id)), "{error}");
    assert!(trainer.accumulate(&MiniBatch::Host(host(&[0], 0))).is_err(), "it reads on the device");
    let elsewhere = on(&device("name=other"), &host(&[0], 0));
    let error = trainer.accumulate(&elsewhere).expect_err("another device").to_string();
    assert!(error.contains("build a route's operators with one configuration"), "{error}");
    let mut mixed = SimBatch::copy(&sim, &KEY, &host(&[0], 0)).expect("room");
    mixed.tamper(|content| content.id.index += 5).expect("nobody reads it");
    let error = trainer.accumulate(&mixed.into_batch()).and_then(|h| h.wait()).expect_err("mixed up").to_string();
    assert!(error.contains("content was mixed up") && error.matches("mini-batch ").count() == 2, "{error}");
    let context = TrainingContext { place: "sim:1".parse().expect("a place"), ..context() };
    let error = SimLedger::new(&context, &sim).expect_err("another place").to_string();
    assert_eq!(error, "Training_SIM_Ledger: it trains at sim:0, not at sim:1; give that place");
    assert!(trainer.ledger().expect("a ledger").entries.is_empty(), "what failed was not trained");
}
