//! The optimizer's state as tensors, so that it moves between training operators as parameters do.

use morphgl_registry::{NamedTensor, Result};

use crate::{ParameterSpec, check_tensors};

/// Steps are stored as two numbers that an f32 holds exactly.
const STEP_BASE: u64 = 1 << 20;

/// First and second moments of a parameter's elements.
pub type Moments<'a> = [&'a [f32]; 2];

/// The state as tensors: `step`, and torch's `exp_avg` and `exp_avg_sq` a parameter; `moments` stand in the order of
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

/// What [`optimizer_state`] was made of: steps done, and the moments in the order of `trainable`.
///
/// # Errors
///
/// A tensor that is missing, unknown or given twice, or a shape that is not the parameter's.
pub fn read_optimizer_state<'a>(
    trainable: &[ParameterSpec],
    state: &'a [NamedTensor],
) -> Result<(u64, Vec<Moments<'a>>)> {
    let found = check_tensors("optimizer state", &state_specs(trainable), state)?;
    let (step, moments) = found.split_first().expect("the step is always asked for");
    let step = step.values[0] as u64 * STEP_BASE + step.values[1] as u64;
    Ok((step, moments.as_chunks::<2>().0.iter().map(|pair| pair.map(|t| &t.values[..])).collect()))
}

/// The tensors of a state. Only name and shape of them are read.
fn state_specs(trainable: &[ParameterSpec]) -> Vec<ParameterSpec> {
    let named = |p: &ParameterSpec, name: String| ParameterSpec { name, ..p.clone() };
    let any = trainable.first().expect("every model has a parameter to train");
    let step = ParameterSpec { shape: vec![2], ..named(any, "step".to_string()) };
    let moments = trainable.iter().flat_map(|p| ["exp_avg", "exp_avg_sq"].map(|m| named(p, format!("{}.{m}", p.name))));
    std::iter::once(step).chain(moments).collect()
}

#[cfg(test)]
mod tests;
