//! The group without the runner: how long an all-reduce of gradients takes within a process.
//! Run: `cargo run --release -p morphgl-group --example alone-group`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::thread;
use std::time::{Duration, Instant};

use morphgl_group::{Exchange, HostExchange};

const ROUNDS: u32 = 200;

/// Seconds of one all-reduce of `len` values by `size` trainers, and the first sum.
fn all_reduce(size: usize, len: usize) -> (f64, f32) {
    let trainer = |mut end: HostExchange| {
        move || {
            let mut values = vec![0.0f32; len];
            let start = Instant::now();
            for _ in 0..ROUNDS {
                values.fill(1.0);
                end.all_reduce(&mut values).expect("all trainers add");
            }
            (start.elapsed().as_secs_f64() / f64::from(ROUNDS), values[0])
        }
    };
    thread::scope(|scope| {
        let ends = HostExchange::group(size, Duration::from_secs(60));
        let running: Vec<_> = ends.into_iter().map(|end| scope.spawn(trainer(end))).collect();
        let all = running.into_iter().map(|thread| thread.join().expect("no trainer panics"));
        all.fold((0.0, 0.0), |(longest, _), (seconds, sum)| (f64::max(longest, seconds), sum))
    })
}

fn main() {
    println!("trainers  values     seconds per all-reduce");
    for len in [10_000, 1_000_000] {
        for size in [1, 2, 4] {
            let (seconds, sum) = all_reduce(size, len);
            assert_eq!(sum, size as f32);
            println!("{size:>8}  {len:>8}  {seconds:.6}");
        }
    }
}
