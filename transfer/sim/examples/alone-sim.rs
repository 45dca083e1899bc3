//! Two streams compete for one device. Run: `cargo run -p morphgl-sim --example alone-sim`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use morphgl_registry::{BatchId, Result};
use morphgl_sim::{Device, Stream, Work};

fn main() -> Result<()> {
    let device = Device::new("sim:0".parse()?, "batching-device=8ms,training=5ms,noise=0.1".parse()?);
    let batching = Stream::new(&device, &"Batching_PCIe+SIM_Neighbor".parse()?, Work::BatchingDevice, ())?;
    let training = Stream::new(&device, &"Training_SIM_Ledger".parse()?, Work::Training, ())?;
    let handles: Vec<_> = (0..5)
        .flat_map(|index| {
            [&batching, &training].map(|s| s.submit(BatchId { epoch: 0, index }, (), move |(), ()| Ok(index)))
        })
        .collect();
    for (name, handle) in ["batching", "training"].into_iter().cycle().zip(handles) {
        let (index, took) = handle.wait()?;
        println!("{name} of mini-batch {index} occupied the simulated device for {took:?}");
    }
    println!("{:?}", device.statistics());
    Ok(())
}
