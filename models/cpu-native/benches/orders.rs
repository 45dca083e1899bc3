//! A GAT's step in both orders of attention and GEMM, in turns, and the time of each layer in both.
//!
//! Run: `cargo bench -p morphgl-training-cpu-native --bench orders -- [--threads 1] [--rounds 9] [--only NAME] [--order
//! NAME]`; a line of JSON per shape. `first` attends to the input rows and multiplies the sums of each head, `last`
//! multiplies the rows and attends to these, `chosen` does in each layer what the operator counts as less work.
//! Mini-batches are random blocks of the sizes of a sampler. `--order NAME` runs the steps of one of them alone and
//! prints nothing, so that instructions can be counted. Ratios are `first / last`, `chosen / last` of the same round:
//! median, minimum and maximum.
#![allow(clippy::print_stdout, reason = "a bench prints")]

use std::sync::Arc;

use morphgl_graph_store::{Dataset, Dtype, FeatureMatrix, Topology};
use morphgl_platform::SimdLevel;
use morphgl_registry::{BatchFeatures, BatchId, Block, HostBatch, MiniBatch, Result, Training, TrainingContext};
use morphgl_training_cpu_native::CpuNative;
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0 >> 11) * n as u128) >> 53) as usize
    }
}

/// A shape: its name, nodes of each block and of the seeds, edges per destination of each block, and fields of the
/// model.
type Shape = (&'static str, Vec<usize>, Vec<usize>, Value);

fn shapes() -> Vec<Shape> {
    let gat = |in_dim: usize, hidden: usize, heads: usize, classes: usize| {
        let dropout = 0.5;
        json!({"kind": "gat", "in_dim": in_dim, "num_classes": classes, "hidden": hidden, "heads": heads,
            "dropout": dropout})
    };
    vec![
        // ogbn-products: 47 classes, fanouts 15 and 10, and 15, 10 and 5.
        ("products, 2 layers", vec![130_000, 15_600, 1_024], vec![10, 15], gat(100, 256, 4, 47)),
        ("products, 3 layers", vec![420_000, 135_000, 15_600, 1_024], vec![5, 10, 15], gat(100, 256, 4, 47)),
        // ogbn-arxiv: blocks as of bench step.
        ("arxiv", vec![137_000, 66_000, 11_000, 1_024], vec![5, 9, 11], gat(128, 256, 4, 40)),
        ("arxiv, narrow", vec![137_000, 66_000, 11_000, 1_024], vec![5, 9, 11], gat(128, 64, 4, 40)),
        ("arxiv, 8 heads", vec![137_000, 66_000, 11_000, 1_024], vec![5, 9, 11], gat(128, 256, 8, 40)),
        ("arxiv, 1 head", vec![137_000, 66_000, 11_000, 1_024], vec![5, 9, 11], gat(128, 256, 1, 40)),
        ("wide rows", vec![60_000, 11_000, 1_024], vec![9, 11], gat(602, 256, 4, 41)),
        ("many edges", vec![60_000, 30_000, 8_000], vec![30, 30], gat(100, 128, 4, 41)),
    ]
}

fn mini_batch(nodes: &[usize], degrees: &[usize], dim: usize, classes: usize) -> HostBatch {
    let mut random = Random(17);
    let block = |(nodes, &degree): (&[usize], &usize)| {
        let [num_src, num_dst] = [nodes[0], nodes[1]];
        let indptr = (0..=num_dst).map(|row| (row * degree) as u32).collect();
        let indices = (0..num_dst * degree).map(|_| random.below(num_src) as u32).collect();
        Block { num_src, num_dst, indptr, indices, ..Block::default() }
    };
    let blocks: Vec<Block> = nodes.windows(2).zip(degrees).map(block).collect();
    let mut features = BatchFeatures::like(&FeatureMatrix::F32 { data: Vec::new().into(), dim });
    for value in features.resize(nodes[0], dim, Dtype::F32).chunks_exact_mut(4) {
        value.copy_from_slice(&(random.below(1 << 20) as f32 / (1 << 19) as f32 - 1.0).to_ne_bytes());
    }
    let num_seeds = nodes[nodes.len() - 1];
    HostBatch {
        id: BatchId { epoch: 0, index: 0 },
        num_seeds,
        input_nodes: (0..nodes[0] as u32).collect(),
        degrees: vec![10.0; nodes[0]],
        blocks,
        features: Some(features),
        given: None,
        labels: (0..num_seeds).map(|_| random.below(classes) as i32).collect(),
        targets: Default::default(),
        pairs: None,
        features_by_type: Vec::new(),
        trees: None,
    }
}

fn sorted(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [values[values.len() / 2], values[0], values[values.len() - 1]]
}

fn main() -> Result<()> {
    let all: Vec<String> = std::env::args().collect();
    let after = |name: &str| all.iter().position(|a| a == name).and_then(|i| all.get(i + 1));
    let number = |name: &str, default: usize| after(name).map_or(default, |s| s.parse().expect("a number"));
    let (threads, rounds) = (number("--threads", 1), number("--rounds", 9));
    for (name, nodes, degrees, mut model) in shapes() {
        if after("--only").is_some_and(|only| !name.starts_with(only.as_str())) {
            continue;
        }
        model["layers"] = json!(degrees.len());
        let size = |name: &str| model[name].as_u64().expect("a size") as usize;
        let (dim, classes) = (size("in_dim"), size("num_classes"));
        let host = mini_batch(&nodes, &degrees, dim, classes);
        let batch = MiniBatch::Host(host.clone());
        let dataset = Arc::new(Dataset {
            features: Some(FeatureMatrix::F32 { data: Vec::new().into(), dim }),
            num_classes: classes,
            ..Dataset::new("none", Topology::new(vec![0u64], Vec::new(), None).expect("a graph without nodes"))
        });
        let context = TrainingContext { threads, ..TrainingContext::new(dataset, json!({"model": model})) };
        let orders = [("last", Some(false)), ("first", Some(true)), ("chosen", None)];
        if let Some(only) = after("--order") {
            let (_, order) = *orders.iter().find(|(name, _)| name == only).expect("--order first, last or chosen");
            let mut trainer = CpuNative::new(&context)?;
            trainer.attend_first(order);
            for _ in 0..rounds {
                trainer.train(&batch)?.wait()?;
            }
            continue;
        }
        let mut trainers = Vec::new();
        for (_, order) in orders {
            let mut trainer = CpuNative::new(&context)?;
            trainer.attend_first(order);
            trainers.push(trainer);
        }
        let (mut steps, mut layers, mut losses) =
            ([const { Vec::new() }; 3], vec![Vec::new(); 3], [const { Vec::new() }; 3]);
        for round in 0..rounds + 1 {
            for (which, trainer) in trainers.iter_mut().enumerate() {
                let (score, time) = trainer.train(&batch)?.wait()?;
                losses[which].push(score.loss_sum / score.count as f64);
                // The first round warms up.
                if round > 0 {
                    let times = trainer.times();
                    let by_layer = times.forward.iter().zip(&times.backward).map(|(f, b)| (f + b) * 1e3);
                    layers[which].push(std::iter::once(times.prepare * 1e3).chain(by_layer).collect::<Vec<f64>>());
                    steps[which].push(time.as_secs_f64() * 1e3);
                }
            }
        }
        let ratio = |which: usize| sorted(steps[which].iter().zip(&steps[0]).map(|(a, b)| a / b).collect());
        let medians = |which: usize| {
            let of = |layer: usize| sorted(layers[which].iter().map(|all: &Vec<f64>| all[layer]).collect())[0];
            (0..=degrees.len()).map(of).collect::<Vec<f64>>()
        };
        let (names, of_layers) = (orders.map(|(name, _)| name), [0, 1, 2].map(medians));
        let [first, chosen] = [ratio(1), ratio(2)];
        let mut flops = Vec::new();
        for trainer in &trainers {
            flops.push(trainer.passes(&host)?.iter().map(|pass| pass.flops).sum::<f64>());
        }
        let line = json!({
            "what": "orders", "isa": SimdLevel::current().name(), "threads": threads, "shape": name,
            "nodes": nodes, "degrees": degrees,
            "model": model, "unit": "ms", "orders": names, "steps": steps, "flops": flops,
            "first / last": first, "chosen / last": chosen, "prepare and layers": of_layers, "losses": losses,
        });
        println!("{line}");
    }
    Ok(())
}
