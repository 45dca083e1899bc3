//! Inference of the trainers of a group: the logits of one trainer, from parts of every layer's rows.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use morphgl_graph_store::{Dataset, FeatureMatrix};
use morphgl_group::{Exchange, GroupError, HostExchange, InferTogether};
use morphgl_registry::{Training, TrainingContext};
use morphgl_training_cpu_burn::CpuBurn;
use morphgl_training_cpu_native::CpuNative;
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(120);
const DIM: usize = 20;

/// A graph of 3,000 nodes with degrees of 0 to some 60, whose features lie in f32.
fn graph() -> Arc<Dataset> {
    let mut dataset = morphgl_conformance::training::tiny();
    let num_nodes = 3000u32;
    let (mut indptr, mut indices) = (vec![0u64], Vec::new());
    for v in 0..num_nodes {
        let degree = if v % 97 == 0 { 60 } else { v % 7 };
        indices.extend((0..degree).map(|i| (v * 31 + i * i * 17 + 5) % num_nodes));
        indptr.push(indices.len() as u64);
    }
    dataset.topology = morphgl_graph_store::Topology::new(indptr, indices, None).expect("a graph");
    let features: Vec<f32> =
        (0..num_nodes as usize * DIM).map(|i| ((i * 7919 % 1009) as f32 - 504.0) / 500.0).collect();
    dataset.features = Some(FeatureMatrix::F32 { data: features.into(), dim: DIM });
    dataset.labels = Some((0..num_nodes as i32).map(|v| v % 2).collect::<Vec<_>>().into());
    dataset.splits.train = (0..num_nodes).collect::<Vec<_>>().into();
    Arc::new(dataset)
}

fn context(dataset: &Arc<Dataset>, model: &Value) -> TrainingContext {
    TrainingContext { seed: 3, ..TrainingContext::new(Arc::clone(dataset), json!({"model": model, "optimizer": {}})) }
}

/// Makes one trainer after the other, all with the same parameters.
type Build<'a> = &'a (dyn Fn() -> Box<dyn Training> + Sync);

/// The logits of each of `size` trainers, and the elements of rows that it has computed.
fn together(size: usize, nodes: &[u32], build: Build<'_>) -> Vec<(Vec<f32>, u64)> {
    thread::scope(|scope| {
        let infer = |end: HostExchange| {
            let mut peers = InferTogether::new(end);
            let logits = build().infer_together(nodes, &mut peers).expect("logits");
            (logits, peers.computed)
        };
        let running: Vec<_> =
            HostExchange::group(size, LIMIT).into_iter().map(|end| scope.spawn(move || infer(end))).collect();
        running.into_iter().map(|t| t.join().expect("the trainer ends well")).collect()
    })
}

/// The logits of one trainer but for rounding: kernels may take the last rows of a chunk in another way. All trainers have the same
/// bits, as each row is computed by one.
#[test]
fn logits_are_those_of_one_trainer() {
    let dataset = graph();
    let nodes: Vec<u32> = (0..3000).rev().step_by(4).chain([2999]).collect();
    for (kind, layers) in [("sage", 3), ("gcn", 2), ("gat", 2), ("gin", 2), ("mlp", 2)] {
        let model = json!({"kind": kind, "in_dim": DIM, "num_classes": 2, "hidden": 24, "layers": layers, "heads": 2});
        let native =
            || -> Box<dyn Training> { Box::new(CpuNative::new(&context(&dataset, &model)).expect("a trainer")) };
        let burn = || -> Box<dyn Training> { Box::new(CpuBurn::new(&context(&dataset, &model)).expect("a trainer")) };
        let builds: [(&str, Build<'_>); 2] = [("native", &native), ("burn", &burn)];
        // GIN is burn's alone.
        for (operator, build) in builds.into_iter().filter(|(operator, _)| kind != "gin" || *operator == "burn") {
            // Of three nodes: more trainers than the last layer has rows, too.
            for (nodes, distinct) in [(&nodes[..], 750), (&nodes[..3], 3)] {
                let expected = build().infer(nodes).expect("logits");
                for size in [1, 2, 3, 4, 7] {
                    let what = format!("{operator}, {kind}, {size} trainers, {} nodes", nodes.len());
                    let all = together(size, nodes, build);
                    assert!(
                        all.iter().all(|(logits, _)| bits(logits) == bits(&all[0].0)),
                        "{what}: not all have the same"
                    );
                    let apart = all[0].0.iter().zip(&expected).map(|(a, e)| (a - e).abs() / e.abs().max(1.0));
                    let apart = apart.fold(0.0, f32::max);
                    let most = if size == 1 { 0.0 } else { 1e-5 };
                    assert!(all[0].0.len() == expected.len() && apart <= most, "{what}: {apart:e} apart");
                    let computed: Vec<u64> = all.iter().map(|(_, computed)| *computed).collect();
                    let whole = 3000 * 24 * (layers - 1) + distinct * 2;
                    assert_eq!(computed.iter().sum::<u64>(), whole, "{what}: each row is computed once");
                    // Each has its part of the work.
                    let most = if size == 1 { 1.0 } else { 1.6 / size as f64 };
                    assert!(computed.iter().all(|&own| own as f64 <= whole as f64 * most), "{what}: {computed:?}");
                }
            }
        }
    }
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

/// What trainers gather is longer than a piece, and not a multiple of it.
#[test]
fn parts_are_gathered_in_pieces() {
    let len = 5_000_003;
    let value = |i: usize| (i % 8_388_608) as f32;
    let cut = [0, 1, 3_700_000, 3_700_000, len];
    let parts: Vec<_> = cut.windows(2).map(|ends| ends[0]..ends[1]).collect();
    thread::scope(|scope| {
        for mut end in HostExchange::group(4, LIMIT) {
            let parts = &parts;
            scope.spawn(move || {
                let own = parts[end.rank()].clone();
                let mut values = vec![-1.0; len];
                own.for_each(|i| values[i] = value(i));
                end.gather_parts(&mut values, parts).expect("all come");
                assert!(values.iter().enumerate().all(|(i, &x)| x == value(i)));
            });
        }
    });
}

#[test]
fn another_part_is_named() {
    thread::scope(|scope| {
        for mut end in HostExchange::group(2, LIMIT) {
            scope.spawn(move || {
                let parts = if end.rank() == 0 { [0..3, 3..7] } else { [0..2, 2..7] };
                let error = end.gather_parts(&mut [0.0; 7], &parts).expect_err("parts differ");
                let what = ["it sends 20 bytes of rows, 16 are its part", "it sends 12 bytes of rows, 8 are its part"];
                let rank = 1 - end.rank();
                assert_eq!(error, GroupError::Differs { rank, what: what[end.rank()].to_string() });
                // Both ends are kept until both have seen it.
                end.all_gather(&[]).expect("all come");
            });
        }
    });
}
