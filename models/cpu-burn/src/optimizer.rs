//! Adam over host vectors: two moments per trainable parameter.

use morphgl_model_core::{Adam, OptimizerSpec, ParameterSpec, WeightDecayOn, optimizer_state, read_optimizer_state};
use morphgl_registry::{NamedTensor, Result};
use rayon::prelude::*;

/// Elements per task.
const TASK: usize = 1 << 14;

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

    pub(crate) fn state(&self, trainable: &[ParameterSpec]) -> Vec<NamedTensor> {
        optimizer_state(trainable, self.step, self.moments.iter().map(|m| m.each_ref().map(|values| &values[..])))
    }

    pub(crate) fn set_state(&mut self, trainable: &[ParameterSpec], state: &[NamedTensor]) -> Result<()> {
        let (step, moments) = read_optimizer_state(trainable, state)?;
        self.step = step;
        self.moments = moments.into_iter().map(|m| m.map(<[f32]>::to_vec)).collect();
        Ok(())
    }
}
