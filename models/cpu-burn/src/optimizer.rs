//! Adam over host vectors: one moment pair a trainable parameter.

use morphgl_model_spec::{Adam, OptimizerSpec, ParameterSpec, WeightDecayOn, check_tensors};
use morphgl_registry::{NamedTensor, Result};
use rayon::prelude::*;

/// Elements one task updates.
const TASK: usize = 1 << 14;

/// Steps are stored as two numbers that an f32 holds exactly.
const STEP_BASE: u64 = 1 << 20;

/// The optimizer's state.
#[derive(Debug)]
pub(crate) struct Optimizer {
    spec: OptimizerSpec,
    step: u64,
    moments: Vec<[Vec<f32>; 2]>,
}

impl Optimizer {
    pub(crate) fn new(spec: OptimizerSpec, trainable: &[ParameterSpec]) -> Self {
        let moments = trainable.iter().map(|p| [vec![0.0; p.len()], vec![0.0; p.len()]]).collect();
        Self { spec, step: 0, moments }
    }

    /// Updates the parameters by the gradients times `scale`; the parameters are in the order of `trainable`.
    pub(crate) fn step<'a>(
        &mut self,
        trainable: &[ParameterSpec],
        parameters: impl Iterator<Item = &'a mut [f32]>,
        gradients: &[Vec<f32>],
        scale: f32,
    ) {
        self.step += 1;
        for (((p, values), gradient), [first, second]) in
            trainable.iter().zip(parameters).zip(gradients).zip(&mut self.moments)
        {
            let decays = self.spec.weight_decay_on == WeightDecayOn::All || p.layer == 0;
            let adam = Adam::at(&self.spec, self.step, decays);
            let moments = first.par_chunks_mut(TASK).zip(second.par_chunks_mut(TASK));
            let chunks = values.par_chunks_mut(TASK).zip(gradient.par_chunks(TASK)).zip(moments);
            chunks.for_each(|((values, gradient), (m, v))| adam.update(values, m, v, gradient, scale));
        }
    }

    /// The state as tensors: `step`, and torch's `exp_avg` and `exp_avg_sq` a parameter.
    pub(crate) fn state(&self, trainable: &[ParameterSpec]) -> Vec<NamedTensor> {
        let specs = state_specs(trainable);
        let step = vec![(self.step / STEP_BASE) as f32, (self.step % STEP_BASE) as f32];
        let values = std::iter::once(step).chain(self.moments.iter().flatten().cloned());
        let tensors = specs.into_iter().zip(values);
        tensors.map(|(p, values)| NamedTensor { name: p.name, shape: p.shape, values }).collect()
    }

    pub(crate) fn set_state(&mut self, trainable: &[ParameterSpec], state: &[NamedTensor]) -> Result<()> {
        let found = check_tensors("optimizer state", &state_specs(trainable), state)?;
        let (step, moments) = found.split_first().expect("the step is always asked for");
        self.step = step.values[0] as u64 * STEP_BASE + step.values[1] as u64;
        for (own, found) in self.moments.iter_mut().zip(moments.as_chunks::<2>().0) {
            *own = found.map(|t| t.values.clone());
        }
        Ok(())
    }
}

fn state_specs(trainable: &[ParameterSpec]) -> Vec<ParameterSpec> {
    let named = |p: &ParameterSpec, name: String| ParameterSpec { name, ..p.clone() };
    let Some(any) = trainable.first() else { return Vec::new() };
    let step = ParameterSpec { shape: vec![2], ..named(any, "step".to_string()) };
    let moments = trainable.iter().flat_map(|p| ["exp_avg", "exp_avg_sq"].map(|m| named(p, format!("{}.{m}", p.name))));
    std::iter::once(step).chain(moments).collect()
}
