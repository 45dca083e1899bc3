//! Speed of graph attention, forward and backward, against the speed of merely reading the same rows.
//!
//! Run: `cargo bench -p morphgl-training-cpu-native --bench attention -- [--json] [--threads 1,4] [--rounds 15]
//! [--instructions N] [--small-pages]`. Blocks are like those of a sampler on ogbn-arxiv: 40,000 rows of random sources out
//! of 120,000. "limit" gathers the rows of all edges with the same prefetches and adds them up (twice for backward, which
//! reads the sources' rows by destination and the gradient's rows by source); its time over attention's time is the share
//! reached. GB/s counts the bytes that must move: rows by edge, coefficients, outputs.
#![allow(clippy::print_stdout, reason = "a bench prints")]

use std::hint::black_box;
use std::time::Instant;

use morphgl_model_core::{Dropout, DropoutSite};
use morphgl_platform::SimdLevel;
use morphgl_training_cpu_native::attention::{Attention, Edges, Grads, Inputs, Options, Transposed};
use rayon::prelude::*;

const NUM_DST: usize = 40_000;
const NUM_SRC: usize = 120_000;

/// Memory in huge pages where the system has them; never freed.
fn buffer(len: usize, small: bool) -> &'static mut [f32] {
    const PAGE: usize = 2 << 20;
    let bytes = (4 * len.max(1)).next_multiple_of(PAGE);
    let layout = std::alloc::Layout::from_size_align(bytes, PAGE).expect("a layout");
    // SAFETY: the allocation has `bytes` zeroed bytes, so `len` valid f32, and no other reference.
    unsafe {
        let start = std::alloc::alloc(layout);
        assert!(!start.is_null(), "{bytes} bytes of memory");
        #[cfg(target_os = "linux")]
        {
            unsafe extern "C" {
                fn madvise(start: *mut u8, len: usize, advice: i32) -> i32;
            }
            // MADV_HUGEPAGE or MADV_NOHUGEPAGE; the system may refuse the advice.
            madvise(start, bytes, if small { 15 } else { 14 });
        }
        start.write_bytes(0, bytes);
        std::slice::from_raw_parts_mut(start.cast(), len)
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * n as u128) >> 64) as usize
    }

    fn fill(&mut self, values: &mut [f32]) {
        values.iter_mut().for_each(|x| *x = self.below(1 << 20) as f32 / (1 << 19) as f32 - 1.0);
    }
}

struct Block {
    indptr: Vec<u32>,
    indices: Vec<u32>,
    transposed: [Vec<u32>; 3],
}

fn block(edges: usize) -> Block {
    let mut random = Random(88172645463325252);
    let mut degrees = vec![0u32; NUM_DST];
    (0..edges).for_each(|_| degrees[random.below(NUM_DST)] += 1);
    let mut indptr = vec![0];
    degrees.iter().for_each(|d| indptr.push(indptr[indptr.len() - 1] + d));
    let indices: Vec<u32> = (0..edges).map(|_| random.below(NUM_SRC) as u32).collect();
    let mut starts = vec![0u32; NUM_SRC + 1];
    indices.iter().for_each(|&src| starts[src as usize + 1] += 1);
    (0..NUM_SRC).for_each(|v| starts[v + 1] += starts[v]);
    let (mut next, mut dst, mut edge) = (starts.clone(), vec![0; edges], vec![0; edges]);
    for row in 0..NUM_DST {
        for e in indptr[row]..indptr[row + 1] {
            let index = &mut next[indices[e as usize] as usize];
            (dst[*index as usize], edge[*index as usize]) = (row as u32, e);
            *index += 1;
        }
    }
    Block { indptr, indices, transposed: [starts, dst, edge] }
}

/// Adds up the rows in `order`, with prefetches.
fn gather(order: &[u32], values: &[f32], cols: usize) -> f32 {
    let ahead = (4096 / (4 * cols)).clamp(2, 24);
    let part = |first: usize| {
        let mut sums = vec![0.0f32; cols];
        for k in first..(first + 4096).min(order.len()) {
            #[cfg(target_arch = "x86_64")]
            if let Some(&next) = order.get(k + ahead) {
                for line in (0..cols).step_by(16) {
                    let at = values.as_ptr().wrapping_add(next as usize * cols + line);
                    // SAFETY: a prefetch reads nothing and never faults.
                    unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast()) };
                }
            }
            let row = &values[order[k] as usize * cols..][..cols];
            sums.iter_mut().zip(row).for_each(|(s, x)| *s += x);
        }
        sums.iter().sum::<f32>()
    };
    (0..order.len().div_ceil(4096)).into_par_iter().map(|task| part(task * 4096)).sum()
}

fn argument(name: &str) -> Option<String> {
    std::env::args().skip_while(|a| a != name).nth(1)
}

fn main() {
    let has_flag = |name: &str| std::env::args().any(|a| a == name);
    let (json, small) = (has_flag("--json"), has_flag("--small-pages"));
    let rounds: usize = argument("--rounds").map_or(15, |r| r.parse().expect("--rounds takes a number"));
    let threads = argument("--threads").unwrap_or_else(|| "1,4".into());
    let threads: Vec<usize> = threads.split(',').map(|t| t.parse().expect("--threads takes numbers")).collect();
    let index: usize = argument("--instructions").map_or(0, |i| i.parse().expect("--instructions takes a number"));
    let level = SimdLevel::available().rev().nth(index).expect("a level");
    if !json {
        println!("{level:?}; ms: min / median / max of {rounds} rounds; limit: ms min, and its share of attention's");
    }
    for edges in [200_000, 450_000, 700_000] {
        let block = block(edges);
        for (heads, width, drop, self_loops) in
            [(1, 64, 0.0, false), (1, 40, 0.0, false), (4, 16, 0.0, true), (4, 16, 0.5, true), (4, 64, 0.0, true)]
        {
            let nodes: Vec<u32> = (0..NUM_DST as u32).collect();
            let dropout = Dropout::new(1, 0, 0, 0, DropoutSite::Attention, drop).map(|dropout| (dropout, &nodes[..]));
            let options = Options { heads, width, slope: 0.2, self_loops, dropout, level };
            let attention =
                Attention::new(Edges { indptr: &block.indptr, indices: &block.indices, num_src: NUM_SRC }, options);
            let cols = heads * width;
            let mut random = Random(42);
            let new = |len| buffer(len, small);
            let (values, grad, out) = (new(NUM_SRC * cols), new(NUM_DST * cols), new(NUM_DST * cols));
            let (att_src, att_dst, grad_values) = (new(cols), new(cols), new(NUM_SRC * cols));
            let (kept, scratch) = (new(attention.kept_len()), new(attention.scratch_len()));
            [&mut *values, grad, att_src, att_dst].into_iter().for_each(|x| random.fill(x));
            let (mut of_src, mut of_dst) = (vec![0.0; cols], vec![0.0; cols]);
            let inputs = Inputs { values, att_src, att_dst, terms: &[] };
            let [starts, dst, edge] = &block.transposed;
            let transposed = Transposed { indptr: starts, dst, edge };
            for &threads in &threads {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool starts");
                let mut times = [const { Vec::new() }; 4];
                for round in 0..rounds + 1 {
                    let mut time = |what: usize, run: &mut (dyn FnMut() + Send)| {
                        let start = Instant::now();
                        pool.install(run);
                        // The first round warms up.
                        if round > 0 {
                            times[what].push(start.elapsed().as_secs_f64() * 1e3);
                        }
                    };
                    time(0, &mut || {
                        black_box(gather(&block.indices, inputs.values, cols));
                    });
                    time(1, &mut || attention.forward(inputs, kept, out));
                    time(2, &mut || {
                        black_box(gather(&block.indices, inputs.values, cols));
                        black_box(gather(dst, grad, cols));
                    });
                    time(3, &mut || {
                        let grads = Grads { values: grad_values, att_src: &mut of_src, att_dst: &mut of_dst };
                        attention.backward((inputs, transposed), kept, grad, scratch, grads);
                    });
                }
                times.iter_mut().for_each(|t| t.sort_by(f64::total_cmp));
                let entries = edges + if self_loops { NUM_DST } else { 0 };
                // Elements of forward: rows by entry, values for the halves, coefficients, output. Elements of backward: rows by
                // entry twice, pairs written and read, the output's gradient, values read and their gradient written.
                let forward = entries * cols + NUM_SRC * cols + entries * heads + NUM_DST * cols;
                let backward = 2 * entries * cols + 5 * entries * heads + (NUM_DST + 2 * NUM_SRC) * cols;
                for (what, limit, attention, elements) in [("forward", 0, 1, forward), ("backward", 2, 3, backward)] {
                    let (limit, t) = (times[limit][0], &times[attention]);
                    let (min, median, max) = (t[0], t[t.len() / 2], t[t.len() - 1]);
                    let speed = 4.0 * elements as f64 / min / 1e6;
                    let isa = morphgl_platform::SimdLevel::current();
                    if json {
                        println!(
                            "{{\"what\":\"attention {what}\",\"isa\":\"{isa}\",\"unit\":\"ms\",\"median\":{median:.4},\"all\":{t:.4?},\
                             \"threads\":{threads},\"edges\":{edges},\"heads\":{heads},\"width\":{width},\
                             \"dropout\":{drop},\"self_loops\":{self_loops},\"gb_per_s\":{speed:.3},\
                             \"limit_ms\":{limit:.4},\"share_of_limit\":{:.3}}}",
                            limit / min
                        );
                    } else {
                        println!(
                            "{edges:>7} edges {heads} x {width:<2} {} {drop:.1} {threads} threads {what:>8}: \
                             {min:6.2} / {median:6.2} / {max:6.2}  {speed:5.1} GB/s  limit {limit:6.2}  {:3.0}%",
                            if self_loops { "loops" } else { "     " },
                            100.0 * limit / min
                        );
                    }
                }
            }
        }
    }
}
