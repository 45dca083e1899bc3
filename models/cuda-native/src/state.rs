//! Parameters, gradients and optimizer state in device memory; the Adam step.

use std::sync::Arc;

use bytemuck::Pod;
use morphgl_cuda::{Buffer, Event, Floats, Pinned, Shape, Stream};
use morphgl_model_core::{OptimizerSpec, WeightDecayOn, broken_parameter, nothing_accumulated};
use morphgl_registry::{BatchId, Handle, Result};

use crate::KEY;
use crate::gpu::{Gpu, arguments, each};
use crate::layout::Layout;

/// Device state that outlives a mini-batch. Flat buffers follow [`Layout`].
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) parameters: Buffer<f32>,
    /// Gradients accumulated since the last step.
    pub(crate) gradients: Buffer<f32>,
    /// Gradients of the current mini-batch.
    pub(crate) batch_gradients: Buffer<f32>,
    pub(crate) moments: [Buffer<f32>; 2],
    /// Seeds accumulated, steps done.
    pub(crate) counters: Buffer<u64>,
    /// Loss, correct, count and largest label of the last mini-batch.
    pub(crate) outcome: Buffer<u64>,
    /// Gate: whether the last mini-batch's gradients are accumulated, which they are not where its loss is not finite.
    pub(crate) gate: Buffer<u32>,
    /// Learning rate and both betas.
    constants: Buffer<f64>,
    coefficients: Buffer<f32>,
    status: Buffer<u64>,
}

impl State {
    pub(crate) fn new(stream: &Stream, layout: &Layout, optimizer: &OptimizerSpec, parameters: &[f32]) -> Result<Self> {
        let zeros = |len: usize| -> Result<Buffer<f32>> {
            let mut buffer = Buffer::new(stream, len)?;
            stream.fill(&mut buffer, 0)?;
            Ok(buffer)
        };
        let mut counters = Buffer::new(stream, 2)?;
        stream.fill(&mut counters, 0)?;
        let mut state = Self {
            parameters: Buffer::new(stream, layout.len)?,
            gradients: zeros(layout.len)?,
            batch_gradients: zeros(layout.len)?,
            moments: [zeros(layout.len)?, zeros(layout.len)?],
            counters,
            outcome: Buffer::new(stream, 4)?,
            gate: Buffer::new(stream, 1)?,
            constants: Buffer::new(stream, 3)?,
            coefficients: Buffer::new(stream, 4)?,
            status: Buffer::new(stream, 2)?,
        };
        upload(stream, parameters, &mut state.parameters)?;
        upload(stream, &[optimizer.lr, optimizer.beta1, optimizer.beta2], &mut state.constants)?;
        Ok(state)
    }

    /// Adds the mini-batch's gradients and seeds to the accumulated ones, if the gate is open. A mini-batch whose passes fail
    /// before leaves no trace.
    pub(crate) fn accumulate(&self, gpu: &Gpu, layout: &Layout) -> Result<()> {
        let Self { gate, outcome, counters, batch_gradients: batch, gradients: sums, .. } = self;
        let arguments = arguments![gpu, gate, outcome, counters, batch, sums, layout.num_trainable];
        // SAFETY: the kernel's arguments; both buffers hold all parameters.
        unsafe { gpu.launch(&gpu.kernels.train_accumulate, each(layout.num_trainable), arguments) }
    }

    /// One Adam step.
    pub(crate) fn step(
        &self,
        gpu: &Gpu,
        layout: &Layout,
        optimizer: &OptimizerSpec,
        last: Option<BatchId>,
    ) -> Result<Handle<()>> {
        let start = gpu.stream.record(true)?;
        self.launch_step(gpu, layout, optimizer)?;
        self.outcome_of_step(gpu, layout, last, start)
    }

    fn launch_step(&self, gpu: &Gpu, layout: &Layout, optimizer: &OptimizerSpec) -> Result<()> {
        let Self { parameters, gradients, moments: [first, second], coefficients: rates, status, .. } = self;
        let arguments = arguments![gpu, &self.counters, &self.constants, rates, status];
        // SAFETY: the kernel's arguments; two counters, three constants, four coefficients, two words of status.
        unsafe { gpu.launch(&gpu.kernels.train_step_begin, Shape::linear(1, 1), arguments) }?;
        let decaying = match optimizer.weight_decay_on {
            WeightDecayOn::All => layout.num_trainable,
            WeightDecayOn::FirstLayer => layout.num_first,
        };
        let (len, trainable) = (layout.len, layout.num_trainable);
        let OptimizerSpec { beta1, beta2, eps, weight_decay, .. } = *optimizer;
        let [share1, beta2, share2, eps, decay] =
            [1.0 - beta1, beta2, 1.0 - beta2, eps, weight_decay].map(|x| x as f32);
        let arguments = arguments![
            gpu, parameters, first, second, gradients, rates, status, len, trainable, decaying, share1, beta2, share2,
            eps, decay
        ];
        // SAFETY: the kernel's arguments; every buffer holds all parameters.
        unsafe { gpu.launch(&gpu.kernels.train_adam, each(layout.len), arguments) }
    }

    fn outcome_of_step(&self, gpu: &Gpu, layout: &Layout, last: Option<BatchId>, start: Event) -> Result<Handle<()>> {
        let mut words = Pinned::<u64>::new(gpu.stream.device(), 2)?;
        gpu.stream.copy(&self.status, 0..2, &mut words, 0)?;
        let end = gpu.stream.record(true)?;
        let names = Arc::clone(&layout.starts);
        Ok(morphgl_cuda::pending(start, end, move || {
            if words[0] != 0 {
                return Err(nothing_accumulated(KEY));
            }
            if words[1] == u64::MAX {
                return Ok(());
            }
            let name = names.iter().rev().find(|(start, _)| *start as u64 <= words[1]).map_or("a parameter", |n| &n.1);
            Err(broken_parameter(KEY, name, last))
        }))
    }

    /// Parameter values and gradients of a mini-batch.
    pub(crate) fn views(&self) -> [Floats<'_>; 2] {
        [Floats::from(&self.parameters), Floats::from(&self.batch_gradients)]
    }
}

/// Uploads values to an existing buffer.
pub(crate) fn upload<T: Pod>(stream: &Stream, values: &[T], to: &mut Buffer<T>) -> Result<()> {
    stream.copy(&Pinned::of(stream.device(), values)?, 0..values.len(), to, 0)
}
