//! Speed of a step.
#![allow(clippy::print_stdout, reason = "a bench prints")]
use morphgl_training_cpu_native::probe;
fn main() {
    let peak = probe::peak_flops();
    println!("peak {:.1} GFLOP/s", peak / 1e9);
    for s in [[40_000, 256, 128], [9_000, 256, 256], [100_000, 16, 128], [1024, 40, 256], [40_000, 40, 256]] {
        for t in [false, true] {
            let f = 2.0 * (s[0] * s[1] * s[2]) as f64;
            let sec = probe::product_seconds(s, t);
            println!("{s:?} {t} {:.1} GFLOP/s {:.2}", f / sec / 1e9, f / sec / peak);
        }
    }
}
