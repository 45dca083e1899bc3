//! The optimizer's state as tensors, which move between training operators like parameters.

use morphgl_registry::{NamedTensor, Result};

use crate::{LrScheduleKind, OptimizerSpec, ParameterSpec, Steps, check_tensors};

/// Name of the tensor with the number of steps, in two digits.
const STEP: &str = "step";

/// Name of the tensor with the number of reductions.
const REDUCTIONS: &str = "lr_reductions";

/// Base of a step count, stored as two digits that are exact in f32.
const STEP_BASE: u64 = 1 << 20;

/// Moments of a parameter's elements, in the order of [`OptimizerSpec::moments`]; those that the optimizer does not have are empty.
pub type Moments<'a> = [&'a [f32]; 2];

/// The state as tensors: `step`, `lr_reductions` where a plateau reduces the learning rate, and the moments of each parameter by
/// torch's names; `moments` are in the order of `trainable`.
pub fn optimizer_state<'a>(
    spec: &OptimizerSpec,
    trainable: &[ParameterSpec],
    steps: Steps,
    moments: impl IntoIterator<Item = Moments<'a>>,
) -> Vec<NamedTensor> {
    let step = vec![(steps.done / STEP_BASE) as f32, (steps.done % STEP_BASE) as f32];
    let reductions = is_reduced(spec).then(|| vec![steps.reductions as f32]);
    let of_each = |moments: Moments<'a>| moments.into_iter().take(spec.moments().len());
    let moments = moments.into_iter().flat_map(of_each).map(<[f32]>::to_vec);
    let values = std::iter::once(step).chain(reductions).chain(moments);
    let tensors = state_specs(spec, trainable).into_iter().zip(values);
    tensors.map(|(p, values)| NamedTensor { name: p.name, shape: p.shape, values }).collect()
}

/// Parses the output of [`optimizer_state`]: the steps, and the moments in the order of `trainable`.
///
/// # Errors
///
/// A missing, unknown or repeated tensor, or a shape that is not the parameter's.
pub fn read_optimizer_state<'a>(
    spec: &OptimizerSpec,
    trainable: &[ParameterSpec],
    state: &'a [NamedTensor],
) -> Result<(Steps, Vec<Moments<'a>>)> {
    let mut tensors = check_tensors("optimizer state", &state_specs(spec, trainable), state)?.into_iter();
    let steps = steps_of(state).expect("the step was checked");
    tensors.by_ref().take(1 + usize::from(is_reduced(spec))).for_each(drop);
    let mut next = |i: usize| match i < spec.moments().len() {
        true => &tensors.next().expect("every moment was checked").values[..],
        false => &[],
    };
    Ok((steps, trainable.iter().map(|_| [next(0), next(1)]).collect()))
}

/// Position of the optimizer of a state; `None` where it is not of [`optimizer_state`].
pub fn steps_of(state: &[NamedTensor]) -> Option<Steps> {
    let named = |name: &str| state.iter().find(|tensor| tensor.name == name).map(|tensor| &tensor.values[..]);
    let &[high, low] = named(STEP)? else { return None };
    let done = high as u64 * STEP_BASE + low as u64;
    Some(Steps { done, reductions: named(REDUCTIONS).map_or(0, |values| values[0] as u32) })
}

/// Counts a reduction of the learning rate by [`LrScheduleKind::Plateau`] in a state; returns whether it has such a count.
pub fn count_reduction(state: &mut [NamedTensor]) -> bool {
    let tensor = state.iter_mut().find(|tensor| tensor.name == REDUCTIONS);
    tensor.map(|tensor| tensor.values[0] += 1.0).is_some()
}

fn is_reduced(spec: &OptimizerSpec) -> bool {
    spec.schedule.kind == LrScheduleKind::Plateau
}

/// Name and shape of the tensors of a state; other fields are unused.
fn state_specs(spec: &OptimizerSpec, trainable: &[ParameterSpec]) -> Vec<ParameterSpec> {
    let named = |p: &ParameterSpec, name: String| ParameterSpec { name, ..p.clone() };
    let any = trainable.first().expect("every model has a parameter to train");
    let count = |name: &str, len: usize| ParameterSpec { shape: vec![len], ..named(any, name.to_string()) };
    let counts = std::iter::once(count(STEP, 2)).chain(is_reduced(spec).then(|| count(REDUCTIONS, 1)));
    let of_each = |p| spec.moments().iter().map(move |m| named(p, format!("{}.{m}", p.name)));
    counts.chain(trainable.iter().flat_map(of_each)).collect()
}

#[cfg(test)]
mod tests;
