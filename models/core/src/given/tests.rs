use crate::ModelKind;
use morphgl_registry::{Hardware, Phase};

use super::*;

const KEY: Key = Key::new(Phase::Training, Hardware::CPU, "Test");

#[test]
fn blocks_chain_by_the_rows_that_are_computed_and_given() {
    let block = |num_dst: usize, num_src: usize| BlockSizes { num_dst, num_src, offsets: num_dst + 1 };
    // Two seeds, five rows of the first layer that the second reads, and three more that are given.
    for (second, num_given, expected) in [
        (block(2, 5), 0, true),
        (block(2, 4), 0, true),
        (block(2, 6), 0, false),
        (block(2, 8), 3, true),
        (block(2, 8), 2, false),
        (block(2, 7), 3, false),
        (block(5, 8), 3, true),
        (block(6, 8), 3, false),
        (block(1, 8), 3, false),
        (block(9, 8), 3, false),
        (BlockSizes { offsets: 4, ..block(2, 8) }, 3, false),
    ] {
        let chain = blocks_chain([block(5, 9), second], num_given, 2);
        assert_eq!(chain, expected, "{second:?}, {num_given} given");
    }
    assert!(!blocks_chain([block(5, 9), block(2, 8), block(2, 3)], 3, 2), "a later block reads computed rows alone");
    assert!(blocks_chain([], 0, 2), "a model that reads no graph");
}

#[test]
fn errors_name_the_fault_of_given_rows() {
    let model = ModelSpec { layers: 2, hidden: 8, ..ModelSpec::new(ModelKind::Sage, 3, 2) };
    let fits = || GivenLengths { nodes: 3, degrees: 3, elements: 24, inputs: vec![9, 9] };
    let check =
        |model: &ModelSpec, given| check_given(&KEY, model, BatchId::default(), given).map_err(|e| e.to_string());
    assert_eq!(check(&model, Some(fits())), Ok(3));
    assert_eq!(check(&model, Some(GivenLengths { inputs: Vec::new(), ..fits() })), Ok(3));
    assert_eq!(check(&model, None), Ok(0));
    for (model, given, expected) in [
        (model.clone(), GivenLengths { elements: 0, ..fits() }, "3 given nodes of width 8, 0 elements and 3 degrees"),
        (model.clone(), GivenLengths { degrees: 2, ..fits() }, "3 given nodes of width 8, 24 elements and 2 degrees"),
        (model.clone(), GivenLengths { inputs: vec![9, 6], ..fits() }, "inputs of [9, 6] elements"),
        (ModelSpec { kind: ModelKind::Gcn, ..model.clone() }, fits(), "the weights multiply rows of [3]"),
        (ModelSpec { layers: 1, ..model.clone() }, fits(), "no second layer"),
        (ModelSpec { kind: ModelKind::Mlp, ..model.clone() }, fits(), "no second layer"),
        (ModelSpec { normalization: Normalization::Batch, ..model.clone() }, fits(), "batch normalization"),
    ] {
        let error = check(&model, Some(given)).expect_err("refused");
        assert!(error.starts_with("Training_CPU_Test, mini-batch 0") && error.contains(expected), "{error}");
    }
}
