//! Adam over all parameters in one flat buffer.

use std::sync::atomic::{AtomicBool, Ordering};

use morphgl_model_spec::{Adam, OptimizerSpec, ParameterSpec, WeightDecayOn, optimizer_state, read_optimizer_state};
use morphgl_platform::SimdLevel;
use morphgl_registry::{NamedTensor, Result};

use crate::parallel;
use crate::simd::dispatch;

/// Elements one task updates.
const TASK: usize = 1 << 14;

/// The optimizer's state: both moments of every trainable parameter, in the parameters' order.
#[derive(Debug)]
pub(crate) struct Optimizer {
    spec: OptimizerSpec,
    step: u64,
    first: Vec<f32>,
    second: Vec<f32>,
}

dispatch! {
    /// One step of Adam; whether all parameters are still numbers.
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

    /// Updates `parameters` by `gradients` times `scale`, those before `first_layer` being the first layer's;
    /// returns whether all are still numbers.
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

        let (at, len) = (first_layer, parameters.len());
        for (range, decays) in [(0..at, true), (at..len, decays_later)] {
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
        let mut start = 0;
        let moments = trainable.iter().map(|p| {
            let own = start..start + p.len();
            start = own.end;
            [&self.first[own.clone()], &self.second[own]]
        });
        optimizer_state(trainable, self.step, moments)
    }

    pub(crate) fn set_state(&mut self, trainable: &[ParameterSpec], state: &[NamedTensor]) -> Result<()> {
        let (step, moments) = read_optimizer_state(trainable, state)?;
        self.step = step;
        let mut start = 0;
        for [first, second] in moments {
            let own = start..start + first.len();
            self.first[own.clone()].copy_from_slice(first);
            self.second[own.clone()].copy_from_slice(second);
            start = own.end;
        }
        Ok(())
    }
}
