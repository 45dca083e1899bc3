//! What the bench measures beside whole steps: the machine's limits, and how near the kernels come.

use std::hint::black_box;
use std::time::Instant;

use crate::level::{Level, fma, leveled};
use crate::product::{Left, Right, multiply, pack, packed_len};

/// Seconds of one product of `rows` x `depth` with `depth` x `columns`: forward, or by the weight if `transposed`.
pub fn product_seconds([rows, columns, depth]: [usize; 3], transposed: bool) -> f64 {
    let level = Level::best();
    let weight = vec![0.5f32; depth * columns];
    let mut packed = vec![0.0; packed_len(depth, columns)];
    let input = vec![0.25f32; rows * depth];
    let mut out = vec![0.0f32; rows * columns];
    let mut partial = vec![0.0f32; depth * columns];
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let start = Instant::now();
        pack(&weight, [depth, columns], true, &mut packed);
        for first in (0..rows).step_by(96) {
            let n = 96.min(rows - first);
            let (x, y) = (&input[first * depth..][..n * depth], &mut out[first * columns..][..n * columns]);
            if transposed {
                let factors = (Left::transposed(y, columns), Right::rows(x, depth));
                multiply(level, [columns, depth, n], factors, &mut partial, true);
            } else {
                multiply(level, [n, columns, depth], (Left::rows(x, depth), Right::packed(&packed, depth)), y, false);
            }
        }
        best = best.min(start.elapsed().as_secs_f64());
        black_box((&out, &partial));
    }
    best
}

leveled! {
    /// Multiplies and adds in registers alone; returns the operations done.
    fn register_flops = register_flops_inner(rounds: usize) -> f64
}

#[inline(always)]
fn register_flops_inner<const FUSED: bool>(rounds: usize) -> f64 {
    let mut sums = [[black_box(0.5f32); 16]; 12];
    let (a, b) = ([black_box(0.999f32); 16], [black_box(0.001f32); 16]);
    for _ in 0..rounds {
        for sum in &mut sums {
            for i in 0..16 {
                sum[i] = fma::<FUSED>(sum[i], a[i], b[i]);
            }
        }
    }
    black_box(&sums);
    (rounds * 12 * 16 * 2) as f64
}

/// Floating point operations a second of one thread, from registers alone: the best of a few trials.
pub fn peak_flops() -> f64 {
    let once = || {
        let start = Instant::now();
        let done = register_flops(Level::best(), 2_000_000);
        done / start.elapsed().as_secs_f64()
    };
    (0..9).map(|_| once()).fold(0.0, f64::max)
}
