//! The sigmoid of logits and scores of pairs, and the cross-entropy of it, without overflow.

/// Binary cross-entropy of the sigmoid of `x` against `y`, and its derivative by `x`.
pub(crate) fn binary(x: f32, y: f32, positive_weight: f32) -> (f64, f32) {
    let (x, y, weight) = (f64::from(x), f64::from(y), f64::from(positive_weight));
    let loss = weight * y * softplus(-x) + (1.0 - y) * softplus(x);
    let slope = -weight * y * sigmoid(-x) + (1.0 - y) * sigmoid(x);
    (loss, slope as f32)
}

/// ln(1 + exp(x)), which is -ln(1 - sigmoid(x)), without overflow.
pub(crate) fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

pub(crate) fn sigmoid(x: f64) -> f64 {
    if x >= 0.0 { 1.0 / (1.0 + (-x).exp()) } else { x.exp() / (1.0 + x.exp()) }
}
