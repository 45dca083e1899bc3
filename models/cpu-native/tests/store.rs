//! Features read from the store give the same bits as gathered features.

mod common;

use std::sync::Arc;

use common::{Random, batch, context, host, model};
use half::{bf16, f16};
use morphgl_graph_store::{Dataset, Dtype, FeatureMatrix};
use morphgl_registry::{BatchFeatures, HostBatch, ModelState, Training, TrainingContext};
use morphgl_training_cpu_native::CpuNative;
use proptest::prelude::*;
use serde_json::{Value, json};

const DTYPES: [Dtype; 4] = [Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::U8];

fn matrix(rows: usize, dim: usize, dtype: Dtype) -> FeatureMatrix {
    let mut random = Random(17);
    let values: Vec<f32> = (0..rows * dim).map(|_| random.unit()).collect();
    let values = values.into_iter();
    match dtype {
        Dtype::F16 => FeatureMatrix::F16 { data: values.map(f16::from_f32).collect::<Vec<_>>().into(), dim },
        Dtype::Bf16 => FeatureMatrix::Bf16 { data: values.map(bf16::from_f32).collect::<Vec<_>>().into(), dim },
        Dtype::U8 => FeatureMatrix::U8 { data: values.map(|x| (4.0 + 4.0 * x) as u8).collect::<Vec<_>>().into(), dim },
        _ => FeatureMatrix::F32 { data: values.collect::<Vec<_>>().into(), dim },
    }
}

/// An operator whose dataset has these features.
fn trainer_over(matrix: FeatureMatrix, model: &Value, threads: usize) -> CpuNative {
    let context = context(model, threads);
    let dataset = Arc::new(Dataset { features: Some(matrix), ..(*context.dataset).clone() });
    CpuNative::new(&TrainingContext { dataset, ..context }).expect("the operator is built")
}

/// The mini-batch over distinct nodes of the store, with gathered features and without features.
fn gathered_and_direct(mut batch: HostBatch, matrix: &FeatureMatrix) -> [HostBatch; 2] {
    let (count, rows) = (batch.input_nodes.len(), matrix.num_rows());
    // Scattered nodes, the last row of the store among them.
    batch.input_nodes = (0..count).map(|i| (rows - 1 - i * (rows / count)) as u32).collect();
    let mut features = BatchFeatures::like(matrix);
    matrix.gather_rows(&batch.input_nodes, features.resize(count, matrix.dim(), matrix.dtype()));
    [HostBatch { features: Some(features), ..batch.clone() }, HostBatch { features: None, ..batch }]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn direct_reads_change_no_bit(
        kind in prop::sample::select(vec!["sage", "gcn", "gat", "mlp"]),
        dtype in prop::sample::select(DTYPES.to_vec()),
        nodes in prop::sample::select(vec![[700usize, 410, 130], [300, 290, 280], [5, 3, 1]]),
        dim in prop::sample::select(vec![1usize, 7, 100, 128, 300]),
        hidden in prop::sample::select(vec![4usize, 72]),
        input_dropout in prop::sample::select(vec![0.0f64, 0.3]),
        weighted: bool,
        threads in 1usize..4,
        seed in 0u64..100,
    ) {
        let more = json!({"layers": 2, "hidden": hidden, "input_dropout": input_dropout});
        let model = model(kind, dim, 5, more);
        let layers = if kind == "mlp" { &nodes[2..] } else { &nodes[..] };
        let matrix = || matrix(2_000, dim, dtype);
        let batches = gathered_and_direct(batch(layers, (dim, 5), dtype, weighted && kind != "gat", seed), &matrix());
        let [gathered, direct] = batches.map(|batch| {
            let (mut trainer, batch) = (trainer_over(matrix(), &model, threads), host(batch));
            let evaluated = trainer.score(&batch).and_then(|h| h.wait()).expect("a score").0;
            let trained = trainer.accumulate(&batch).and_then(|h| h.wait()).expect("a score").0;
            let gradients = trainer.gradients().expect("gradients");
            if gradients.count > 0 {
                trainer.step().expect("a step");
            }
            (evaluated, trained, gradients, trainer.parameters().expect("parameters"))
        });
        prop_assert!(gathered.2.count == 0 || gathered.1.loss_sum > 0.0);
        prop_assert_eq!(direct, gathered);
    }
}

#[test]
fn nodes_outside_of_the_store_are_refused() {
    let model = model("sage", 7, 5, json!({"layers": 2, "hidden": 4}));
    let check = |change: &dyn Fn(&mut HostBatch), expected: &str| {
        let mut trainer = trainer_over(matrix(40, 7, Dtype::F16), &model, 1);
        let mut batch = batch(&[20, 12, 6], (7, 5), Dtype::F16, false, 2);
        batch.features = None;
        change(&mut batch);
        let batch = host(batch);
        for error in [trainer.accumulate(&batch).err(), trainer.score(&batch).err()] {
            let error = error.expect("it is refused").to_string();
            assert_eq!(error, format!("Training_CPU_Native, mini-batch 2 of epoch 1: {expected}"));
        }
    };
    check(
        &|batch| batch.input_nodes[19] = 40,
        "the dataset has no features of node 40, there are 40 rows; batch it from the dataset that is trained on",
    );
    check(&|batch| batch.input_nodes.truncate(19), "it has 19 input nodes, its blocks read 20; batch it again");
}
