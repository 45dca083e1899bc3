use morphgl_registry::{Hardware, Phase};

use super::*;

fn types() -> Types {
    let node = |name: &str, count| NodeType { name: name.to_string(), count };
    let edge = |[source, name, target]: [&str; 3]| EdgeType {
        source: source.to_string(),
        name: name.to_string(),
        target: target.to_string(),
    };
    let edges = [["author", "writes", "paper"], ["paper", "rev-writes", "author"]].map(edge);
    Types::new(vec![node("paper", 3), node("empty", 0), node("author", 2)], edges.to_vec()).expect("types")
}

fn spec(kind: ModelKind) -> ModelSpec {
    ModelSpec { layers: 1, types: Some(types()), ..ModelSpec::new(kind, 8, 4) }
}

fn parameters(spec: &ModelSpec) -> Vec<(String, Vec<usize>)> {
    spec.parameters().into_iter().map(|p| (p.name, p.shape)).collect()
}

#[test]
fn parameters_have_pygs_names_and_shapes() {
    let named = |name: &str, shape: &[usize]| (name.to_string(), shape.to_vec());
    let rsage = ["author__writes__paper", "paper__rev_writes__author"].map(|of_type| {
        let of_type = format!("convs.0.{of_type}");
        let (weight, own) = (format!("{of_type}.lin_l.weight"), format!("{of_type}.lin_r.weight"));
        [named(&weight, &[4, 8]), named(&format!("{of_type}.lin_l.bias"), &[4]), named(&own, &[4, 8])]
    });
    assert_eq!(parameters(&spec(ModelKind::Rsage)), rsage.as_flattened());
    let own = [named("convs.0.root", &[8, 4]), named("convs.0.bias", &[4])];
    let rgcn = |first: &[(String, Vec<usize>)]| [first, &own].concat();
    assert_eq!(parameters(&spec(ModelKind::Rgcn)), rgcn(&[named("convs.0.weight", &[2, 8, 4])]));
    let bases = ModelSpec { bases: 3, ..spec(ModelKind::Rgcn) };
    assert_eq!(parameters(&bases), rgcn(&[named("convs.0.weight", &[3, 8, 4]), named("convs.0.comp", &[2, 3])]));
    let blocks = ModelSpec { diagonal_blocks: 2, ..spec(ModelKind::Rgcn) };
    assert_eq!(parameters(&blocks), rgcn(&[named("convs.0.weight", &[2, 2, 4, 2])]));
    let of_rgat: Vec<String> = parameters(&spec(ModelKind::Rgat)).into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        of_rgat[..4],
        ["att_src", "att_dst", "bias", "lin.weight"].map(|n| format!("convs.0.author__writes__paper.{n}"))
    );
}

#[test]
fn inputs_per_node_type_are_projections_or_embeddings() {
    let spec = ModelSpec { input_widths: vec![5, 0, 0], ..spec(ModelKind::Sage) };
    let inputs: Vec<_> = spec.parameters().into_iter().take(4).collect();
    let named: Vec<_> = inputs.iter().map(|p| (p.name.as_str(), p.shape.as_slice(), p.layer)).collect();
    let expected: [(&str, &[usize], usize); 4] = [
        ("lin_dict.paper.weight", &[8, 5], 0),
        ("lin_dict.paper.bias", &[8], 0),
        ("emb_dict.empty.weight", &[0, 8], 0),
        ("emb_dict.author.weight", &[2, 8], 0),
    ];
    assert_eq!(named, expected);
    assert_eq!(spec.input_names(2), ("emb_dict.author.weight".to_string(), None));
}

#[test]
fn what_does_not_hold_is_refused_by_field() {
    let refused = |spec: ModelSpec, field: &str| {
        let message = spec.validate().expect_err("it does not hold").to_string();
        assert!(message.starts_with(&format!("model.{field}: ")), "{message}");
    };
    refused(ModelSpec { bases: 2, ..spec(ModelKind::Rsage) }, "bases");
    refused(ModelSpec { bases: 2, diagonal_blocks: 2, ..spec(ModelKind::Rgcn) }, "diagonal_blocks");
    refused(ModelSpec { diagonal_blocks: 3, ..spec(ModelKind::Rgcn) }, "diagonal_blocks");
    refused(ModelSpec { input_widths: vec![1], ..spec(ModelKind::Rgcn) }, "input_widths");
    refused(ModelSpec { input_widths: vec![1], types: None, ..spec(ModelKind::Rgcn) }, "input_widths");
    refused(ModelSpec { attention_dropout: 0.5, ..spec(ModelKind::Rgat) }, "attention_dropout");
    let node = |name: &str| NodeType { name: name.to_string(), count: 1 };
    let alike = Types::new(vec![node("a b"), node("a-b")], Vec::new()).expect("types");
    refused(ModelSpec { types: Some(alike), ..spec(ModelKind::Rgcn) }, "types");
}

#[test]
fn nodes_are_divided_by_type() {
    const KEY: Key = Key::new(Phase::Training, Hardware::CPU, "Test");
    let of_type = |node_type, positions: &[u32], numbers: &[u32]| NodesOfType {
        node_type,
        positions: positions.to_vec(),
        numbers: numbers.to_vec(),
    };
    let divided = nodes_by_type(KEY, &types(), &[4, 0, 3, 2, 0]).expect("nodes of the graph");
    assert_eq!(divided, [of_type(0, &[1, 3, 4], &[0, 2, 0]), of_type(2, &[0, 2], &[1, 0])]);
    let refused = nodes_by_type(KEY, &types(), &[0, 5]).expect_err("there are five nodes").to_string();
    assert!(refused.contains("node 5 is not in the graph, which has 5"), "{refused}");
}
