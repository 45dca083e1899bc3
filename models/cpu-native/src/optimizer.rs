//! The optimizer over all parameters in one flat buffer.

use std::sync::atomic::{AtomicBool, Ordering};

use morphgl_model_core::{
    Moments, OptimizerSpec, OptimizerStep, ParameterSpec, Steps, WeightDecayOn, optimizer_state, read_optimizer_state,
    sum_of_squares,
};
use morphgl_platform::SimdLevel;
use morphgl_registry::{NamedTensor, Result};

use crate::parallel;
use crate::simd::dispatch;

/// Elements that a task updates.
const TASK: usize = 1 << 14;

/// The optimizer's state: moments of all parameters, in the parameters' order; those that it does not have are empty.
#[derive(Debug)]
pub(crate) struct Optimizer {
    spec: OptimizerSpec,
    steps: Steps,
    moments: [Vec<f32>; 2],
}

dispatch! {
    /// One step; returns whether all parameters are finite.
    fn update(step: &OptimizerStep, values: &mut [f32], m: &mut [f32], v: &mut [f32], grad: &[f32], scale: f32) -> bool = update_inner
}

#[inline(always)]
fn update_inner(
    step: &OptimizerStep,
    values: &mut [f32],
    m: &mut [f32],
    v: &mut [f32],
    grad: &[f32],
    scale: f32,
) -> bool {
    step.update(values, [m, v], grad, scale);
    values.iter().fold(true, |all, x| all & x.is_finite())
}

impl Optimizer {
    pub(crate) fn new(spec: OptimizerSpec, len: usize) -> Self {
        let moments = [0, 1].map(|i| vec![0.0; if i < spec.moments().len() { len } else { 0 }]);
        Self { spec, steps: Steps::default(), moments }
    }

    /// Updates `parameters` by `gradients` over `count`; returns whether all are finite. The first layer's parameters are the
    /// first `first_layer`.
    pub(crate) fn step(
        &mut self,
        level: SimdLevel,
        parameters: &mut [f32],
        gradients: &[f32],
        first_layer: usize,
        count: u64,
    ) -> bool {
        self.steps.done += 1;
        let scale = self.spec.gradient_scale(count, || sum_of_squares(gradients));
        let finite = AtomicBool::new(true);
        let decays_later = self.spec.weight_decay_on == WeightDecayOn::All;

        for (range, decays) in [(0..first_layer, true), (first_layer..parameters.len(), decays_later)] {
            let step = OptimizerStep::at(&self.spec, self.steps, decays);
            let gradients = &gradients[range.clone()];
            let [first, second] = self.moments.each_mut().map(|m| m.get_mut(range.clone()).unwrap_or_default());
            let outputs = [(&mut parameters[range.clone()], TASK), (first, TASK), (second, TASK)];
            parallel::tasks(range.len().div_ceil(TASK), outputs, &|task, [values, m, v]| {
                let gradients = &gradients[task * TASK..][..values.len()];
                if !update(level, &step, values, m, v, gradients, scale) {
                    finite.store(false, Ordering::Relaxed);
                }
            });
        }
        finite.into_inner()
    }

    pub(crate) fn state(&self, trainable: &[ParameterSpec]) -> Vec<NamedTensor> {
        let mut rest = self.moments.each_ref().map(|m| &m[..]);
        let moments = trainable
            .iter()
            .map(|p| -> Moments<'_> { rest.each_mut().map(|rest| rest.split_off(..p.len()).unwrap_or_default()) });
        optimizer_state(&self.spec, trainable, self.steps, moments)
    }

    pub(crate) fn set_state(&mut self, trainable: &[ParameterSpec], state: &[NamedTensor]) -> Result<()> {
        let (steps, moments) = read_optimizer_state(&self.spec, trainable, state)?;
        self.steps = steps;
        for (i, own) in self.moments.iter_mut().enumerate() {
            let values = moments.iter().flat_map(|of_parameter| of_parameter[i]);
            own.iter_mut().zip(values).for_each(|(m, x)| *m = *x);
        }
        Ok(())
    }
}
