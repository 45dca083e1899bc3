//! Adds values of all CUDA devices by NCCL. Run: `cargo run -p morphgl-group-nccl --example alone-group-nccl`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::thread;
use std::time::Duration;

use morphgl_group::{Exchange, HostExchange};
use morphgl_group_nccl::NcclExchange;
use morphgl_registry::{Key, Machine, Place, Result};

fn main() -> Result<()> {
    let limit = Duration::from_secs(10);
    let key: Key = "Training_CUDA_Native".parse()?;
    let devices = morphgl_cuda::accelerators(&Machine::probe()).into_iter().map(|found| found.place);
    let trainers: Vec<(Key, Place)> = devices.map(|place| (key.clone(), place)).collect();
    let ends = match NcclExchange::group(HostExchange::group(trainers.len(), limit), &trainers, limit) {
        Ok(ends) => ends,
        Err(why) => {
            println!("{why}");
            return Ok(());
        }
    };
    if ends.is_empty() {
        println!("there is no CUDA device");
    }
    thread::scope(|scope| {
        for mut end in ends {
            scope.spawn(move || {
                let mut values = [1.0, end.rank() as f32];
                let added = end.all_reduce(&mut values);
                println!("{end:?}: {added:?}, {values:?}");
            });
        }
    });
    Ok(())
}
