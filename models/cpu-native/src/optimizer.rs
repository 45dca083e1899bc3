//! Adam over all parameters in one flat buffer.

use std::sync::atomic::{AtomicBool, Ordering};

use morphgl_model_core::{Adam, OptimizerSpec, ParameterSpec, WeightDecayOn, optimizer_state, read_optimizer_state};
use morphgl_platform::SimdLevel;
use morphgl_registry::{NamedTensor, Result};

use crate::parallel;
use crate::simd::dispatch;

/// Elements that a task updates.
const TASK: usize = 1 << 14;

/// Adam's state: first and second moments of all parameters, in the parameters' order.
#[derive(Debug)]
pub(crate) struct Optimizer {
    spec: OptimizerSpec,
    step: u64,
    first: Vec<f32>,
    second: Vec<f32>,
}

dispatch! {
    /// One step of Adam; returns whether all parameters are finite.
    fn update(adam: &Adam, values: &mut [f32], m: &mut [f32], v: &mut [f32], grad: &[f32], scale: f32) -> bool = update_inner
}

#[inline(always)]
fn update_inner(adam: &Adam, values: &mut [f32], m: &mut [f32], v: &mut [f32], grad: &[f32], scale: f32) -> bool {
    adam.update(values, m, v, grad, scale);
    values.iter().fold(true, |all, x| all & x.is_finite())
}

impl Optimizer {
    pub(crate) fn new(spec: OptimizerSpec, len: usize) -> Self {
        Self { spec, step: 0, first: vec![0.0; len], second: vec![0.0; len] }
    }

    /// Updates `parameters` by `gradients` times `scale`; returns whether all are finite. The first layer's parameters are
    /// the first `first_layer`.
    pub(crate) fn step(
        &mut self,
        level: SimdLevel,
        parameters: &mut [f32],
        gradients: &[f32],
        first_layer: usize,
        scale: f32,
    ) -> bool {
        self.step += 1;
        let finite = AtomicBool::new(true);
        let decays_later = self.spec.weight_decay_on == WeightDecayOn::All;

        for (range, decays) in [(0..first_layer, true), (first_layer..parameters.len(), decays_later)] {
            let adam = Adam::at(&self.spec, self.step, decays);
            let gradients = &gradients[range.clone()];
            let outputs = [
                (&mut parameters[range.clone()], TASK),
                (&mut self.first[range.clone()], TASK),
                (&mut self.second[range.clone()], TASK),
            ];
            parallel::tasks(range.len().div_ceil(TASK), outputs, &|task, [values, m, v]| {
                let gradients = &gradients[task * TASK..][..values.len()];
                if !update(level, &adam, values, m, v, gradients, scale) {
                    finite.store(false, Ordering::Relaxed);
                }
            });
        }
        finite.into_inner()
    }

    pub(crate) fn state(&self, trainable: &[ParameterSpec]) -> Vec<NamedTensor> {
        let (mut first, mut second) = (&self.first[..], &self.second[..]);
        let moments = trainable.iter().map(|p| {
            [&mut first, &mut second].map(|rest| rest.split_off(..p.len()).expect("moments of every parameter"))
        });
        optimizer_state(trainable, self.step, moments)
    }

    pub(crate) fn set_state(&mut self, trainable: &[ParameterSpec], state: &[NamedTensor]) -> Result<()> {
        let (step, moments) = read_optimizer_state(trainable, state)?;
        self.step = step;
        let firsts = moments.iter().flat_map(|[first, _]| *first);
        self.first.iter_mut().zip(firsts).for_each(|(m, x)| *m = *x);
        let seconds = moments.iter().flat_map(|[_, second]| *second);
        self.second.iter_mut().zip(seconds).for_each(|(m, x)| *m = *x);
        Ok(())
    }
}
