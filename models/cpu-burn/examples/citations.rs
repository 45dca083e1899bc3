//! Cora and Citeseer, full batch, with the papers' hyper-parameters; prints mean test accuracy over five seeds.
//!
//! Run: `cargo run --release -p morphgl-training-cpu-burn --example citations -- DIRECTORY...`, where each directory holds
//! `indptr.u64.npy`, `indices.u32.npy`, `feat.{indptr.u64,indices.u32,values.f32}.npy`, `labels.i32.npy`,
//! `train.u32.npy`, `val.u32.npy`, `test.u32.npy` of one graph.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use morphgl_graph_store::{Array, Dataset, Element, FeatureMatrix, Load, Splits, Topology, read_npy};
use morphgl_registry::{BatchFeatures, BatchId, Block, HostBatch, MiniBatch, Score, Training, TrainingContext};
use morphgl_training_cpu_burn::CpuBurn;
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn load(dir: &Path) -> Result<Dataset> {
    fn array<T: Element>(dir: &Path, name: &str) -> Result<Array<T>> {
        Ok(read_npy::<T>(&dir.join(format!("{name}.npy")), Load::Ram)?.0)
    }
    let indptr = array::<u64>(dir, "indptr.u64")?;
    let num_nodes = indptr.len() - 1;
    let (rows, columns) = (array::<u64>(dir, "feat.indptr.u64")?, array::<u32>(dir, "feat.indices.u32")?);
    let values = array::<f32>(dir, "feat.values.f32")?;
    let meta: Value = serde_json::from_str(&std::fs::read_to_string(dir.join("meta.json"))?)?;
    let dim = meta["feature_dim"].as_u64().context("meta.json: feature_dim")? as usize;
    let mut features = vec![0.0f32; num_nodes * dim];
    for v in 0..num_nodes {
        let range = rows[v] as usize..rows[v + 1] as usize;
        // Row-normalised, as in the papers' recipes.
        let total: f32 = values[range.clone()].iter().sum();
        for i in range {
            features[v * dim + columns[i] as usize] = values[i] / total.max(1.0);
        }
    }
    let labels = array::<i32>(dir, "labels.i32")?;
    let topology = Topology::new(indptr, array::<u32>(dir, "indices.u32")?, None).map_err(anyhow::Error::msg)?;
    Ok(Dataset {
        features: Some(FeatureMatrix::F32 { data: features.into(), dim }),
        num_classes: meta["classes"].as_u64().context("meta.json: classes")? as usize,
        labels: Some(labels),
        splits: Splits {
            train: array(dir, "train.u32")?,
            valid: array(dir, "val.u32")?,
            test: array(dir, "test.u32")?,
        },
        ..Dataset::new(meta["name"].as_str().unwrap_or("unnamed"), topology)
    })
}

/// The whole graph as one mini-batch; only the training nodes have labels.
fn whole(dataset: &Dataset, layers: usize) -> HostBatch {
    let n = dataset.num_nodes();
    let topology = &dataset.topology;
    let block = Block {
        num_dst: n,
        num_src: n,
        indptr: topology.indptr().iter().map(|&p| p as u32).collect(),
        indices: topology.indices().to_vec(),
        ..Block::default()
    };
    let matrix = dataset.features.as_ref().expect("features were loaded");
    let mut features = BatchFeatures::like(matrix);
    features.resize(n, matrix.dim(), matrix.dtype()).copy_from_slice(matrix.view().as_bytes());
    let all = dataset.labels.as_ref().expect("labels were loaded");
    let mut labels = vec![-1; n];
    dataset.splits.train.iter().for_each(|&v| labels[v as usize] = all[v as usize]);
    HostBatch {
        id: BatchId::default(),
        num_seeds: n,
        input_nodes: (0..n as u32).collect(),
        degrees: (0..n as u32).map(|v| topology.degree(v) as f32).collect(),
        blocks: vec![block; layers],
        features: Some(features),
        given: None,
        labels,
        targets: Default::default(),
        pairs: None,
        features_by_type: Vec::new(),
        trees: None,
    }
}

struct Recipe {
    name: &'static str,
    model: Value,
    optimizer: Value,
    epochs: u32,
    patience: u32,
}

fn recipes() -> Vec<Recipe> {
    vec![
        Recipe {
            name: "GCN",
            model: json!({"kind": "gcn", "hidden": 16, "layers": 2, "dropout": 0.5, "input_dropout": 0.5}),
            optimizer: json!({"lr": 0.01, "weight_decay": 5e-4, "weight_decay_on": "first_layer"}),
            epochs: 200,
            patience: 200,
        },
        Recipe {
            name: "GAT",
            model: json!({"kind": "gat", "hidden": 64, "heads": 8, "layers": 2, "dropout": 0.6, "input_dropout": 0.6,
                "attention_dropout": 0.6, "activation": "elu"}),
            optimizer: json!({"lr": 0.005, "weight_decay": 5e-4}),
            epochs: 1000,
            patience: 100,
        },
        Recipe {
            name: "GraphSAGE",
            model: json!({"kind": "sage", "hidden": 64, "layers": 2, "dropout": 0.5, "input_dropout": 0.5}),
            optimizer: json!({"lr": 0.01, "weight_decay": 5e-4}),
            epochs: 200,
            patience: 200,
        },
        Recipe {
            name: "MLP",
            model: json!({"kind": "mlp", "hidden": 64, "layers": 2, "dropout": 0.5, "input_dropout": 0.5}),
            optimizer: json!({"lr": 0.01, "weight_decay": 5e-4}),
            epochs: 200,
            patience: 200,
        },
    ]
}

fn score(logits: &[f32], dataset: &Dataset, nodes: &[u32]) -> Score {
    let (labels, c) = (dataset.labels.as_ref().expect("labels were loaded"), dataset.num_classes);
    let rows: Vec<f32> = nodes.iter().flat_map(|&v| &logits[v as usize * c..(v as usize + 1) * c]).copied().collect();
    let labels: Vec<i32> = nodes.iter().map(|&v| labels[v as usize]).collect();
    Score::of(&rows, &labels, c)
}

/// Test accuracy at the best validation accuracy (ties: the lower loss), and milliseconds per training epoch.
fn train(dataset: &Arc<Dataset>, recipe: &Recipe, seed: u64, threads: usize) -> Result<(f64, f64)> {
    let mut model = recipe.model.clone();
    (model["in_dim"], model["num_classes"]) = (json!(dataset.feature_dim()), json!(dataset.num_classes));
    let layers = model["layers"].as_u64().context("layers")? as usize;
    let mut trainer = CpuBurn::new(&TrainingContext {
        seed,
        threads,
        ..TrainingContext::new(Arc::clone(dataset), json!({"model": model, "optimizer": recipe.optimizer}))
    })?;
    let mut batch = whole(dataset, layers);
    let all = batch.input_nodes.clone();
    let (mut best, mut test, mut since, mut seconds) = ((0.0, f64::NEG_INFINITY), 0.0, 0, 0.0);
    let mut epochs = 0;
    for epoch in 0..recipe.epochs {
        batch.id.epoch = epoch;
        let mini_batch = MiniBatch::Host(batch);
        let start = Instant::now();
        trainer.accumulate(&mini_batch)?.wait()?;
        trainer.step()?.wait()?;
        seconds += start.elapsed().as_secs_f64();
        epochs += 1;
        batch = mini_batch.into_host()?;
        let logits = trainer.infer(&all)?;
        let valid = score(&logits, dataset, &dataset.splits.valid);
        let now = (valid.accuracy(), -valid.loss());
        if now > best {
            (best, since, test) = (now, 0, score(&logits, dataset, &dataset.splits.test).accuracy());
        } else {
            since += 1;
            if since >= recipe.patience {
                break;
            }
        }
    }
    Ok((test, 1e3 * seconds / f64::from(epochs)))
}

fn main() -> Result<()> {
    let threads = std::thread::available_parallelism()?.get();
    for dir in std::env::args_os().skip(1).map(PathBuf::from) {
        let dataset = Arc::new(load(&dir).with_context(|| dir.display().to_string())?);
        for recipe in recipes() {
            let runs = (0..5).map(|seed| train(&dataset, &recipe, seed, threads)).collect::<Result<Vec<_>>>()?;
            let mean = runs.iter().map(|r| r.0).sum::<f64>() / runs.len() as f64;
            let all: Vec<String> = runs.iter().map(|r| format!("{:.3}", r.0)).collect();
            let ms = runs.iter().map(|r| r.1).sum::<f64>() / runs.len() as f64;
            println!(
                "{:9} {:9} {mean:.4}  {}  {ms:.1} ms per epoch, {threads} threads",
                dataset.name,
                recipe.name,
                all.join(" ")
            );
        }
    }
    Ok(())
}
