use super::*;
use crate::{ModelKind, ModelSpec};

#[test]
fn states_survive_tensors() {
    let trainable = ModelSpec { layers: 1, ..ModelSpec::new(ModelKind::Gcn, 2, 3) }.parameters();
    let moments = [[&[1.0f32, 2.0, 3.0][..], &[4.0; 3]], [&[5.0; 6], &[6.0; 6]]];
    for step in [0, 7, (1 << 20) - 1, 1 << 20, (1 << 43) + 5] {
        let state = optimizer_state(&trainable, step, moments);
        assert_eq!(state[1].name, format!("{}.exp_avg", trainable[0].name));
        assert_eq!(state[4].shape, trainable[1].shape);
        assert_eq!(read_optimizer_state(&trainable, &state).expect("a state"), (step, moments.to_vec()));
    }
    let state = optimizer_state(&trainable, 1, moments);
    assert!(read_optimizer_state(&trainable, &state[1..]).is_err_and(|e| e.to_string().contains("step is missing")));
}
