//! The optimizer over all parameters in one flat buffer.

use std::ops::Range;
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
    /// The parameters that are no tables of embeddings, and whether they are the first layer's.
    dense: Vec<(Range<usize>, bool)>,
}

/// Rows of tables of embeddings: where they begin among the elements of all parameters, ascending, and their width.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableRows<'a> {
    pub(crate) starts: &'a [usize],
    pub(crate) width: usize,
}

/// Rows of tables that a task updates.
const ROWS: usize = 64;

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

dispatch! {
    /// One step of a row of a table, if it has a gradient; returns whether it is finite.
    fn update_row(step: &OptimizerStep, values: &mut [f32], moments: [&mut [f32]; 2], grad: &[f32], scale: f32) -> bool = update_row_inner
}

#[inline(always)]
fn update_row_inner(
    step: &OptimizerStep,
    values: &mut [f32],
    moments: [&mut [f32]; 2],
    grad: &[f32],
    scale: f32,
) -> bool {
    step.update_rows(values.len(), values, moments, grad, scale);
    values.iter().fold(true, |all, x| all & x.is_finite())
}

impl Optimizer {
    pub(crate) fn new(spec: OptimizerSpec, parameters: &[ParameterSpec]) -> Self {
        let (mut end, mut dense) = (0, Vec::<(Range<usize>, bool)>::new());
        for p in parameters {
            let (start, first) = (end, p.layer == 0);
            end += p.len();
            match dense.last_mut() {
                _ if p.table_row().is_some() => {}
                Some((last, of_first)) if last.end == start && *of_first == first => last.end = end,
                _ => dense.push((start..end, first)),
            }
        }
        let moments = [0, 1].map(|i| vec![0.0; if i < spec.moments().len() { end } else { 0 }]);
        Self { spec, steps: Steps::default(), moments, dense }
    }

    /// Updates `parameters` by `gradients` over `count`; returns whether all are finite. Of tables of embeddings, the `rows` alone can
    /// have a gradient.
    pub(crate) fn step(
        &mut self,
        level: SimdLevel,
        parameters: &mut [f32],
        gradients: &[f32],
        rows: Option<TableRows<'_>>,
        count: u64,
    ) -> bool {
        self.steps.done += 1;
        let scale = self.spec.gradient_scale(count, || sum_of_squares(gradients));
        let finite = AtomicBool::new(true);
        let decays_later = self.spec.weight_decay_on == WeightDecayOn::All;

        for (range, first_layer) in &self.dense {
            let step = OptimizerStep::at(&self.spec, self.steps, *first_layer || decays_later);
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
        if let Some(rows) = rows.filter(|rows| !rows.starts.is_empty()) {
            let step = OptimizerStep::at(&self.spec, self.steps, true);
            let first = rows.starts[0];
            let [m, v] = self.moments.each_mut().map(|m| m.get_mut(first..).unwrap_or_default());
            let lens = [m.len(), v.len()];
            let begin = |task: usize| {
                let at = rows.starts[task * ROWS] - first;
                [at, at.min(lens[0]), at.min(lens[1])]
            };
            let outputs = [&mut parameters[first..], m, v];
            parallel::split(0..rows.starts.len().div_ceil(ROWS), &begin, outputs, &|task, [values, m, v]| {
                let starts = &rows.starts[task * ROWS..rows.starts.len().min((task + 1) * ROWS)];
                for start in starts {
                    let own = start - starts[0]..start - starts[0] + rows.width;
                    let gradient = &gradients[*start..start + rows.width];
                    let moments = [&mut *m, &mut *v].map(|m| m.get_mut(own.clone()).unwrap_or_default());
                    if !update_row(level, &step, &mut values[own.clone()], moments, gradient, scale) {
                        finite.store(false, Ordering::Relaxed);
                    }
                }
            });
        }
        finite.into_inner()
    }

    /// Bytes that a step reads and writes of parameters, gradients (which are cleared after it) and moments, but for tables of embeddings.
    pub(crate) fn step_bytes(&self) -> usize {
        let elements: usize = self.dense.iter().map(|(range, _)| range.len()).sum();
        2 * 4 * elements * (2 + self.spec.moments().len())
    }

    /// Sets the gradients of the parameters that are no tables of embeddings to 0.
    pub(crate) fn clear(&self, gradients: &mut [f32]) {
        self.dense.iter().for_each(|(range, _)| gradients[range.clone()].fill(0.0));
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
