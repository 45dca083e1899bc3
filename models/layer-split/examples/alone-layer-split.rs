//! Ordinary and layer-split training in turns on one thread: seconds of batching and training, those of the first layer beside
//! them, rows and edges saved. Run: `cargo run --release -p morphgl-layer-split --example alone-layer-split [DATASET [KIND [N
//! [HIDDEN [FANOUTS [BATCH_SIZE]]]]]]`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use morphgl_generate::{SbmConfig, sbm};
use morphgl_graph_store::{Dataset, OpenOptions};
use morphgl_layer_split::{LayerSplit, Settings, SuperBatches};
use morphgl_model_core::TrainingSpec;
use morphgl_registry::{
    BatchId, Batching, BatchingContext, Build, Fanouts, Operators, Place, Route, SamplerSettings, SeedSet, Training,
    TrainingContext, TransferringContext,
};
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let dataset = Arc::new(match arguments.next() {
        Some(path) => Dataset::open(Path::new(&path), OpenOptions::default())?,
        None => sbm(&SbmConfig { nodes: 20_000, classes: 8, dim: 64, degree: 20.0, ..SbmConfig::default() })?,
    });
    let kind = arguments.next().unwrap_or_else(|| "sage".to_string());
    let len: u32 = arguments.next().map_or(Ok(8), |n| n.parse())?;
    let hidden: usize = arguments.next().map_or(Ok(256), |n| n.parse())?;
    let fanouts: Fanouts = arguments.next().unwrap_or_else(|| "15,10,5".to_string()).parse()?;
    let batch_size = arguments.next().map_or(Ok(1024), |n| n.parse())?;
    let model = json!({"kind": kind, "in_dim": dataset.feature_dim(), "num_classes": dataset.num_classes, "hidden": hidden,
        "layers": fanouts.0.len(), "dropout": 0.5});
    let spec = json!({"model": model, "optimizer": {"lr": 0.003}});
    let sampler = SamplerSettings { batch_size, ..fanouts.into() };
    let seeds = SeedSet::new("train split", &dataset.splits.train, dataset.num_nodes())?;
    let batches = 4 * len;
    for hot_ratio in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let operators = operators(&dataset, &seeds, &sampler, &spec)?;
        let num_batches = operators.routes[0].batching.num_batches() as u32;
        let settings = Settings {
            super_batches: SuperBatches { batches: num_batches, len },
            hot_ratio,
            follow: None,
            width: hidden,
            input_widths: TrainingSpec::from_json(&spec)?.model.given_input_widths(),
            threads: 1,
            learns: true,
            start: BatchId::default(),
            resumed: false,
        };
        let first_layer = trainer(&dataset, &spec)?;
        let LayerSplit { mut operators, statistics, thread } =
            LayerSplit::new(operators, first_layer, (&dataset, &seeds, &sampler), settings)?;
        let route = &mut operators.routes[0];
        let mut worker = route.batching.worker(1)?;
        let (mut batching, mut training, mut recycled) = (Duration::ZERO, Duration::ZERO, None);
        let (mut rows, mut edges, mut sources, mut bytes) = (0, 0, 0, 0);
        for index in 0..batches.min(num_batches) {
            let id = BatchId { epoch: 0, index };
            let (batch, sampled) = worker.prepare(id, recycled.take())?.wait()?;
            let (batch, _) = route.transferring.transfer(batch)?.wait()?;
            let start = Instant::now();
            operators.trainers[0].operator.train(&batch)?.wait()?;
            // The first super-batch has no given rows.
            if index >= len {
                (batching, training) = (batching + sampled, training + start.elapsed());
                let host = batch.host()?;
                let block = &host.blocks[0];
                rows += block.num_dst;
                edges += block.num_edges();
                sources += block.num_src;
                let given = host
                    .given
                    .as_ref()
                    .map_or(0, |given| 4 * (given.rows.len() + given.inputs.iter().map(Vec::len).sum::<usize>()));
                bytes += block.num_src * dataset.features.as_ref().map_or(0, |f| f.row_bytes()) + given;
            }
            recycled = Some(batch);
            // The two sides run one after the other, so that neither is measured on a core that the other uses.
            while statistics.all().len() as u32 <= index / len {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let n = f64::from(batches.min(num_batches).saturating_sub(len).max(1));
        let of = |seconds: Duration| 1e3 * seconds.as_secs_f64() / n;
        drop(operators);
        thread.join().map_err(|_| "the first layer's thread panicked")?;
        let all = statistics.all();
        let sum = |f: fn(&morphgl_layer_split::SuperBatchStatistics) -> f64| all.iter().map(f).sum::<f64>();
        let given = sum(|s| s.given as f64) / sum(|s| s.occurrences as f64).max(1.0);
        let (choosing, computing) = (sum(|s| s.choosing), sum(|s| s.computing));
        let beside = 1e3 * (choosing + computing) / (all.len().max(1) as f64 * f64::from(len));
        println!(
            "hot ratio {hot_ratio}: batching {:.1} ms, training {:.1} ms, beside {beside:.1} ms per mini-batch ({:.0}% of it \
             choosing); together {:.1} ms; {:.1}% of rows given; first layer: {:.0} rows, {:.0} edges, {:.0} nodes, {:.0} MB of features and given rows",
            of(batching),
            of(training),
            100.0 * choosing / (choosing + computing).max(f64::MIN_POSITIVE),
            of(batching) + of(training) + beside,
            100.0 * given,
            rows as f64 / n,
            edges as f64 / n,
            sources as f64 / n,
            bytes as f64 / n / 1e6,
        );
    }
    Ok(())
}

fn trainer(dataset: &Arc<Dataset>, spec: &Value) -> Result<Box<dyn Training>, Box<dyn Error>> {
    let (dataset, spec, options) = (Arc::clone(dataset), spec.clone(), Value::Null);
    let context = TrainingContext { options, ..TrainingContext::new(dataset, spec) };
    Ok(Box::new(morphgl_training_cpu_native::CpuNative::new(&context)?))
}

/// The operators of the route on the host, which reads features from the dataset.
fn operators(
    dataset: &Arc<Dataset>,
    seeds: &SeedSet,
    settings: &SamplerSettings,
    spec: &Value,
) -> Result<Operators, Box<dyn Error>> {
    let batching: Arc<dyn Batching> = Arc::new(morphgl_batching_cpu::CpuNeighbor::new(&BatchingContext {
        gather: false,
        ..BatchingContext::new(Arc::clone(dataset), seeds.clone(), settings.clone())
    })?);
    let host = &morphgl_transferring_cpu_host::DESCRIPTION;
    let Build::Transferring(build) = host.build else { return Err("it transfers".into()) };
    let transferring = build(&TransferringContext {
        gather: false,
        ..TransferringContext::new(Arc::clone(dataset), Place::Host, Place::Host)
    })?;
    let keys = ["Batching_CPU_Neighbor".parse()?, host.key.clone(), "Training_CPU_Native".parse()?];
    let route = Route::new(keys, Place::Host, Place::Host);
    Ok(Operators::of(route, batching, transferring, trainer(dataset, spec)?))
}
