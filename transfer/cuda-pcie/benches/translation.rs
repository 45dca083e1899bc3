//! GB/s of gathers of random rows from host memory, by what the translation of their addresses costs: kind of memory (registered
//! huge pages, memory of the driver, memory of the NUMA node in the driver's pages), bytes of the table, order of the ids
//! (random, by ranges of 2 MiB, sorted) and grid. Every first gather's rows are compared with the table. Prints lines of JSON.
//!
//! `cargo bench -p morphgl-transferring-cuda --bench translation -- [--row-bytes 128,200]
//! [--tables 4294967296,17179869184,1073741824,268435456] [--blocks 24,132,16,264,48] [--threads 128] [--ids 524288]
//! [--rounds 5] [--seconds 100] [--emulated]`. Needs a CUDA device, and host memory of twice the largest table; `--emulated` runs it
//! on the emulated device, where rates mean nothing.
#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]

#[path = "translation/probe.rs"]
mod probe;

use std::io::Write;

use morphgl_cuda::Device;
use morphgl_registry::Machine;
use morphgl_transferring_cuda::ZERO_COPY_KEY;
use probe::{Failure, Plan};

fn main() -> Result<(), Failure> {
    let all: Vec<String> = std::env::args().collect();
    let after = |name: &str| all.iter().position(|a| a == name).and_then(|i| all.get(i + 1)).map(String::as_str);
    let list = |name: &str, default: &str| -> Result<Vec<usize>, Failure> {
        Ok(after(name).unwrap_or(default).split(',').map(str::parse).collect::<Result<_, _>>()?)
    };
    let emulated = all.iter().any(|a| a == "--emulated");
    if let Err(unavailable) = morphgl_cuda::probe(&Machine::probe()) {
        println!("nothing measured: {}", unavailable.reason);
        return Ok(());
    }
    if cfg!(feature = "emulate") && !emulated {
        println!("nothing measured: the device is emulated; give --emulated");
        return Ok(());
    }
    let plan = Plan {
        row_bytes: list("--row-bytes", "128,200")?,
        tables: list("--tables", "4294967296,17179869184,1073741824,268435456")?,
        blocks: list("--blocks", "24,132,16,264,48")?,
        threads: after("--threads").unwrap_or("128").parse()?,
        ids: after("--ids").unwrap_or("524288").parse()?,
        rounds: after("--rounds").unwrap_or("5").parse()?,
        seconds: after("--seconds").unwrap_or("100").parse()?,
    };
    let device = Device::open(&"cuda:0".parse()?, &ZERO_COPY_KEY)?;
    probe::run(&device, &plan, &mut |line| {
        println!("{line}");
        // What is measured so far is kept where a time limit ends the program.
        let _ = std::io::stdout().flush();
    })
}
