//! The gather of random rows, compared with the fastest plain loops on this machine in the same run.
//!
//! Run: `cargo bench -p morphgl-graph-store --bench gather -- [--json] [--threads 1,2,4] [--columns 100,128,256,602,768]
//! [--rounds 7] [--matrix-mib 768] [--batch-mib 64] [--peers DIR]`.
//!
//! Rows are drawn uniformly from a matrix in huge pages, far larger than the caches, into recycled buffers:
//! one mini-batch per thread, or all threads on one. A round runs each contender once, so that other load on the machine
//! affects all alike; the ratio is our rate to that of the fastest loop in the same round. GB/s counts gathered
//! bytes once. With `--peers`, the features (`feat_f32.npy`, `feat_f16.npy`) and mini-batches (`gather_ids.npy`,
//! `gather_ptr.npy`, both i64) of DIR are gathered, as in the measurements of other systems' loaders.
#![allow(clippy::print_stdout, reason = "a bench prints")]

#[path = "gather/limit.rs"]
mod limit;
#[path = "gather/report.rs"]
mod report;

use std::path::{Path, PathBuf};
use std::time::Instant;

use half::f16;
use morphgl_graph_store::{Array, Dtype, FeatureMatrix, Load, read_npy};
use morphgl_platform::Pages;
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use limit::Loop;
use report::{Report, Row};

/// Approximate bytes gathered before a row is gathered again.
const APART_BYTES: usize = 512 << 20;

type Failure = Box<dyn std::error::Error>;

struct Options {
    threads: Vec<usize>,
    columns: Vec<usize>,
    rounds: usize,
    matrix_bytes: usize,
    batch_bytes: usize,
    peers: Option<PathBuf>,
    json: bool,
}

impl Options {
    fn parse() -> Result<Self, Failure> {
        let cores = std::thread::available_parallelism()?.get();
        let mut options = Self {
            threads: [1, 2, 4].into_iter().filter(|&t| t <= cores).collect(),
            columns: vec![100, 128, 256, 602, 768],
            rounds: 7,
            matrix_bytes: 768 << 20,
            batch_bytes: 64 << 20,
            peers: None,
            json: false,
        };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg}: give a value"));
            match arg.as_str() {
                "--bench" => {}
                "--json" => options.json = true,
                "--threads" => options.threads = list(&value()?)?,
                "--columns" => options.columns = list(&value()?)?,
                "--rounds" => options.rounds = value()?.parse()?,
                "--matrix-mib" => options.matrix_bytes = value()?.parse::<usize>()? << 20,
                "--batch-mib" => options.batch_bytes = value()?.parse::<usize>()? << 20,
                "--peers" => options.peers = Some(value()?.into()),
                other => return Err(format!("{other}: no such option; the head of the bench lists them").into()),
            }
        }
        Ok(options)
    }
}

fn list(text: &str) -> Result<Vec<usize>, std::num::ParseIntError> {
    text.split(',').map(str::parse).collect()
}

/// Random words: xorshift64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as u32
    }
}

fn pool(threads: usize) -> Result<ThreadPool, Failure> {
    Ok(ThreadPoolBuilder::new().num_threads(threads).build()?)
}

/// A matrix of `bytes`, written once by all threads.
fn matrix(dtype: Dtype, bytes: usize) -> Result<FeatureMatrix, Failure> {
    let mut pages = Pages::zeroed(bytes)?;
    pages.par_chunks_mut(1 << 20).enumerate().for_each(|(i, chunk)| {
        let mut random = Random(88_172_645_463_325_252 + i as u64);
        // Small enough to be a number in every type.
        chunk.iter_mut().for_each(|byte| *byte = random.below(60) as u8);
    });
    let whole = "the matrix is whole elements";
    Ok(match dtype {
        Dtype::F16 => FeatureMatrix::F16 { data: Array::<f16>::from_pages(pages).expect(whole), dim: 1 },
        _ => FeatureMatrix::F32 { data: Array::<f32>::from_pages(pages).expect(whole), dim: 1 },
    })
}

/// The same elements in rows of `dim`.
fn shaped(matrix: &FeatureMatrix, dim: usize) -> FeatureMatrix {
    let mut matrix = matrix.clone();
    match &mut matrix {
        FeatureMatrix::F32 { dim: old, .. } | FeatureMatrix::F16 { dim: old, .. } => *old = dim,
        other => unreachable!("no matrix of {} is made here", other.dtype()),
    }
    matrix
}

/// GB/s of `bytes` moved by `work`.
fn speed(bytes: usize, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    bytes as f64 / start.elapsed().as_secs_f64() / 1e9
}

/// One mini-batch per thread, or one for all of them.
#[derive(Clone, Copy, PartialEq)]
enum Batches {
    Each,
    One,
}

fn measure(options: &Options, report: &mut Report, matrix: &FeatureMatrix) -> Result<(), Failure> {
    let bytes = matrix.view();
    let (bytes, row_bytes) = (bytes.as_bytes(), matrix.row_bytes());
    let num_rows = bytes.len() / row_bytes;
    let batch_rows = options.batch_bytes / row_bytes;
    let most = options.threads.iter().copied().max().unwrap_or(1);
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    // So many mini-batches that their rows are out of every cache when they come round again.
    let sets = (most + 2).max(APART_BYTES.div_ceil(options.batch_bytes));
    let nodes: Vec<Vec<u32>> = (0..sets).map(|_| (0..batch_rows).map(|_| random.below(num_rows)).collect()).collect();
    let mut outs: Vec<Pages> = (0..most).map(|_| Pages::new()).collect();
    // Touched before anything is measured.
    outs.iter_mut().for_each(|out| out.resize(batch_rows * row_bytes).fill(1));
    for &threads in &options.threads {
        let pool = pool(threads)?;
        for share in [Batches::Each, Batches::One] {
            if (threads, share) == (1, Batches::One) {
                continue;
            }
            let batches = if share == Batches::Each { threads } else { 1 };
            let moved = batches * batch_rows * row_bytes;
            let (mut copies, mut loops, mut ours) = (Vec::new(), vec![Vec::new(); Loop::ALL.len()], Vec::new());
            for round in 0..=options.rounds {
                let nodes = |batch: usize| &nodes[(round + batch) % nodes.len()][..];
                let outs = &mut outs[..batches];
                let copied = speed(moved, || pool.install(|| limit::memcpy(bytes, outs, threads)));
                let looped: Vec<f64> = (Loop::ALL.iter())
                    .map(|&by| {
                        speed(moved, || pool.install(|| limit::gather(by, bytes, row_bytes, &nodes, outs, threads)))
                    })
                    .collect();
                let our = speed(moved, || match share {
                    Batches::Each => pool.install(|| {
                        outs.par_iter_mut().enumerate().for_each(|(i, out)| matrix.gather_rows(nodes(i), out));
                    }),
                    Batches::One => pool.install(|| matrix.par_gather_rows(nodes(0), &mut outs[0])),
                });
                // The first round warms up.
                if round > 0 {
                    copies.push(copied);
                    loops.iter_mut().zip(looped).for_each(|(all, one)| all.push(one));
                    ours.push(our);
                }
            }
            let share = if share == Batches::Each { "one mini-batch per thread" } else { "one mini-batch" };
            let row = Row { matrix, threads, share };
            report.add(&row, "memcpy", &copies, None);
            for (by, speeds) in Loop::ALL.iter().zip(&loops) {
                report.add(&row, by.name(), speeds, None);
            }
            let fastest: Vec<f64> =
                (0..options.rounds).map(|round| loops.iter().map(|all| all[round]).fold(0.0, f64::max)).collect();
            report.add(&row, "ours", &ours, Some(&fastest));
        }
    }
    Ok(())
}

/// Gathers the mini-batches of `dir` one after the other, on one thread and on several.
fn measure_peers(options: &Options, report: &mut Report, dir: &Path) -> Result<(), Failure> {
    let read = |name: &str| read_npy::<i64>(&dir.join(name), Load::Ram).map(|(array, _)| array);
    let (ids, ptr) = (read("gather_ids.npy")?, read("gather_ptr.npy")?);
    let nodes = ids.iter().map(|&id| u32::try_from(id)).collect::<Result<Vec<u32>, _>>()?;
    let batches: Vec<&[u32]> = ptr.windows(2).map(|w| &nodes[w[0] as usize..w[1] as usize]).collect();
    for dtype in [Dtype::F32, Dtype::F16] {
        let matrix = if dtype == Dtype::F32 {
            let (data, shape) = read_npy(&dir.join("feat_f32.npy"), Load::Ram)?;
            FeatureMatrix::F32 { data, dim: shape[1] as usize }
        } else {
            let (data, shape) = read_npy(&dir.join("feat_f16.npy"), Load::Ram)?;
            FeatureMatrix::F16 { data, dim: shape[1] as usize }
        };
        let moved = nodes.len() * matrix.row_bytes();
        for &threads in &options.threads {
            let pool = pool(threads)?;
            let (mut one, mut each) = (Vec::new(), Vec::new());
            let mut out = Pages::new();
            let mut outs: Vec<Pages> = (0..threads).map(|_| Pages::new()).collect();
            for round in 0..=options.rounds {
                let a = speed(moved, || {
                    pool.install(|| {
                        for nodes in &batches {
                            matrix.par_gather_rows(nodes, out.resize(nodes.len() * matrix.row_bytes()));
                        }
                    });
                });
                let b = speed(moved, || {
                    pool.install(|| {
                        outs.par_iter_mut().enumerate().for_each(|(i, out)| {
                            for nodes in batches.iter().skip(i).step_by(threads) {
                                matrix.gather_rows(nodes, out.resize(nodes.len() * matrix.row_bytes()));
                            }
                        });
                    });
                });
                if round > 0 {
                    one.push(a);
                    each.push(b);
                }
            }
            report.add(&Row { matrix: &matrix, threads, share: "one mini-batch" }, "ours, peers' data", &one, None);
            let share = "one mini-batch per thread";
            report.add(&Row { matrix: &matrix, threads, share }, "ours, peers' data", &each, None);
        }
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let options = Options::parse()?;
    let mut report = Report::new(options.json);
    if let Some(dir) = &options.peers {
        return measure_peers(&options, &mut report, dir);
    }
    for dtype in [Dtype::F32, Dtype::F16] {
        let matrix = matrix(dtype, options.matrix_bytes)?;
        for &columns in &options.columns {
            measure(&options, &mut report, &shaped(&matrix, columns))?;
        }
    }
    report.end();
    Ok(())
}
