//! Tasks other than the class of a node, their losses, and the settings of losses.

use std::sync::Arc;

use morphgl_graph_store::{Dataset, EdgeSplits, PairTargets, TargetMatrix};
use morphgl_registry::{BatchPairs, Handle, HostBatch, Score, TargetValues, Targets};
use serde_json::{Value, json};

use super::graph::CLASSES;
use super::numbers::{differences_of, near, same_score};
use super::{Run, Trainer, accumulate, close, gradients, model, parameters, score, step, typed};

/// Losses of nodes: task, loss, settings.
fn of_nodes() -> Vec<(&'static str, &'static str, Value)> {
    vec![
        ("classify", "cross-entropy", json!({"label_smoothing": 0.2})),
        ("classify", "cross-entropy", json!({"class_weights": "0.5,3", "label_smoothing": 0.1})),
        ("multilabel", "bce", json!({})),
        ("multilabel", "bce", json!({"positive_weight": 2.5})),
        ("regress", "mse", json!({})),
        ("regress", "mae", json!({})),
        ("regress", "huber", json!({"delta": 0.7})),
    ]
}

/// Losses of pairs: loss, decoder, settings.
fn of_pairs() -> Vec<(&'static str, &'static str, Value)> {
    vec![
        ("bce", "dot", json!({})),
        ("bce", "distmult", json!({"positive_weight": 2})),
        ("bce", "mlp", json!({})),
        ("bpr", "dot", json!({})),
        ("bpr", "distmult", json!({})),
        ("bpr", "mlp", json!({})),
        ("margin", "distmult", json!({"margin": 2})),
        ("margin", "mlp", json!({"margin": 2})),
    ]
}

/// Two targets of each node, a label of 0 or 1 or a value, of which some are not known: of node 9 none is.
fn with_targets(dataset: &Dataset, task: &str) -> Dataset {
    let value = |i: usize| match (i, task) {
        (5 | 18 | 19, _) => f32::NAN,
        (_, "multilabel") => ((i / 2 + i) % 3 % 2) as f32,
        _ => (i as f32 * 0.37).sin() * 2.0,
    };
    let values: Vec<f32> = (0..dataset.num_nodes() * CLASSES).map(value).collect();
    let targets = TargetMatrix::new(values, CLASSES).expect("targets");
    Dataset { targets: Some(targets), ..dataset.clone() }
}

impl Run<'_> {
    fn batch_of(&self, model: &Value, seeds: &[u32], epoch: u32) -> HostBatch {
        let targets = self.dataset.targets.as_ref().map(|targets| TargetValues {
            width: targets.dim(),
            values: seeds.iter().flat_map(|&v| targets.row(v)).copied().collect(),
        });
        HostBatch { targets: targets.unwrap_or_default(), ..self.host_batch(model, seeds, epoch) }
    }
}

/// The suite's models under a loss.
fn models(task: &str, loss: &str, settings: &Value) -> Vec<Value> {
    let kinds = ["gcn", "mlp", "sage"];
    kinds
        .iter()
        .map(|kind| model(json!({"kind": kind, "task": task, "loss": loss, "loss_settings": settings})))
        .collect()
}

/// Gradients are differences of the loss; a seed without a known target changes nothing; shares add up to the whole; mini-batches
/// with all neighbours score as inference does; the loss falls.
pub(super) fn of_nodes_conform(run: &Run<'_>) {
    for (task, loss, settings) in of_nodes() {
        let dataset = Arc::new(with_targets(&run.dataset, task));
        let run = &Run { dataset, ..*run };
        for model in models(task, loss, &settings) {
            let what = format!("{task} by {loss} {settings}, {}", model["kind"]);
            let mut trainer = run.build(&model);
            let transfer = run.subject.transfer;
            let batch = transfer(run.batch_of(&model, &[0, 3, 7, 10, 11, 8], 1));
            accumulate(&mut trainer, &batch);
            step(&mut trainer);
            differences_of(run, &what, &mut trainer, &batch, 6);

            let unknown = if task == "classify" { 6 } else { 5 };
            let [mut whole, mut parts, mut known] = [0; 3].map(|_| run.build(&model));
            let all = accumulate(&mut whole, &transfer(run.batch_of(&model, &[2, 5, 9, 0, 10, 4], 0)));
            assert_eq!(all.count, unknown, "{what}: seeds with a target");
            let mut sum = Score::default();
            for share in [&[2, 5][..], &[9, 0, 10], &[4]] {
                sum += accumulate(&mut parts, &transfer(run.batch_of(&model, share, 0)));
            }
            same_score(&what, &sum, &all);
            let whole = gradients(&mut whole).tensors;
            close(&what, &gradients(&mut parts).tensors, &whole, 1e-5);
            if task != "classify" {
                accumulate(&mut known, &transfer(run.batch_of(&model, &[2, 5, 0, 10, 4], 0)));
                close(&what, &gradients(&mut known).tensors, &whole, 1e-5);
                let unknown = accumulate(&mut known, &transfer(run.batch_of(&model, &[9], 0)));
                assert_eq!(unknown, Score::default(), "{what}: no target at all");
            }

            let seeds = [0u32, 7, 10, 11, 3];
            let host = run.batch_of(&model, &seeds, 0);
            let outputs = trainer.infer(&seeds).expect("outputs");
            let targets = match task {
                "classify" => Targets::Classes(&host.labels),
                _ => Targets::Values(&host.targets.values),
            };
            let expected = trainer.score_logits(&outputs, targets, CLASSES).expect("a score of outputs");
            same_score(&what, &score(&mut trainer, &transfer(host.clone())), &expected);
            falls(&what, &mut trainer, &transfer(host), 0.9);
        }
    }
}

/// Three positives with two negatives each, and a node that is both ends of one.
fn pairs() -> BatchPairs {
    let ends = vec![[0, 1], [3, 2], [1, 4], [0, 5], [0, 4], [3, 3], [3, 0], [1, 2], [1, 5]];
    BatchPairs { num_positives: 3, ends, edge_types: vec![1, 0, 1, 1, 1, 0, 0, 1, 1] }
}

/// A dataset with edge types, and models whose decoder has a vector for each.
fn with_relations(loss: &str, settings: &Value) -> (Dataset, Vec<Value>) {
    let dataset = typed::tiny();
    let types = dataset.topology.types().expect("a graph with types");
    let more = |mut model: Value| {
        (model["decoder"], model["relations"]) = (json!("distmult"), json!(types.edge_types().len()));
        model["types"] = serde_json::to_value(&**types).expect("JSON");
        model
    };
    let models = models("link", loss, settings).into_iter().map(more).collect();
    (dataset, models)
}

/// As [`of_pairs_conform`], of pairs of several edge types, by a decoder with a vector for each; a mini-batch without them is refused.
pub(super) fn of_relations_conform(run: &Run<'_>) {
    for (loss, settings) in
        [("bce", json!({"positive_weight": 2})), ("bpr", json!({})), ("margin", json!({"margin": 2}))]
    {
        let (dataset, models) = with_relations(loss, &settings);
        let run = &Run { dataset: Arc::new(dataset), ..*run };
        for model in models {
            let what = format!("links of edge types by {loss} {settings}, {}", model["kind"]);
            pairs_conform(run, &what, model.clone());
            let mut trainer = run.build(&model);
            let batch = |edge_types: Vec<u16>| {
                let pairs = Some(Box::new(BatchPairs { edge_types, ..pairs() }));
                let batch = HostBatch { pairs, labels: Vec::new(), ..run.host_batch(&model, &[0, 3, 7, 10, 11, 8], 1) };
                (run.subject.transfer)(batch)
            };
            let refused = super::refusal(&mut trainer, &batch(Vec::new()), "pairs without edge types");
            assert!(refused.contains("edge types of 0 of its 9 pairs"), "{what}: {refused}");
            let refused = super::refusal(&mut trainer, &batch(vec![5; 9]), "an edge type that the model does not have");
            assert!(refused.contains("edge type 5"), "{what}: {refused}");
        }
    }
}

/// A decoder with a vector per edge type is refused by name.
pub(super) fn relations_are_refused(run: &Run<'_>) {
    let (dataset, models) = with_relations("bce", &json!({}));
    let run = &Run { dataset: Arc::new(dataset), ..*run };
    for model in models {
        let refused = run.try_build(&model, json!({}), 1).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(refused.contains("vector per edge type"), "{}: {refused:?}", model["kind"]);
    }
}

/// As [`of_nodes_conform`], of pairs of nodes.
pub(super) fn of_pairs_conform(run: &Run<'_>) {
    for (loss, decoder, settings) in of_pairs() {
        for mut model in models("link", loss, &settings) {
            model["decoder"] = json!(decoder);
            pairs_conform(run, &format!("links by {loss} {settings}, {decoder}, {}", model["kind"]), model);
        }
    }
}

fn pairs_conform(run: &Run<'_>, what: &str, mut model: Value) {
    model["num_classes"] = json!(3);
    let mut trainer = run.build(&model);
    let transfer = run.subject.transfer;
    let of = |pairs: BatchPairs| {
        let batch = run.host_batch(&model, &[0, 3, 7, 10, 11, 8], 1);
        HostBatch { pairs: Some(Box::new(pairs)), labels: Vec::new(), ..batch }
    };
    let batch = transfer(of(pairs()));
    let count = if model["loss"] == "bce" { 9 } else { 3 };
    accumulate(&mut trainer, &batch);
    step(&mut trainer);
    differences_of(run, what, &mut trainer, &batch, count);

    let BatchPairs { ends, edge_types, .. } = pairs();
    let [mut whole, mut parts] = [0; 2].map(|_| run.build(&model));
    let all = accumulate(&mut whole, &batch);
    assert_eq!(all.count, count, "{what}: examples");
    let mut sum = Score::default();
    for positives in [0..1, 1..3] {
        let negatives = 3 + 2 * positives.start..3 + 2 * positives.end;
        let share = BatchPairs {
            num_positives: positives.len(),
            ends: [&ends[positives.clone()], &ends[negatives.clone()]].concat(),
            edge_types: [&edge_types[positives], &edge_types[negatives]].concat(),
        };
        sum += accumulate(&mut parts, &transfer(of(share)));
    }
    same_score(what, &sum, &all);
    close(what, &gradients(&mut parts).tensors, &gradients(&mut whole).tensors, 1e-5);

    let host = of(pairs());
    let outputs = trainer.infer(host.seeds()).expect("embeddings");
    let expected = trainer.score_logits(&outputs, Targets::Pairs(&pairs()), 3).expect("a score of pairs");
    same_score(what, &score(&mut trainer, &batch), &expected);
    let none = HostBatch { pairs: None, ..of(pairs()) };
    let none = transfer(none);
    let error = super::refusal(&mut trainer, &none, "no pairs");
    assert!(error.contains("pairs"), "{what}: {error}");
    let found = trainer.outputs(&none).and_then(Handle::wait).expect("outputs of nodes").0;
    assert!(near(&found, &outputs), "{what}: outputs {found:?}, with all neighbours {outputs:?}");
    falls(what, &mut trainer, &batch, 0.9);
}

/// Three edges, one of which has no target, and a node that is both ends of one.
fn edge_pairs() -> BatchPairs {
    BatchPairs { num_positives: 4, ends: vec![[0, 1], [3, 2], [4, 4], [1, 5]], ..BatchPairs::default() }
}

/// As [`of_nodes_conform`], of labelled edges, by an operator that learns them.
pub(super) fn of_edges_conform(run: &Run<'_>) {
    for (task, loss, settings) in of_nodes() {
        let decoders = if task == "classify" { &["mlp"][..] } else { &["mlp", "distmult", "dot"] };
        for (decoder, mut model) in
            decoders.iter().flat_map(|d| models(task, loss, &settings).into_iter().map(move |m| (d, m)))
        {
            let outputs = if *decoder == "mlp" { CLASSES } else { 1 };
            (model["decoder"], model["num_classes"], model["edge_outputs"]) =
                (json!(decoder), json!(3), json!(outputs));
            // An operator compares the outputs with the dataset's.
            let row = TargetMatrix::new(vec![0.0; outputs], outputs).expect("targets");
            let of_train = PairTargets { labels: None, values: (task != "classify").then_some(row) };
            let edges = EdgeSplits {
                train: Some(vec![0, 1].into()),
                targets: [of_train, PairTargets::default(), PairTargets::default()],
                ..EdgeSplits::default()
            };
            let run = &Run { dataset: Arc::new(Dataset { edges, ..(*run.dataset).clone() }), ..*run };
            let what = format!("edges, {task} by {loss} {settings}, {decoder}, {}", model["kind"]);
            let mut trainer = run.build(&model);
            let transfer = run.subject.transfer;
            let of = |pairs: std::ops::Range<usize>| {
                let value = |i: usize| match (i / outputs, task) {
                    (2, _) => f32::NAN,
                    (_, "multilabel") => (i % 2) as f32,
                    _ => (i as f32 * 0.37).sin() * 2.0,
                };
                let all = BatchPairs {
                    num_positives: pairs.len(),
                    ends: edge_pairs().ends[pairs.clone()].to_vec(),
                    ..BatchPairs::default()
                };
                let values = (pairs.start * outputs..pairs.end * outputs).map(value).collect();
                HostBatch {
                    pairs: Some(Box::new(all)),
                    labels: if task == "classify" { [1, 0, -1, 1][pairs].to_vec() } else { Vec::new() },
                    targets: if task == "classify" {
                        TargetValues::default()
                    } else {
                        TargetValues { width: outputs, values }
                    },
                    ..run.host_batch(&model, &[0, 3, 7, 10, 11, 8], 1)
                }
            };
            let batch = transfer(of(0..4));
            accumulate(&mut trainer, &batch);
            step(&mut trainer);
            differences_of(run, &what, &mut trainer, &batch, 3);

            let [mut whole, mut parts] = [0; 2].map(|_| run.build(&model));
            let all = accumulate(&mut whole, &batch);
            assert_eq!(all.count, 3, "{what}: edges with a target");
            let mut sum = Score::default();
            for share in [0..1, 1..4] {
                sum += accumulate(&mut parts, &transfer(of(share)));
            }
            same_score(&what, &sum, &all);
            close(&what, &gradients(&mut parts).tensors, &gradients(&mut whole).tensors, 1e-5);

            let host = of(0..4);
            let rows = trainer.infer(host.seeds()).expect("embeddings");
            let targets = match task {
                "classify" => Targets::PairClasses(host.pairs.as_ref().expect("pairs"), &host.labels),
                _ => Targets::PairValues(host.pairs.as_ref().expect("pairs"), &host.targets.values),
            };
            let expected = trainer.score_logits(&rows, targets, 3).expect("a score of edges");
            same_score(&what, &score(&mut trainer, &batch), &expected);
            let none = HostBatch { pairs: None, ..of(0..4) };
            let error = super::refusal(&mut trainer, &transfer(none), "no pairs");
            assert!(error.contains("pairs"), "{what}: {error}");
            falls(&what, &mut trainer, &batch, 0.9);
        }
    }
}

/// Training on one mini-batch takes the loss below this share of what it was.
fn falls(what: &str, trainer: &mut Trainer, batch: &morphgl_registry::MiniBatch, share: f64) {
    let first = accumulate(trainer, batch).loss();
    for _ in 0..100 {
        step(trainer);
        accumulate(trainer, batch);
    }
    let last = accumulate(trainer, batch).loss();
    assert!(last < share * first, "{what}: the loss went from {first} to {last}");
    assert!(parameters(trainer).iter().all(|t| t.values.iter().all(|v| v.is_finite())), "{what}");
}

/// An operator that computes the cross-entropy of classes alone refuses all else, by its name.
pub(super) fn other_losses_are_refused(run: &Run<'_>) {
    let nodes = of_nodes().into_iter();
    let links = of_pairs().into_iter().map(|(loss, _, settings)| ("link", loss, settings));
    for (task, loss, settings) in nodes.chain(links) {
        for model in models(task, loss, &settings) {
            let run = &Run { dataset: Arc::new(with_targets(&run.dataset, task)), ..*run };
            let error = run.try_build(&model, json!({}), 1).expect_err("a refused loss").to_string();
            assert!(error.contains("CPU"), "{task} by {loss} {settings}: {error}");
        }
    }
}
