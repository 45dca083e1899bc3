//! Trains two mini-batches on the simulated accelerator. Run: `cargo run -p morphgl-training-sim-ledger --example alone-sim-ledger`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;

use morphgl_conformance::training::{batch, tiny};
use morphgl_registry::{Result, Training, TrainingContext};
use morphgl_sim::{Device, SimBatch};
use morphgl_training_sim_ledger::{KEY, SimLedger};

fn main() -> Result<()> {
    let device = Device::new("sim:0".parse()?, "training=5ms".parse()?);
    let dataset = Arc::new(tiny());
    let context =
        TrainingContext { place: "sim:0".parse()?, ..TrainingContext::new(Arc::clone(&dataset), Default::default()) };
    let mut trainer = SimLedger::new(&context, &device)?;
    for epoch in 0..2 {
        let arrived = SimBatch::copy(&device, &KEY, &batch(&dataset, &[0, 1, 2], 2, epoch))?.into_batch();
        let (score, took) = trainer.accumulate(&arrived)?.wait()?;
        trainer.step()?.wait()?;
        println!("{}: {} labelled seeds in {took:?}", arrived.id(), score.count);
    }
    for (id, entry) in trainer.ledger()?.entries {
        println!("{id}: trained {} time(s), digest {:016x}", entry.times, entry.digest);
    }
    Ok(())
}
