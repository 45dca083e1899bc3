//! Prints what this machine has. Run: `cargo run -p morphgl-registry --example alone-registry`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use morphgl_registry::{Registry, Result};

fn main() -> Result<()> {
    let registry = Registry::collect()?;
    let machine = registry.machine();
    println!("{}: {} cores, {} MiB of memory", machine.cpu, machine.cores, machine.memory_bytes >> 20);
    println!("{} operators linked, {} routes", registry.status().len(), registry.routes().len());
    Ok(())
}
