//! The optimizer over host vectors: up to two moments per trainable parameter.

use morphgl_model_core::{
    OptimizerSpec, OptimizerStep, ParameterSpec, Steps, WeightDecayOn, optimizer_state, read_optimizer_state,
    sum_of_squares,
};
use morphgl_registry::{NamedTensor, Result};
use rayon::prelude::*;

/// Elements per task.
const TASK: usize = 1 << 14;

/// The optimizer's state.
#[derive(Debug)]
pub(crate) struct Optimizer {
    spec: OptimizerSpec,
    steps: Steps,
    moments: Vec<[Vec<f32>; 2]>,
}

impl Optimizer {
    pub(crate) fn new(spec: OptimizerSpec, trainable: &[ParameterSpec]) -> Self {
        let count = spec.moments().len();
        let of_each = |p: &ParameterSpec| [0, 1].map(|i| vec![0.0; if i < count { p.len() } else { 0 }]);
        Self { spec, steps: Steps::default(), moments: trainable.iter().map(of_each).collect() }
    }

    /// Updates the parameters by the gradients over `count`; the parameters are in the order of `trainable`.
    pub(crate) fn step<'a>(
        &mut self,
        trainable: &[ParameterSpec],
        parameters: impl Iterator<Item = &'a mut [f32]>,
        gradients: &[Vec<f32>],
        count: u64,
    ) {
        self.steps.done += 1;
        let scale = self.spec.gradient_scale(count, || gradients.iter().map(|g| sum_of_squares(g)).sum());
        for (((p, values), gradient), [first, second]) in
            trainable.iter().zip(parameters).zip(gradients).zip(&mut self.moments)
        {
            let decays = self.spec.weight_decay_on == WeightDecayOn::All || p.layer == 0;
            let step = OptimizerStep::at(&self.spec, self.steps, decays);
            let row = p.table_row();
            // Whole rows of a table.
            let task = row.map_or(TASK, |width| TASK.div_ceil(width) * width);
            let tasks = values.len().div_ceil(task);
            let chunks = values.par_chunks_mut(task).zip(gradient.par_chunks(task));
            let chunks = chunks.zip(pieces(first, task, tasks)).zip(pieces(second, task, tasks));
            chunks.for_each(|(((values, gradient), m), v)| match row {
                Some(width) => step.update_rows(width, values, [m, v], gradient, scale),
                None => step.update(values, [m, v], gradient, scale),
            });
        }
    }

    pub(crate) fn state(&self, trainable: &[ParameterSpec]) -> Vec<NamedTensor> {
        optimizer_state(
            &self.spec,
            trainable,
            self.steps,
            self.moments.iter().map(|m| m.each_ref().map(|values| &values[..])),
        )
    }

    pub(crate) fn set_state(&mut self, trainable: &[ParameterSpec], state: &[NamedTensor]) -> Result<()> {
        let (steps, moments) = read_optimizer_state(&self.spec, trainable, state)?;
        self.steps = steps;
        self.moments = moments.into_iter().map(|m| m.map(<[f32]>::to_vec)).collect();
        Ok(())
    }
}

/// Pieces of `moments`, `task` elements each, for so many tasks; empty ones where the optimizer does not have the moment.
fn pieces(moments: &mut [f32], task: usize, tasks: usize) -> impl IndexedParallelIterator<Item = &mut [f32]> {
    let mut pieces: Vec<&mut [f32]> = moments.chunks_mut(task).collect();
    pieces.resize_with(tasks, Default::default);
    pieces.into_par_iter()
}
