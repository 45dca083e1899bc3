//! The optimizer's state as tensors, which move between training operators like parameters.

use morphgl_registry::{NamedTensor, Result};

use crate::{ParameterSpec, check_tensors};

/// Base of a step count, stored as two digits that are exact in f32.
const STEP_BASE: u64 = 1 << 20;

/// First and second moments of a parameter's elements.
pub type Moments<'a> = [&'a [f32]; 2];

/// The state as tensors: `step`, and torch's `exp_avg` and `exp_avg_sq` of each parameter; `moments` are in the order of
/// `trainable`.
pub fn optimizer_state<'a>(
    trainable: &[ParameterSpec],
    step: u64,
    moments: impl IntoIterator<Item = Moments<'a>>,
) -> Vec<NamedTensor> {
    let step = [(step / STEP_BASE) as f32, (step % STEP_BASE) as f32];
    let values = std::iter::once(step.to_vec()).chain(moments.into_iter().flatten().map(<[f32]>::to_vec));
    let tensors = state_specs(trainable).into_iter().zip(values);
    tensors.map(|(p, values)| NamedTensor { name: p.name, shape: p.shape, values }).collect()
}

/// Parses the output of [`optimizer_state`]: number of steps, and the moments in the order of `trainable`.
///
/// # Errors
///
/// A missing, unknown or repeated tensor, or a shape that is not the parameter's.
pub fn read_optimizer_state<'a>(
    trainable: &[ParameterSpec],
    state: &'a [NamedTensor],
) -> Result<(u64, Vec<Moments<'a>>)> {
    let ordered = check_tensors("optimizer state", &state_specs(trainable), state)?;
    let (step, moments) = ordered.split_first().expect("the first tensor is the step");
    let step = step.values[0] as u64 * STEP_BASE + step.values[1] as u64;
    Ok((step, moments.as_chunks::<2>().0.iter().map(|pair| pair.map(|t| &t.values[..])).collect()))
}

/// Name and shape of the tensors of a state; other fields are unused.
fn state_specs(trainable: &[ParameterSpec]) -> Vec<ParameterSpec> {
    let named = |p: &ParameterSpec, name: String| ParameterSpec { name, ..p.clone() };
    let any = trainable.first().expect("every model has a parameter to train");
    let step = ParameterSpec { shape: vec![2], ..named(any, "step".to_string()) };
    let moments = trainable.iter().flat_map(|p| ["exp_avg", "exp_avg_sq"].map(|m| named(p, format!("{}.{m}", p.name))));
    std::iter::once(step).chain(moments).collect()
}

#[cfg(test)]
mod tests;
