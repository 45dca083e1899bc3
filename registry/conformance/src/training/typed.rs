//! Typed models, and inputs per node type.

use std::sync::Arc;

use morphgl_graph_store::{Dataset, EdgeType, FeatureMatrix, NodeType, Types};
use morphgl_registry::{BatchFeatures, HostBatch, MiniBatch, Place};
use serde_json::{Value, json};

use super::{Run, Subject, graph, model, numbers, state, together};

/// Width of the features of the first node type.
const WIDTH: usize = 2;

/// Runs the checks of typed models on a typed graph.
pub(super) fn check(subject: &Subject<'_>) {
    let run = Run { subject, dataset: Arc::new(tiny()), typed: true };
    if !subject.takes_types {
        return refused(&run);
    }
    for dataset in [tiny(), with_features_by_type()] {
        let run = Run { dataset: Arc::new(dataset), ..run };
        some_are_refused(&run);
        if run.models().is_empty() {
            continue;
        }
        numbers::forward_is_the_reference(&run);
        numbers::dropout_is_a_function_of_the_batch(&run);
        numbers::inference_is_the_forward_pass(&run);
        state::a_rebuilt_operator_goes_on_alike(&run);
        if subject.sanitized {
            // The others run the same code on other numbers.
            continue;
        }
        numbers::gradients_are_differences(&run);
        numbers::shares_add_up(&run);
        numbers::unlabelled_seeds_do_not_count(&run);
        numbers::one_seed_and_isolated_nodes(&run);
        together::logits_are_those_of_one_process(&run);
        numbers::loss_falls(&run);
        state::a_copy_goes_on_alike(&run);
        state::threads_change_little(&run);
    }
    if *subject.place == Place::Host {
        features_of_the_mini_batch_are_read(&Run { dataset: Arc::new(with_features_by_type()), ..run });
    }
    others_are_refused(&run);
}

/// The tiny graph with three node types (of the last type's nodes, one has no edges and one leads to others alone) and five edge types, of
/// which two are between the same node types.
pub fn tiny() -> Dataset {
    let plain = graph::tiny();
    let node = |name: &str, count| NodeType { name: name.to_string(), count };
    let edge = |[source, name, target]: [&str; 3]| EdgeType {
        source: source.to_string(),
        name: name.to_string(),
        target: target.to_string(),
    };
    let nodes = vec![node("left", 5), node("right", 5), node("no one", 2)];
    let edges = [
        ["left", "next", "left"],
        ["left", "chord", "left"],
        ["left", "to", "right"],
        ["right", "next", "right"],
        ["no one", "to", "left"],
    ];
    let types = Types::new(nodes, edges.map(edge).to_vec()).expect("types");
    let (mut indices, mut edge_types) = (Vec::new(), Vec::new());
    for node in 0..plain.num_nodes() as u32 {
        let of_edge = |source: u32| match (types.node_type(source), types.node_type(node)) {
            (0, 0) => u16::from(source.abs_diff(node) != 1),
            (0, 1) => 2,
            (1, 1) => 3,
            _ => 4,
        };
        let mut row: Vec<(u16, u32)> = plain.topology.neighbors(node).iter().map(|&u| (of_edge(u), u)).collect();
        row.sort_by_key(|edge| edge.0);
        row.into_iter().for_each(|(edge_type, source)| {
            edge_types.push(edge_type);
            indices.push(source);
        });
    }
    let untyped = morphgl_graph_store::Topology::new(plain.topology.indptr().to_vec(), indices, None);
    let topology = untyped.expect("the same edges").with_types(types, edge_types).expect("types of the edges");
    Dataset { topology, ..plain }
}

/// The typed graph with features of the first node type alone.
fn with_features_by_type() -> Dataset {
    let typed = tiny();
    let Some(FeatureMatrix::F32 { data, dim }) = &typed.features else { unreachable!("features in f32") };
    let of_first = data.chunks_exact(*dim).take(5).flat_map(|row| &row[..WIDTH]).copied().collect::<Vec<f32>>();
    let of_first = FeatureMatrix::F32 { data: of_first.into(), dim: WIDTH };
    Dataset { features: None, features_by_type: vec![Some(of_first), None, None], ..typed }
}

/// The rows of `nodes` in the features of each node type.
///
/// # Panics
///
/// When the dataset has no types.
pub fn features_by_type(dataset: &Dataset, nodes: &[u32]) -> Vec<Option<BatchFeatures>> {
    let types = dataset.topology.types().expect("a typed graph");
    let of_type = |(number, matrix): (usize, &Option<FeatureMatrix>)| {
        matrix.as_ref().map(|matrix| {
            let range = types.range(number);
            let rows: Vec<u32> =
                nodes.iter().filter(|node| range.contains(node)).map(|node| node - range.start).collect();
            let mut features = BatchFeatures::like(matrix);
            matrix.gather_rows(&rows, features.resize(rows.len(), matrix.dim(), matrix.dtype()));
            features
        })
    };
    dataset.features_by_type.iter().enumerate().map(of_type).collect()
}

/// A mini-batch's features per node type stand in for the dataset's, to the same bits; of another number of rows they are refused.
fn features_of_the_mini_batch_are_read(run: &Run<'_>) {
    let mut zeros = Dataset::clone(&run.dataset);
    for matrix in zeros.features_by_type.iter_mut().flatten() {
        let len = matrix.num_rows() * matrix.dim();
        *matrix = FeatureMatrix::F32 { data: vec![0.0; len].into(), dim: matrix.dim() };
    }
    for (what, model) in models(run) {
        let seeds = run.all_nodes();
        let plain = run.host_batch(&model, &seeds, 1);
        let by_type = features_by_type(&run.dataset, &plain.input_nodes);
        let gathered = HostBatch { features_by_type: by_type, ..plain.clone() };
        let mut trainer = run.build(&model);
        let expected = super::accumulate(&mut trainer, &MiniBatch::Host(plain));
        let expected = (expected, super::gradients(&mut trainer));
        let mut trainer = Run { dataset: Arc::new(zeros.clone()), ..*run }.build(&model);
        let score = super::accumulate(&mut trainer, &MiniBatch::Host(gathered.clone()));
        assert_eq!((score, super::gradients(&mut trainer)), expected, "{what}: features of the mini-batch");
        let mut short = gathered;
        let first = short.features_by_type[0].as_mut().expect("features of the first type");
        let (rows, dim, dtype) = (first.num_rows(), first.dim, first.dtype);
        first.resize(rows - 1, dim, dtype);
        let refused = super::refusal(&mut trainer, &MiniBatch::Host(short), "a row is missing");
        assert!(refused.contains(&format!("it has {} rows of {dim} features", rows - 1)), "{what}: {refused}");
    }
}

/// The models that an operator is checked with on a typed graph: those that it does not refuse.
pub(super) fn models(run: &Run<'_>) -> Vec<(&'static str, Value)> {
    all_models(&run.dataset).into_iter().filter(|(_, model)| refused_by(run.subject, model).is_none()).collect()
}

/// The kind or field by which an operator refuses a model.
fn refused_by<'a>(subject: &Subject<'a>, model: &Value) -> Option<&'a str> {
    let has = |name: &&&str| model["kind"] == **name || model.get(**name).is_some();
    subject.refused_types.iter().find(has).copied()
}

/// Models that the operator refuses although it trains others.
fn some_are_refused(run: &Run<'_>) {
    for (what, model) in all_models(&run.dataset) {
        let Some(name) = refused_by(run.subject, &model) else { continue };
        let refused = run.try_build(&model, json!({}), 1).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(refused.contains(name), "{what} is not refused as {name}: {refused:?}");
    }
}

fn all_models(dataset: &Dataset) -> Vec<(&'static str, Value)> {
    let models = [
        ("rgcn", json!({"kind": "rgcn"})),
        ("rgcn of two bases", json!({"kind": "rgcn", "bases": 2})),
        ("rsage", json!({"kind": "rsage", "layers": 3})),
        ("one layer of rsage", json!({"kind": "rsage", "layers": 1, "activation": "relu"})),
        ("rgat", json!({"kind": "rgat", "output_heads": 2})),
        ("hgt", json!({"kind": "hgt", "output_heads": 2})),
    ];
    // Widths of 4 and 2 alone can be divided.
    let of_blocks = ("rgcn of two diagonal blocks", json!({"kind": "rgcn", "diagonal_blocks": 2}));
    let of_type = (("sage", json!({"kind": "sage"})), ("rgatv2", json!({"kind": "rgat", "attention": "gatv2"})));
    let by_type = dataset.features.is_none();
    let more = if by_type { vec![of_blocks, of_type.0] } else { vec![of_type.1] };
    models.into_iter().chain(more).map(|(what, fields)| (what, of(dataset, fields))).collect()
}

/// A model with the types of a dataset, and where features are per node type, with inputs of width 4.
fn of(dataset: &Dataset, mut fields: Value) -> Value {
    fields["types"] = serde_json::to_value(&**dataset.topology.types().expect("types")).expect("JSON");
    if dataset.features.is_none() {
        fields["in_dim"] = json!(4);
        let width = |matrix: &Option<FeatureMatrix>| matrix.as_ref().map_or(0, FeatureMatrix::dim);
        fields["input_widths"] = dataset.features_by_type.iter().map(width).collect();
    }
    model(fields)
}

/// Typed models and inputs per node type are refused by name.
fn refused(run: &Run<'_>) {
    for (what, kind) in [("the model rgcn", "rgcn"), ("the model rgat", "rgat")] {
        let built = run.try_build(&of(&run.dataset, json!({"kind": kind})), json!({}), 1);
        let refused = built.err().map(|e| e.to_string()).unwrap_or_default();
        assert!(refused.contains(kind), "{what} is not refused by name: {refused:?}");
    }
    let run = Run { dataset: Arc::new(with_features_by_type()), ..*run };
    let built = run.try_build(&of(&run.dataset, json!({"kind": "sage"})), json!({}), 1);
    let refused = built.err().map(|e| e.to_string()).unwrap_or_default();
    assert!(refused.contains("inputs per node type"), "inputs per node type are not refused by name: {refused:?}");
}

/// A graph without types, other types, other widths, and blocks without the types of their edges.
fn others_are_refused(run: &Run<'_>) {
    let message = |dataset: &Dataset, model: &Value| {
        let run = Run { dataset: Arc::new(dataset.clone()), ..*run };
        run.try_build(model, json!({}), 1).err().map(|e| e.to_string()).unwrap_or_default()
    };
    let rsage = of(&run.dataset, json!({"kind": "rsage"}));
    let refused = message(&graph::tiny(), &rsage);
    assert!(refused.contains("the graph has no types"), "{refused:?}");
    let mut renamed = rsage.clone();
    renamed["types"]["edges"][0]["name"] = json!("other");
    let refused = message(&run.dataset, &renamed);
    assert!(refused.contains("model.types"), "{refused:?}");
    let mut trainer = run.build(&rsage);
    let mut batch = run.host_batch(&rsage, &[0, 7], 0);
    batch.blocks.iter_mut().for_each(|block| block.edge_types = None);
    let refused = super::refusal(&mut trainer, &(run.subject.transfer)(batch), "a typed model without edge types");
    assert!(refused.contains("--sampler typed"), "{refused}");
    let by_type = with_features_by_type();
    if refused_by(run.subject, &of(&by_type, json!({"kind": "rsage"}))).is_some() {
        return;
    }
    let mut wider = of(&by_type, json!({"kind": "rsage"}));
    wider["input_widths"][0] = json!(WIDTH + 1);
    let refused = message(&by_type, &wider);
    assert!(refused.contains("left have 2 features"), "{refused:?}");
    let mut more = of(&by_type, json!({"kind": "rsage"}));
    more["types"]["nodes"][1]["count"] = json!(6);
    let refused = message(&by_type, &more);
    assert!(refused.contains("embeddings of 6 nodes"), "{refused:?}");
}
