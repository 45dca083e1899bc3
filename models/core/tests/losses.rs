//! Losses: definitions, gradients by the outputs and by the decoder, and independence of the number of threads.

use morphgl_graph_store::{EdgeType, NodeType, Types};
use morphgl_model_core::{Decoder, LossKind, ModelKind, ModelSpec, Objective, Task};
use morphgl_registry::{BatchPairs, Score, Targets};
use proptest::prelude::*;
use rayon::ThreadPoolBuilder;
use serde_json::{Value, json};

fn spec(task: Task, loss: LossKind, width: usize, settings: Value) -> ModelSpec {
    let loss_settings = settings.as_object().expect("settings").clone();
    ModelSpec { task, loss, loss_settings, ..ModelSpec::new(ModelKind::Sage, 4, width) }
}

fn objective(spec: &ModelSpec) -> Objective {
    Objective::new(spec).expect("a valid loss")
}

/// Losses of nodes, with settings.
fn of_nodes(width: usize) -> Vec<ModelSpec> {
    let weights = (0..width).map(|class| format!("{}", 0.5 + class as f32)).collect::<Vec<_>>().join(",");
    let settings = json!({"label_smoothing": 0.1, "class_weights": weights});
    let mut all: Vec<ModelSpec> = Task::ALL[..3]
        .iter()
        .flat_map(|&task| task.losses().iter().map(move |&loss| spec(task, loss, width, json!({}))))
        .collect();
    all.push(spec(Task::Classify, LossKind::CrossEntropy, width, settings));
    all.push(spec(Task::Multilabel, LossKind::BinaryCrossEntropy, width, json!({"positive_weight": 3})));
    all.push(spec(Task::Regress, LossKind::Huber, width, json!({"delta": 0.3})));
    all
}

/// Losses of pairs by every decoder.
fn of_pairs(width: usize) -> Vec<ModelSpec> {
    let decoders = [Decoder::Dot, Decoder::DistMult, Decoder::Mlp];
    let losses = Task::Link.losses().iter();
    losses
        .flat_map(|&loss| decoders.map(|decoder| ModelSpec { decoder, ..spec(Task::Link, loss, width, json!({})) }))
        .collect()
}

/// Link prediction over two edge types: DistMult with a relation vector for each.
fn relational(spec: ModelSpec) -> ModelSpec {
    let node = NodeType { name: "node".into(), count: 6 };
    let edge = |name: &str| EdgeType { source: "node".into(), name: name.into(), target: "node".into() };
    let types = Types::new(vec![node], vec![edge("likes"), edge("knows")]).expect("two edge types");
    ModelSpec { decoder: Decoder::DistMult, relations: 2, types: Some(types), ..spec }
}

/// Losses of edges with so many outputs, of embeddings of width 3, by every decoder that has them.
fn of_edges(outputs: usize) -> Vec<ModelSpec> {
    let decoders =
        [Decoder::Dot, Decoder::DistMult, Decoder::Mlp].into_iter().filter(|&d| outputs == 1 || d == Decoder::Mlp);
    let of = |spec: ModelSpec, decoder| ModelSpec { edge_outputs: outputs, num_classes: 3, decoder, ..spec };
    decoders.flat_map(|decoder| of_nodes(outputs).into_iter().map(move |spec| of(spec, decoder))).collect()
}

fn values() -> impl Strategy<Value = Vec<f32>> {
    prop::collection::vec(-2.0f32..2.0, 400)
}

/// Compares a gradient with one-sided differences of a loss: it lies between them, also where the loss has a kink on one side. Kinks of a
/// ReLU on both sides may bend both differences the same way, so smaller steps decide where the largest does not.
fn same_as_differences(what: &str, at: &[f32], gradient: &[f32], loss: &dyn Fn(&[f32]) -> f64) {
    const STEPS: [f32; 3] = [2e-3, 5e-4, 1.25e-4];
    // What rounding the scores to f32 adds to a difference.
    const ROUNDING: f32 = 2e-6;
    let center = loss(at);
    for (i, &found) in gradient.iter().enumerate() {
        let moved = |by: f32| {
            let mut moved = at.to_vec();
            moved[i] += by;
            (loss(&moved) - center) / f64::from(moved[i] - at[i])
        };
        let differences = |step: f32| {
            let (right, left) = (moved(step), moved(-step));
            let slack = f64::from(ROUNDING / step).max(8e-3) * right.abs().max(left.abs()).max(1.0);
            (right.min(left) - slack)..(right.max(left) + slack)
        };
        let between = STEPS.iter().any(|&step| differences(step).contains(&f64::from(found)));
        assert!(between, "{what}, element {i}: {found}, differences {:?}", STEPS.map(differences));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn gradients_of_nodes_are_differences(values in values(), nodes in 1usize..9, width in 2usize..5) {
        let outputs = &values[..nodes * width];
        let targets: Vec<f32> = values[200..200 + nodes * width].to_vec();
        let labels: Vec<i32> = (0..nodes).map(|v| (targets[v].abs() * 100.0) as i32 % (width as i32 + 1) - 1).collect();
        for spec in of_nodes(width) {
            let targets: Vec<f32> = match spec.task {
                Task::Multilabel => targets.iter().map(|y| if *y > 1.5 { f32::NAN } else { f32::from(u8::from(*y > 0.0)) }).collect(),
                _ => targets.iter().map(|y| if *y > 1.5 { f32::NAN } else { *y }).collect(),
            };
            let targets = if spec.task == Task::Classify { Targets::Classes(&labels) } else { Targets::Values(&targets) };
            let objective = objective(&spec);
            let mut gradient = vec![f32::NAN; outputs.len()];
            let score = objective.gradient(outputs, targets, &[], &mut gradient, &mut []);
            let again = objective.score(outputs, targets, &[]);
            prop_assert_eq!((again.correct, again.count), (score.correct, score.count));
            prop_assert!((again.loss_sum - score.loss_sum).abs() < 1e-9);
            let what = format!("{} {} {:?}", spec.task, spec.loss, spec.loss_settings);
            same_as_differences(&what, outputs, &gradient, &|moved| objective.score(moved, targets, &[]).loss_sum);
        }
    }

    #[test]
    fn gradients_of_pairs_are_differences(values in values(), count in 1usize..4, negatives in 1usize..3) {
        let (nodes, width) = (6, 3);
        let outputs = &values[..nodes * width];
        let end = |i: usize| (values[100 + i].abs() * 1000.0) as u32 % nodes as u32;
        let ends = (0..count * (1 + negatives)).map(|i| [end(2 * i), end(2 * i + 1)]).collect();
        let edge_types = (0..count).chain((0..count).flat_map(|i| std::iter::repeat_n(i, negatives))).map(|i| i as u16 % 2).collect();
        let pairs = BatchPairs { num_positives: count, ends, edge_types };
        let by_type = Task::Link.losses().iter().map(|&loss| relational(spec(Task::Link, loss, width, json!({}))));
        for spec in of_pairs(width).into_iter().chain(by_type) {
            let objective = objective(&spec);
            let decoder = &values[200..200 + spec.decoder.num_elements(width, 1) * spec.relations.max(1)];
            let (mut gradient, mut of_decoder) = (vec![f32::NAN; outputs.len()], vec![1.0; decoder.len()]);
            let targets = Targets::Pairs(&pairs);
            let score = objective.gradient(outputs, targets, decoder, &mut gradient, &mut of_decoder);
            prop_assert_eq!(score, objective.score(outputs, targets, decoder));
            of_decoder.iter_mut().for_each(|sum| *sum -= 1.0);
            let what = format!("{} {}", spec.loss, spec.decoder);
            let loss = |outputs: &[f32], decoder: &[f32]| objective.score(outputs, targets, decoder).loss_sum;
            same_as_differences(&what, outputs, &gradient, &|moved| loss(moved, decoder));
            same_as_differences(&what, decoder, &of_decoder, &|moved| loss(outputs, moved));
        }
    }

    #[test]
    fn gradients_of_edges_are_differences(values in values(), count in 1usize..6, outputs in 1usize..4) {
        let (nodes, width) = (5, 3);
        let embeddings = &values[..nodes * width];
        let end = |i: usize| (values[100 + i].abs() * 1000.0) as u32 % nodes as u32;
        let pairs = BatchPairs { num_positives: count, ends: (0..count).map(|i| [end(2 * i), end(2 * i + 1)]).collect(), ..BatchPairs::default() };
        let labels: Vec<i32> = (0..count).map(|i| (values[150 + i].abs() * 100.0) as i32 % (outputs as i32 + 1) - 1).collect();
        for spec in of_edges(outputs) {
            let bits = spec.task == Task::Multilabel;
            let of_pairs: Vec<f32> = values[160..160 + count * outputs]
                .iter()
                .map(|&y| if y > 1.5 { f32::NAN } else if bits { f32::from(u8::from(y > 0.0)) } else { y })
                .collect();
            let (targets, of_rows) = match spec.task {
                Task::Classify => (Targets::PairClasses(&pairs, &labels), Targets::Classes(&labels)),
                _ => (Targets::PairValues(&pairs, &of_pairs), Targets::Values(&of_pairs)),
            };
            let objective = objective(&spec);
            let decoder = &values[200..200 + spec.decoder.num_elements(width, outputs)];
            let (mut gradient, mut of_decoder) = (vec![f32::NAN; embeddings.len()], vec![1.0; decoder.len()]);
            let score = objective.gradient(embeddings, targets, decoder, &mut gradient, &mut of_decoder);
            let again = objective.score(embeddings, targets, decoder);
            prop_assert_eq!((again.correct, again.count), (score.correct, score.count));
            prop_assert!((again.loss_sum - score.loss_sum).abs() < 1e-9);
            // The loss is that of nodes whose outputs are the decoder's.
            let rows = spec.decoder.outputs((embeddings, width, outputs), (&pairs.ends, &[]), decoder);
            let of_nodes = ModelSpec { edge_outputs: 0, num_classes: outputs, decoder: Decoder::Dot, ..spec.clone() };
            prop_assert_eq!(again, Objective::new(&of_nodes).expect("a valid loss").score(&rows, of_rows, &[]));
            of_decoder.iter_mut().for_each(|sum| *sum -= 1.0);
            let what = format!("edges, {} {} {}", spec.task, spec.loss, spec.decoder);
            let loss = |embeddings: &[f32], decoder: &[f32]| objective.score(embeddings, targets, decoder).loss_sum;
            same_as_differences(&what, embeddings, &gradient, &|moved| loss(moved, decoder));
            same_as_differences(&what, decoder, &of_decoder, &|moved| loss(embeddings, moved));
        }
    }

    #[test]
    fn threads_change_no_bit(values in values(), count in 1usize..80) {
        let (nodes, width) = (50, 4);
        let end = |i: usize| (i * 7919 % nodes) as u32;
        let ends = (0..2 * count).map(|i| [end(2 * i), end(2 * i + 1)]).collect();
        let pairs = BatchPairs { num_positives: count, ends, ..BatchPairs::default() };
        let of_pairs_values: Vec<f32> = values.iter().copied().cycle().take(2 * pairs.ends.len()).collect();
        let of_edges = of_edges(2).into_iter().map(|spec| ModelSpec { num_classes: width, ..spec });
        for spec in of_pairs(width).into_iter().chain(of_nodes(width)).chain(of_edges) {
            let targets = match spec.task {
                Task::Classify => continue,
                _ if spec.learns_edges() => Targets::PairValues(&pairs, &of_pairs_values),
                Task::Link => Targets::Pairs(&pairs),
                _ => Targets::Values(&values[200..]),
            };
            let on = |threads: usize| {
                let pool = ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
                let decoder = &values[200..200 + spec.decoder.num_elements(width, spec.edge_outputs.max(1))];
                let (mut gradient, mut of_decoder) = (vec![0.0; nodes * width], vec![0.0; decoder.len()]);
                let outputs = &values[..nodes * width];
                let objective = objective(&spec);
                let score =
                    pool.install(|| objective.gradient(outputs, targets, decoder, &mut gradient, &mut of_decoder));
                (score, gradient, of_decoder)
            };
            prop_assert_eq!(on(1), on(3));
        }
    }
}

/// The values of torch 2.5's losses, with `reduction="sum"` (divided by the width, where the mean is over a seed's values).
#[test]
fn losses_are_those_of_their_definitions() {
    let outputs = [1.0f32, -2.0, 0.5, 0.25, 3.0, -1.0];
    let of = |task, loss, settings: Value, targets: Targets<'_>| {
        let found = objective(&spec(task, loss, 3, settings)).score(&outputs, targets, &[]);
        (found.loss_sum * 1e5).round() / 1e5
    };
    let ln = |x: [f64; 3], y: usize| x.iter().map(|v| v.exp()).sum::<f64>().ln() - x[y];
    let rows = [[1.0, -2.0, 0.5], [0.25, 3.0, -1.0]];
    let near = |found: f64, expected: f64| assert!((found - expected).abs() < 2e-5, "{found}, expected {expected}");
    let labels = Targets::Classes(&[2, 1]);
    let (entropy, smoothing, weights) = (LossKind::CrossEntropy, 0.3, [1.0, 2.0, 0.5]);
    near(of(Task::Classify, entropy, json!({}), labels), ln(rows[0], 2) + ln(rows[1], 1));
    // torch: (1 - s) * w[y] * nll(y) + s / K * sum of w[k] * nll(k).
    let smoothed = |row: [f64; 3], y: usize| {
        let spread: f64 = (0..3).map(|k| weights[k] * ln(row, k)).sum();
        (1.0 - smoothing) * weights[y] * ln(row, y) + smoothing / 3.0 * spread
    };
    let settings = json!({"label_smoothing": smoothing, "class_weights": "1,2,0.5"});
    near(of(Task::Classify, entropy, settings, labels), smoothed(rows[0], 2) + smoothed(rows[1], 1));
    let binary = |x: f64, y: f64, weight: f64| {
        let p = 1.0 / (1.0 + (-x).exp());
        -(weight * y * p.ln() + (1.0 - y) * (1.0 - p).ln())
    };
    let bits = [1.0, 0.0, 1.0, 0.0, 0.0, f32::NAN];
    let of_first = |w| (binary(1.0, 1.0, w) + binary(-2.0, 0.0, w) + binary(0.5, 1.0, w)) / 3.0;
    let of_second = |w| (binary(0.25, 0.0, w) + binary(3.0, 0.0, w)) / 2.0;
    let (multilabel, bce) = (Task::Multilabel, LossKind::BinaryCrossEntropy);
    near(of(multilabel, bce, json!({}), Targets::Values(&bits)), of_first(1.0) + of_second(1.0));
    near(of(multilabel, bce, json!({"positive_weight": 2}), Targets::Values(&bits)), of_first(2.0) + of_second(2.0));
    let targets = Targets::Values(&[0.0, 0.0, 0.0, 0.0, 1.0, f32::NAN]);
    let regress = |loss, settings| of(Task::Regress, loss, settings, targets);
    near(regress(LossKind::Squared, json!({})), (1.0 + 4.0 + 0.25) / 3.0 + (0.0625 + 4.0) / 2.0);
    near(regress(LossKind::Absolute, json!({})), 3.5 / 3.0 + 2.25 / 2.0);
    near(regress(LossKind::Huber, json!({})), (0.5 + 1.5 + 0.125) / 3.0 + (0.03125 + 1.5) / 2.0);
    let half = |x: f64| 0.5 * (x - 0.25);
    near(
        regress(LossKind::Huber, json!({"delta": 0.5})),
        (half(1.0) + half(2.0) + 0.125) / 3.0 + (0.03125 + half(2.0)) / 2.0,
    );
}

#[test]
fn losses_of_pairs_are_those_of_their_definitions() {
    // Rows of length 1: the dot product of a pair is the product.
    let outputs = [1.0f32, 2.0, -1.0, 0.5];
    let pairs = BatchPairs {
        num_positives: 2,
        ends: vec![[0, 1], [1, 3], [0, 2], [0, 3], [1, 2], [1, 0]],
        ..BatchPairs::default()
    };
    let scores = [2.0f64, 1.0, -1.0, 0.5, -2.0, 2.0];
    let of = |loss| objective(&spec(Task::Link, loss, 1, json!({}))).score(&outputs, Targets::Pairs(&pairs), &[]);
    let softplus = |x: f64| (1.0 + x.exp()).ln();
    let near = |found: Score, correct, count, expected: f64| {
        assert_eq!((found.correct, found.count), (correct, count));
        assert!((found.loss_sum - expected).abs() < 1e-5, "{found:?}, expected {expected}");
    };
    let expected = scores.iter().enumerate().map(|(i, &x)| if i < 2 { softplus(-x) } else { softplus(x) }).sum();
    near(of(LossKind::BinaryCrossEntropy), 4, 6, expected);
    let ahead = [[3.0, 1.5], [3.0, -1.0]];
    let mean_of = |loss: &dyn Fn(f64) -> f64| ahead.iter().map(|d| (loss(d[0]) + loss(d[1])) / 2.0).sum::<f64>();
    near(of(LossKind::Bpr), 1, 2, mean_of(&|d| softplus(-d)));
    near(of(LossKind::Margin), 1, 2, mean_of(&|d| (1.0 - d).max(0.0)));
}

/// A network that has diverged is seen by its loss.
#[test]
fn an_embedding_that_is_nan_makes_every_loss_of_pairs_nan() {
    let width = 2;
    let pairs = BatchPairs { num_positives: 1, ends: vec![[0, 1], [0, 2]], ..BatchPairs::default() };
    for spec in of_pairs(width) {
        let decoder = vec![0.5; spec.decoder.num_elements(width, 1)];
        for node in 0..3 {
            let mut outputs = [0.5f32; 6];
            outputs[node * width] = f32::NAN;
            let score = objective(&spec).score(&outputs, Targets::Pairs(&pairs), &decoder);
            assert!(score.loss_sum.is_nan(), "{} {}, node {node}: {score:?}", spec.loss, spec.decoder);
        }
    }
}

#[test]
fn wrong_losses_are_refused_by_name() {
    let refused = |spec: ModelSpec, text: &str| {
        let error = spec.validate().expect_err(text).to_string();
        assert!(error.contains(text), "{error}, expected {text}");
    };
    refused(spec(Task::Regress, LossKind::CrossEntropy, 3, json!({})), "use one of mse, mae, huber");
    refused(spec(Task::Link, LossKind::Squared, 3, json!({})), "use one of bce, bpr, margin");
    refused(
        ModelSpec { decoder: Decoder::Mlp, ..spec(Task::Classify, LossKind::CrossEntropy, 3, json!({})) },
        "decoder",
    );
    let edges =
        |task: Task, decoder| ModelSpec { edge_outputs: 3, decoder, ..spec(task, task.losses()[0], 8, json!({})) };
    edges(Task::Classify, Decoder::Mlp).validate().expect("classes of edges");
    refused(edges(Task::Classify, Decoder::Dot), "dot gives one output, and the task has 3; use mlp");
    refused(edges(Task::Link, Decoder::Mlp), "edge_outputs");
    let weighted = json!({"class_weights": "1,2"}).as_object().expect("settings").clone();
    refused(ModelSpec { loss_settings: weighted, ..edges(Task::Classify, Decoder::Mlp) }, "2 numbers for 3 classes");
    let entropy = |settings| spec(Task::Classify, LossKind::CrossEntropy, 3, settings);
    refused(entropy(json!({"label_smoothing": 1})), "from 0 to below 1");
    refused(entropy(json!({"class_weights": "1,2"})), "2 numbers for 3 classes");
    refused(entropy(json!({"class_weights": "1,x,2"})), "\"x\"");
    refused(entropy(json!({"gamma": 2})), "gamma");
    refused(spec(Task::Regress, LossKind::Huber, 1, json!({"delta": 0})), "above 0");
    refused(spec(Task::Link, LossKind::Margin, 1, json!({"margin": -1})), "at least 0");
    refused(spec(Task::Multilabel, LossKind::BinaryCrossEntropy, 1, json!({"positive_weight": 0})), "above 0");
}
