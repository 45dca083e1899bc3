//! Sparse features: agreement with Training_CPU_Burn, and the same bits from gathered features and from the store.

mod common;

use std::sync::Arc;

use common::{Random, batch, context, host, model};
use half::f16;
use morphgl_graph_store::{Dataset, Dtype, FeatureMatrix, Topology};
use morphgl_registry::{BatchFeatures, Gradients, Handle, HostBatch, NamedTensor, Score, Training, TrainingContext};
use morphgl_training_cpu_burn::CpuBurn;
use morphgl_training_cpu_native::CpuNative;
use proptest::prelude::*;
use serde_json::{Value, json};

const NODES: usize = 900;
const CLASSES: usize = 5;

/// Features with 3% nonzeros; some rows and columns are all zeros.
fn matrix(dim: usize, dtype: Dtype) -> FeatureMatrix {
    let mut random = Random(5);
    let empty = |i: usize| (i / dim).is_multiple_of(50) || (i % dim).is_multiple_of(17);
    let value = |i: usize, x: usize| if x < 30 && !empty(i) { 0.25 * (1 + x % 7) as f32 } else { 0.0 };
    let values: Vec<f32> = (0..NODES * dim).map(|i| value(i, random.below(1000))).collect();
    match dtype {
        Dtype::F16 => {
            let data: Vec<f16> = values.into_iter().map(f16::from_f32).collect();
            FeatureMatrix::F16 { data: data.into(), dim }
        }
        Dtype::U8 => {
            let data: Vec<u8> = values.into_iter().map(|x| (4.0 * x) as u8).collect();
            FeatureMatrix::U8 { data: data.into(), dim }
        }
        _ => FeatureMatrix::F32 { data: values.into(), dim },
    }
}

fn dataset(features: FeatureMatrix) -> Dataset {
    let mut random = Random(8);
    let mut indptr = vec![0u64];
    let mut indices = Vec::new();
    for _ in 0..NODES {
        indices.extend((0..random.below(7)).map(|_| random.below(NODES) as u32));
        indptr.push(indices.len() as u64);
    }
    Dataset {
        features: Some(features),
        num_classes: CLASSES,
        ..Dataset::new("sparse", Topology::new(indptr, indices, None).expect("a graph"))
    }
}

fn context_over(dataset: &Arc<Dataset>, model: &Value, threads: usize) -> TrainingContext {
    TrainingContext { dataset: Arc::clone(dataset), ..context(model, threads) }
}

/// The mini-batch over distinct nodes of the dataset, with gathered features and without features.
fn gathered_and_direct(mut batch: HostBatch, features: &FeatureMatrix) -> [HostBatch; 2] {
    let count = batch.input_nodes.len();
    batch.input_nodes = (0..count).map(|i| (NODES - 1 - i * (NODES / count)) as u32).collect();
    let mut gathered = BatchFeatures::like(features);
    features.gather_rows(&batch.input_nodes, gathered.resize(count, features.dim(), features.dtype()));
    [HostBatch { features: Some(gathered), ..batch.clone() }, HostBatch { features: None, ..batch }]
}

#[derive(Debug, PartialEq)]
struct Outcome {
    scores: [Score; 2],
    gradients: Gradients,
    parameters: Vec<NamedTensor>,
    logits: Vec<f32>,
}

fn run(trainer: &mut dyn Training, batch: HostBatch) -> Outcome {
    let batch = host(batch);
    let evaluated = trainer.score(&batch).and_then(Handle::wait).expect("a score").0;
    let trained = trainer.accumulate(&batch).and_then(Handle::wait).expect("a score").0;
    let gradients = trainer.gradients().expect("gradients");
    let logits = trainer.infer(&[3, 700, 0, 50, 899]).expect("logits");
    if gradients.count > 0 {
        trainer.step().expect("a step");
    }
    Outcome { scores: [evaluated, trained], gradients, parameters: trainer.parameters().expect("parameters"), logits }
}

/// The largest magnitude among `values`, at least `least`.
fn largest<'a>(values: impl IntoIterator<Item = &'a f32>, least: f32) -> f32 {
    values.into_iter().fold(least, |m, x| m.max(x.abs()))
}

/// Differences of at most 1e-4 of the largest value, or of `least` where all are smaller.
fn close(what: &str, actual: &[f32], expected: &[f32], least: f32) -> Result<(), String> {
    let tolerance = 1e-4 * largest(expected, least);
    assert_eq!(actual.len(), expected.len(), "{what}");
    let apart = actual.iter().zip(expected).enumerate().find(|(_, (a, e))| (*a - *e).abs() > tolerance);
    apart.map_or(Ok(()), |(i, (a, e))| Err(format!("{what}: element {i} is {a}, burn's {e}")))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn results_agree_with_burn_and_do_not_depend_on_where_rows_are_read(
        kind in prop::sample::select(vec!["sage", "gcn", "gat", "mlp"]),
        dtype in prop::sample::select(vec![Dtype::F32, Dtype::F16, Dtype::U8]),
        nodes in prop::sample::select(vec![[700usize, 410, 130], [300, 290, 280], [5, 3, 1]]),
        (dim, hidden) in prop::sample::select(vec![(64usize, 8usize), (300, 32), (500, 72)]),
        layers in 1usize..3,
        input_dropout in prop::sample::select(vec![0.0f64, 0.4]),
        seed in 0u64..100,
    ) {
        // ELU, not ReLU, whose derivative is not continuous.
        let more = json!({"layers": layers, "hidden": hidden, "input_dropout": input_dropout, "activation": "elu", "heads": 2});
        let model = model(kind, dim, CLASSES, more);
        let dataset = Arc::new(dataset(matrix(dim, dtype)));
        let features = dataset.features.as_ref().expect("features");
        prop_assert!(features.view().is_sparse(dim));
        let nodes = if kind == "mlp" { &nodes[2..] } else { &nodes[2 - layers..] };
        let compare = |seed: u64| -> Result<(), String> {
            let [gathered, direct] = gathered_and_direct(batch(nodes, (dim, CLASSES), dtype, false, seed), features);
            let mut burn = CpuBurn::new(&context_over(&dataset, &model, 2)).expect("built");
            let expected = run(&mut burn, gathered.clone());
            let mut natives = [(gathered, 3), (direct.clone(), 3), (direct, 1)].map(|(batch, threads)| {
                run(&mut CpuNative::new(&context_over(&dataset, &model, threads)).expect("built"), batch)
            });
            assert_eq!(&natives[1], &natives[0]);
            assert_eq!(&natives[2], &natives[0]);
            let [native, ..] = &mut natives;
            for (a, e) in native.scores.iter().zip(&expected.scores) {
                assert_eq!(a.count, e.count);
                assert!((a.loss_sum - e.loss_sum).abs() <= 1e-5 * e.loss_sum.abs(), "loss {a:?}, burn's {e:?}");
            }
            // Terms of a gradient may cancel, as those of an attention vector do, and leave their rounding errors.
            let gradients = &expected.gradients.tensors;
            let least = 0.01 * largest(gradients.iter().flat_map(|t| &t.values), 0.1);
            for (a, e) in native.gradients.tensors.iter().zip(gradients) {
                close(&format!("{model}, gradient of {}", e.name), &a.values, &e.values, least)?;
            }
            close(&format!("{model}, logits"), &native.logits, &expected.logits, 1e-3)
        };
        let compared = compare(seed);
        // The score of an edge that is 0 but for rounding takes either branch of GAT's LeakyReLU, whose derivatives differ. Few mini-batches
        // have one: another is compared then.
        let compared = if kind == "gat" { compared.or_else(|_| compare(seed + 1000)) } else { compared };
        prop_assert!(compared.is_ok(), "{compared:?}");
    }
}
