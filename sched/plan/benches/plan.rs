//! How long planning takes: n = 1,179, all policies and splits.
//!
//! Run: `cargo bench -p morphgl-plan`. Machines with an accelerator: 1 to 16 workers, 20 sets of durations each, every one
//! log-uniform over three decades. Machines without: 16 cores, pools and training measured at several counts of threads.
#![allow(clippy::print_stdout, reason = "a bench prints")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;
use std::time::Instant;

use common::{CpuOnly, Random};
use morphgl_plan::{Policy, Problem, plan, simulate};

const N: usize = 1_179;

/// Milliseconds: the median of three runs.
fn time(problem: &Problem) -> f64 {
    let run = |_| {
        let start = Instant::now();
        black_box(plan(black_box(problem)).expect("there is memory"));
        1e3 * start.elapsed().as_secs_f64()
    };
    let mut runs = [0, 1, 2].map(run);
    runs.sort_by(f64::total_cmp);
    runs[1]
}

fn print(what: &str, mut times: Vec<f64>) {
    times.sort_by(f64::total_cmp);
    let (median, most) = (times[times.len() / 2], times[times.len() - 1]);
    println!("{what:<44} {:>4} plans  median {median:>7.2} ms  max {most:>7.2} ms", times.len());
}

/// 16 cores; batching measured with these threads per worker, and training with 1, 2, 4, 8 and 16 threads.
fn cores(random: &mut Random, threads: &[usize]) -> CpuOnly {
    let (batching, training) = (random.seconds(), random.seconds());
    // Some tenths of a phase are not faster with more threads.
    let serial = 0.4 * random.unit();
    let speedup = |count: usize| serial + (1.0 - serial) / count as f64;
    let mut pools: Vec<(usize, usize, f64)> = Vec::new();
    for &t in threads {
        for w in [1, 2, 4, 8, 16].into_iter().filter(|w| w * t <= 16) {
            pools.push((w, t, batching * speedup(t) * speedup(w)));
        }
    }
    let training = [1, 2, 4, 8, 16].map(|t| (t, training * speedup(t))).to_vec();
    CpuOnly { n: N, cores: 16, batching: pools, transferring: 0.0, training }
}

fn main() {
    let mut random = Random(1);
    let mut all = Vec::new();
    for workers in [1, 2, 4, 8, 12, 16] {
        let mut times = Vec::new();
        for _ in 0..20 {
            let two = common::TwoRoutes { workers, ..random.two_routes(N) };
            times.push(time(&two.problem()));
        }
        all.extend(times.clone());
        print(&format!("accelerator, {workers} workers"), times);
    }
    print("accelerator, all", all);
    for threads in [&[1][..], &[1, 2], &[1, 2, 4], &[1, 2, 4, 8, 16]] {
        let times = (0..20).map(|_| time(&cores(&mut random, threads).problem())).collect();
        print(&format!("16 cores, workers of {threads:?} threads"), times);
    }
    let two = random.two_routes(N);
    for policy in Policy::ALL {
        let schedule = two.schedule(policy, N / 2, (5, 1));
        let start = Instant::now();
        for _ in 0..200 {
            black_box(simulate(black_box(&schedule)));
        }
        println!("one epoch simulated, {policy:<12} {:>8.1} µs", 1e6 * start.elapsed().as_secs_f64() / 200.0);
    }
}
