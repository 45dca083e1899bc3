//! Adam over all parameters in one flat buffer.

use std::sync::atomic::{AtomicBool, Ordering};

use morphgl_model_spec::{Adam, OptimizerSpec, ParameterSpec, WeightDecayOn, check_tensors};
use morphgl_registry::{NamedTensor, Result};

use crate::level::{Level, leveled};
use crate::parallel;

/// Elements one task updates.
const TASK: usize = 1 << 14;

/// Steps are stored as two numbers that an f32 holds exactly.
const STEP_BASE: u64 = 1 << 20;

/// The optimizer's state: both moments of every trainable parameter, in the parameters' order.
#[derive(Debug)]
pub(crate) struct Optimizer {
    spec: OptimizerSpec,
    step: u64,
    first: Vec<f32>,
    second: Vec<f32>,
}

leveled! {
    /// One step of Adam; whether all parameters are still numbers.
    fn update = update_inner(adam: &Adam, values: &mut [f32], m: &mut [f32], v: &mut [f32], grad: &[f32], scale: f32) -> bool
}

#[inline(always)]
fn update_inner<const FUSED: bool>(
    adam: &Adam,
    values: &mut [f32],
    m: &mut [f32],
    v: &mut [f32],
    grad: &[f32],
    scale: f32,
) -> bool {
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
        level: Level,
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

    /// The state as tensors: `step`, and torch's `exp_avg` and `exp_avg_sq` a parameter.
    pub(crate) fn state(&self, trainable: &[ParameterSpec]) -> Vec<NamedTensor> {
        let step = vec![(self.step / STEP_BASE) as f32, (self.step % STEP_BASE) as f32];
        let mut all = Vec::new();
        let mut start = 0;
        for p in trainable {
            for (name, moments) in [("exp_avg", &self.first), ("exp_avg_sq", &self.second)] {
                let values = moments[start..start + p.len()].to_vec();
                all.push(NamedTensor { name: format!("{}.{name}", p.name), shape: p.shape.clone(), values });
            }
            start += p.len();
        }
        std::iter::once(NamedTensor { name: "step".to_string(), shape: vec![2], values: step }).chain(all).collect()
    }

    pub(crate) fn set_state(&mut self, trainable: &[ParameterSpec], state: &[NamedTensor]) -> Result<()> {
        let specs: Vec<ParameterSpec> = self.state(trainable).into_iter().map(|t| spec_of(t, &trainable[0])).collect();
        let found = check_tensors("optimizer state", &specs, state)?;
        let (step, moments) = found.split_first().expect("the step is always asked for");
        self.step = step.values[0] as u64 * STEP_BASE + step.values[1] as u64;
        let mut start = 0;
        for [first, second] in moments.as_chunks::<2>().0 {
            let range = start..start + first.values.len();
            self.first[range.clone()].copy_from_slice(&first.values);
            self.second[range.clone()].copy_from_slice(&second.values);
            start = range.end;
        }
        Ok(())
    }
}

fn spec_of(tensor: NamedTensor, any: &ParameterSpec) -> ParameterSpec {
    ParameterSpec { name: tensor.name, shape: tensor.shape, ..any.clone() }
}
