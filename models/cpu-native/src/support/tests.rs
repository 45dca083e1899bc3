use serde_json::json;

use super::*;

#[test]
fn too_many_heads_with_attention_dropout_are_refused() {
    let check = |layers: usize, heads: [usize; 2], dropout: f32, expected: bool| {
        let model = json!({
            "kind": "gat", "in_dim": 3, "num_classes": 2, "layers": layers, "hidden": heads[0],
            "heads": heads[0], "output_heads": heads[1], "attention_dropout": dropout,
        });
        let spec = TrainingSpec::from_json(&json!({"model": model})).expect("a spec");
        let refused = supports(&spec).err();
        assert_eq!(refused.is_none(), expected, "{layers} layers, {heads:?}, {dropout}: {refused:?}");
    };
    let (most, more) = (MAX_DROPPED_HEADS, MAX_DROPPED_HEADS + 1);
    check(2, [most, most], 0.5, true);
    check(2, [more, 1], 0.5, false);
    check(2, [1, more], 0.5, false);
    check(2, [more, more], 0.0, true);
    check(1, [more, 1], 0.5, true);
    assert_eq!(MAX_DROPPED_HEADS, 1024, "the number in the message");
}
