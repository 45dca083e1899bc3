//! Plans an epoch from durations given by hand, without graph, operators or runner, and follows the plan as an executor does.
//!
//! Run: `cargo run -p morphgl-plan --example alone-plan`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;

use morphgl_plan::{
    Bytes, Candidate, Durations, Hardware, Problem, Replay, Resource, RouteKeys, WhatIf, plan, simulate,
};

fn main() -> Result<(), Box<dyn Error>> {
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let key = |name: &str| name.parse().expect("a key");
    let keys = |batching: &str, transferring: &str| RouteKeys {
        batching: key(batching),
        transferring: key(transferring),
        training: key("Training_CUDA_Native"),
    };
    // Seconds of one mini-batch: seven workers of 250 ms each, a transfer of 12 ms, batching by the device 25 ms and gathering
    // 10 ms, training 30 ms.
    let host = Candidate {
        keys: keys("Batching_CPU_Neighbor", "Transferring_PCIe_Dma"),
        hardware: Hardware { batching: names(&["CPU"]), transferring: names(&["PCIe"]), training: names(&["CUDA"]) },
        in_place: false,
        on_host: false,
        durations: Durations::constant(7, 0.250, 0.012, 0.030)?,
        bytes: Bytes::default(),
    };
    let device = Candidate {
        keys: keys("Batching_CUDA+PCIe_Neighbor", "Transferring_CUDA+PCIe_ZeroCopy"),
        hardware: Hardware {
            batching: names(&["CUDA", "PCIe"]),
            transferring: names(&["CUDA", "PCIe"]),
            training: names(&["CUDA"]),
        },
        in_place: true,
        on_host: false,
        durations: Durations::constant(1, 0.025, 0.010, 0.030)?,
        bytes: Bytes::default(),
    };
    let resources = vec![Resource::shared("CPU", 7), Resource::exclusive("PCIe"), Resource::exclusive("CUDA")];
    let problem = Problem::new(1_179, resources, vec![host, device])?;

    let plans = plan(&problem)?;
    print!("{plans}");
    let faster: WhatIf = "CPU*2".parse()?;
    println!("with {faster}: {}", plan(&faster.apply(&problem)?)?.best());

    // An executor begins the steps that the replay allows and reports their ends; here they take no time.
    let schedule = &plans.best().schedule;
    let mut replay = Replay::new(schedule, &simulate(schedule).order);
    while !replay.is_done() {
        let begun: Vec<_> = std::iter::from_fn(|| replay.begin()).collect();
        begun.into_iter().for_each(|b| replay.end(b));
    }
    println!("{} mini-batches trained", replay.trained());
    Ok(())
}
