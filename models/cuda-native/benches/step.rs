//! Time of a training step on a real device, and what share of its limits it reaches.
//!
//! Run: `cargo bench -p morphgl-training-cuda-native --bench step -- [--json] [--rounds 15] [--memory 3350e9] [--flops 67e12]`.
//! Blocks of 137k, 66k, 11k and 1,024 nodes with 330k, 101k and 11k edges, 128 features in f16, 40 classes: as large as
//! those of fanouts 15,10,5. Then products as deep as a block has rows. The limits are the device's data sheet (an H100's, unless given); shares are of the least
//! work: products of all layers, and every matrix read or written once by each pass that needs it.
#![allow(clippy::print_stdout, reason = "a bench prints")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use morphgl_cuda::{Buffer, CudaBatch, Device, Precision, Stream, Transpose, statistics};
use morphgl_graph_store::{Dataset, Dtype, FeatureMatrix, Topology};
use morphgl_registry::{
    BatchFeatures, BatchId, Block, Handle, HostBatch, Machine, MiniBatch, Place, Result, Score, Training,
    TrainingContext,
};
use morphgl_training_cuda_native::{CudaNative, KEY};
use serde_json::json;

const NODES: [usize; 4] = [137_000, 66_000, 11_000, 1_024];
const EDGES: [usize; 3] = [330_000, 101_000, 11_000];
const DIM: usize = 128;
const CLASSES: usize = 40;

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

fn batch(index: u32) -> HostBatch {
    let mut state = u64::from(index) + 1;
    let blocks = (0..3).map(|l| {
        let (num_src, num_dst, edges) = (NODES[l], NODES[l + 1], EDGES[l]);
        // A source's share of the edges falls with its number, as in a power law.
        let unit = |state: &mut u64| random(state) as f64 / (1u64 << 31) as f64;
        let indices = (0..edges).map(|_| (unit(&mut state).powi(2) * num_src as f64) as u32).collect();
        let indptr = (0..=num_dst).map(|v| (v * edges / num_dst) as u32).collect();
        Block { num_dst, num_src, indptr, indices, ..Block::default() }
    });
    let blocks = blocks.collect();
    let mut features = BatchFeatures::like(&FeatureMatrix::F32 { data: Vec::new().into(), dim: DIM });
    let bytes = features.resize(NODES[0], DIM, Dtype::F16);
    // Numbers in [1, 2): the exponent of 1, and any fraction.
    let one = |state: &mut u64| 0x3c00u16 | (random(state) & 0x3ff) as u16;
    bytes.chunks_exact_mut(2).for_each(|x| x.copy_from_slice(&one(&mut state).to_le_bytes()));
    HostBatch {
        id: BatchId { epoch: 0, index },
        num_seeds: NODES[3],
        input_nodes: (0..NODES[0] as u32).collect(),
        degrees: vec![14.0; NODES[0]],
        blocks,
        features: Some(features),
        given: None,
        labels: (0..NODES[3]).map(|_| (random(&mut state) % CLASSES as u64) as i32).collect(),
        targets: Default::default(),
        pairs: None,
        features_by_type: Vec::new(),
        trees: None,
    }
}

/// The least work of a step: floating point operations of products, and bytes.
fn work(kind: &str, hidden: usize) -> [f64; 2] {
    let (mut flops, mut bytes) = (0.0, 0.0);
    let (dims, products) = ([DIM, hidden, hidden, CLASSES], if kind == "sage" { 2.0 } else { 1.0 });
    for l in 0..3 {
        let [src, dst, edges] = [NODES[l], NODES[l + 1], EDGES[l]].map(|n| n as f64);
        let (i, o) = (dims[l] as f64, dims[l + 1] as f64);
        // Attention multiplies all sources first; the others sum first where the rows become fewer.
        let rows = if kind == "gat" { src } else { dst };
        let (width, element) = (if kind == "gat" { o } else { i }, if l == 0 && kind != "gat" { 2.0 } else { 4.0 });
        // Forward and the weight's gradient; the input's gradient, but for the first layer.
        let passes = if l == 0 { 2.0 } else { 3.0 };
        flops += 2.0 * passes * products * rows * i * o;
        let sums = edges * width * element + if l > 0 || kind == "gat" { edges * width * 4.0 } else { 0.0 };
        bytes += sums + passes * 4.0 * (rows * (i + o)) + 4.0 * 4.0 * dst * o;
    }
    [flops, bytes]
}

fn main() -> Result<()> {
    if cfg!(feature = "emulate") || morphgl_cuda::probe(&Machine::probe()).is_err() {
        println!("no CUDA device: a step is measured on a real one alone");
        return Ok(());
    }
    let all: Vec<String> = std::env::args().collect();
    let after = |name: &str| all.iter().position(|a| a == name).and_then(|i| all.get(i + 1));
    let number = |name: &str, default: f64| after(name).map_or(default, |s| s.parse().expect("a number"));
    let (rounds, json) = (number("--rounds", 15.0) as usize, all.iter().any(|a| a == "--json"));
    let (peak, bandwidth) = (number("--flops", 67e12), number("--memory", 3350e9));
    let place: Place = "cuda:0".parse()?;
    let device = Device::open(&place, &KEY)?;
    let stream = Stream::new(&device, false)?;
    let batches = (0..3).map(|i| Ok(CudaBatch::upload(&stream, &batch(i))?.into_batch()));
    let batches: Vec<MiniBatch> = batches.collect::<Result<_>>()?;
    let dataset = Arc::new(Dataset {
        features: Some(FeatureMatrix::F32 { data: Vec::new().into(), dim: DIM }),
        num_classes: CLASSES,
        ..Dataset::new("none", Topology::new(vec![0u64], Vec::new(), None).expect("a graph without nodes"))
    });
    println!("{device:?}");
    for (kind, hidden) in [("sage", 256), ("gcn", 16), ("gat", 64)] {
        let context = TrainingContext {
            place: place.clone(),
            ..TrainingContext::new(
                Arc::clone(&dataset),
                json!({"model": {"kind": kind, "in_dim": DIM, "num_classes": CLASSES, "hidden": hidden}}),
            )
        };
        let mut trainer = CudaNative::new(&context)?;
        let (mut times, mut queued) = (Vec::new(), Vec::new());
        for round in 0..3 + rounds {
            let start = Instant::now();
            let score = trainer.accumulate(&batches[round % batches.len()])?;
            let step = trainer.step()?;
            let given = start.elapsed().as_secs_f64() * 1e3;
            let took = score.wait()?.1 + step.wait()?.1;
            if round >= 3 {
                times.push(took.as_secs_f64() * 1e3);
                queued.push(given);
            }
        }
        // As many queued as the operator takes: the host's part hides behind the device's.
        let (start, before) = (Instant::now(), statistics(&device).launches);
        let mut given = VecDeque::new();
        for round in 0..rounds {
            if given.len() == trainer.queue_depth() {
                given.pop_front().map_or(Ok(()), |step: Handle<Score>| step.wait().map(|_| ()))?;
            }
            given.push_back(trainer.train(&batches[round % batches.len()])?);
        }
        given.into_iter().try_for_each(|step| step.wait().map(|_| ()))?;
        let launches = (statistics(&device).launches - before) / rounds as u64;
        let throughput = start.elapsed().as_secs_f64() * 1e3 / rounds as f64;
        times.sort_by(f64::total_cmp);
        queued.sort_by(f64::total_cmp);
        let [min, median, max] = [times[0], times[times.len() / 2], times[times.len() - 1]];
        let [flops, bytes] = work(kind, hidden).map(|w| w / min * 1e3);
        if json {
            let line = json!({"what": "step", "operator": "Training_CUDA_Native", "model": kind, "hidden": hidden,
                "unit": "ms", "min": min, "median": median, "max": max, "all": times, "queued": throughput,
                "host": queued[queued.len() / 2], "launches": launches,
                "share_of_flops": flops / peak, "share_of_bandwidth": bytes / bandwidth,
                "workspace_bytes": trainer.workspace_bytes()});
            println!("{line}");
            continue;
        }
        println!(
            "{kind}-{hidden}: {min:.2} / {median:.2} / {max:.2} ms, {throughput:.2} ms queued, host {:.2} ms for {launches} \
             launches; \
             {:.1} TFLOP/s ({:.0} %), {:.0} GB/s ({:.0} %); workspace {} MiB",
            queued[queued.len() / 2],
            flops / 1e12,
            100.0 * flops / peak,
            bytes / 1e9,
            100.0 * bytes / bandwidth,
            trainer.workspace_bytes() >> 20
        );
    }
    deep_products(&stream, rounds, json, peak)
}

/// Products whose result is small and whose depth is the rows of a block, as a weight's gradient is: with one thread
/// block per tile of the result, most multiprocessors would have nothing to do, so that cuBLAS has to divide the depth.
fn deep_products(stream: &Stream, rounds: usize, json: bool, peak: f64) -> Result<()> {
    stream.prepare_products(Precision::F32)?;
    for [m, n, k] in [[256, 100, 165_000], [256, 128, 66_000], [256, 256, 11_000]] {
        let zeros = |len: usize| -> Result<Buffer<f32>> {
            let mut buffer = Buffer::new(stream, len)?;
            stream.fill(&mut buffer, 0)?;
            Ok(buffer)
        };
        let (a, b, mut out) = (zeros(m * k)?, zeros(k * n)?, zeros(m * n)?);
        let mut times = Vec::new();
        for round in 0..3 + rounds {
            let start = stream.record(true)?;
            stream.multiply([m, n, k], (&a, Transpose::Yes), (&b, Transpose::No), &mut out, (1.0, 0.0))?;
            let end = stream.record(true)?;
            end.synchronize()?;
            if round >= 3 {
                times.push(end.elapsed(&start)?.as_secs_f64() * 1e3);
            }
        }
        times.sort_by(f64::total_cmp);
        let (min, median) = (times[0], times[times.len() / 2]);
        let flops = 2.0 * (m * n * k) as f64 / median * 1e3;
        if json {
            let line = json!({"what": "product", "m": m, "n": n, "k": k, "unit": "ms", "min": min, "median": median,
                "share_of_flops": flops / peak});
            println!("{line}");
        } else {
            let share = 100.0 * flops / peak;
            println!(
                "product {m} x {n} of depth {k}: {min:.3} / {median:.3} ms, {:.1} TFLOP/s ({share:.0} %)",
                flops / 1e12
            );
        }
    }
    Ok(())
}
