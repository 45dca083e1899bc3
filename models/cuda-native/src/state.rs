//! Parameters, gradients and optimizer state in device memory; the optimizer's step.

use std::sync::Arc;

use bytemuck::Pod;
use morphgl_cuda::{Buffer, Event, Floats, Pinned, Shape, Stream};
use morphgl_model_core::{
    LrScheduleKind, OptimizerKind, OptimizerSpec, WeightDecayOn, broken_parameter, nothing_accumulated,
};
use morphgl_registry::{BatchId, Handle, Result};

use crate::KEY;
use crate::gpu::{Gpu, THREADS, arguments, each, rows_by_lanes};
use crate::layout::Layout;

/// Blocks that sum the gradients' squares.
const SQUARES: usize = 64;

/// Device state that outlives a mini-batch. Flat buffers follow [`Layout`].
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) parameters: Buffer<f32>,
    /// Gradients accumulated since the last step.
    pub(crate) gradients: Buffer<f32>,
    /// Gradients of the current mini-batch, but for those of tables, which are added to the accumulated ones by row.
    pub(crate) batch_gradients: Buffer<f32>,
    /// Those that the optimizer does not have are of one element, and not accessed.
    pub(crate) moments: [Buffer<f32>; 2],
    /// Seeds accumulated, steps done, reductions of the learning rate.
    pub(crate) counters: Buffer<u64>,
    /// Loss, correct, count and largest label of the last mini-batch.
    pub(crate) outcome: Buffer<u64>,
    /// Gate: whether the last mini-batch's gradients are accumulated, which they are not where its loss is not finite.
    pub(crate) gate: Buffer<u32>,
    /// `Constants` of the kernels.
    constants: Buffer<f64>,
    /// Partial sums of the gradients' squares.
    squares: Buffer<f64>,
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
        let moment = |i: usize| zeros(if i < optimizer.moments().len() { layout.len } else { 1 });
        let mut counters = Buffer::new(stream, 3)?;
        stream.fill(&mut counters, 0)?;
        let mut state = Self {
            parameters: Buffer::new(stream, layout.len)?,
            gradients: zeros(layout.len)?,
            batch_gradients: zeros(layout.num_dense)?,
            moments: [moment(0)?, moment(1)?],
            counters,
            outcome: Buffer::new(stream, 5)?,
            gate: Buffer::new(stream, 1)?,
            constants: Buffer::of(stream, &constants(optimizer))?,
            squares: Buffer::new(stream, SQUARES)?,
            coefficients: Buffer::new(stream, 5)?,
            status: Buffer::new(stream, 2)?,
        };
        upload(stream, parameters, &mut state.parameters)?;
        Ok(state)
    }

    /// Adds the mini-batch's gradients and seeds to the accumulated ones, if the gate is open. A mini-batch whose passes fail
    /// before leaves no trace.
    pub(crate) fn accumulate(&self, gpu: &Gpu, layout: &Layout) -> Result<()> {
        let Self { gate, outcome, counters, batch_gradients: batch, gradients: sums, .. } = self;
        let arguments = arguments![gpu, gate, outcome, counters, batch, sums, layout.num_trainable];
        // SAFETY: the kernel's arguments; both buffers hold the trainable parameters but for tables.
        unsafe { gpu.launch(&gpu.kernels.train_accumulate, each(layout.num_trainable), arguments) }
    }

    /// One step of the optimizer.
    pub(crate) fn step(
        &self,
        gpu: &Gpu,
        layout: &Layout,
        optimizer: &OptimizerSpec,
        last: Option<BatchId>,
    ) -> Result<Handle<()>> {
        let start = gpu.stream.record(true)?;
        self.launch_begin(gpu, layout, optimizer)?;
        self.launch_step(gpu, layout, optimizer)?;
        self.outcome_of_step(gpu, layout, last, start)
    }

    /// Computes the coefficients of the step.
    fn launch_begin(&self, gpu: &Gpu, layout: &Layout, optimizer: &OptimizerSpec) -> Result<()> {
        let Self { counters, constants, squares, coefficients, status, .. } = self;
        let blocks = optimizer.clip_norm.map_or(0, |_| SQUARES);
        if blocks > 0 {
            // Those that are not trainable have gradients of 0.
            let len = if layout.tables.is_empty() { layout.num_trainable } else { layout.len };
            let arguments = arguments![gpu, &self.gradients, squares, len];
            // SAFETY: the kernel's arguments; a partial sum per block.
            unsafe { gpu.launch(&gpu.kernels.train_squares, Shape::linear(blocks, THREADS as u32), arguments) }?;
        }
        let arguments = arguments![gpu, counters, constants, squares, coefficients, status, blocks];
        // SAFETY: the kernel's arguments; three counters, all constants, five coefficients, two words of status.
        unsafe { gpu.launch(&gpu.kernels.train_step_begin, Shape::linear(1, 1), arguments) }
    }

    fn launch_step(&self, gpu: &Gpu, layout: &Layout, optimizer: &OptimizerSpec) -> Result<()> {
        let Self { parameters, gradients, moments: [first, second], coefficients: rates, status, .. } = self;
        let decaying = match optimizer.weight_decay_on {
            WeightDecayOn::All => layout.num_trainable,
            WeightDecayOn::FirstLayer => layout.num_first,
        };
        let (len, trainable) = (layout.num_dense, layout.num_trainable);
        let OptimizerSpec { kind, beta1, beta2, eps, momentum, .. } = *optimizer;
        let coupled = if kind == OptimizerKind::AdamW { 0.0 } else { optimizer.weight_decay };
        let [share1, beta2, share2, eps, momentum, decay] =
            [1.0 - beta1, beta2, 1.0 - beta2, eps, momentum, coupled].map(|x| x as f32);
        match kind {
            OptimizerKind::Adam | OptimizerKind::AdamW => {
                let arguments = arguments![
                    gpu, parameters, first, second, gradients, rates, status, len, trainable, decaying, share1, beta2,
                    share2, eps, decay
                ];
                // SAFETY: the kernel's arguments; every buffer holds all parameters.
                unsafe { gpu.launch(&gpu.kernels.train_adam, each(len), arguments) }?;
                layout.tables.iter().try_for_each(|(table, width)| {
                    let of = |buffer| Floats::from(buffer).part(table.clone());
                    let (values, gradients, moments) = (of(parameters), of(gradients), [of(first), of(second)]);
                    let (base, rows) = (table.start as u64, table.len() / width);
                    let arguments = arguments![
                        gpu, values, moments[0], moments[1], gradients, rates, status, base, rows, *width, share1,
                        beta2, share2, eps, decay
                    ];
                    // SAFETY: as above, for the rows of a table; warps are whole.
                    unsafe { gpu.launch(&gpu.kernels.train_adam_rows, rows_by_lanes(rows, *width), arguments) }
                })
            }
            OptimizerKind::Sgd => {
                let nesterov = usize::from(optimizer.nesterov);
                let arguments = arguments![
                    gpu, parameters, first, gradients, rates, status, len, trainable, decaying, momentum, decay,
                    nesterov
                ];
                // SAFETY: the kernel's arguments; every buffer holds all parameters, that of momenta where there is momentum.
                unsafe { gpu.launch(&gpu.kernels.train_sgd, each(len), arguments) }?;
                layout.tables.iter().try_for_each(|(table, width)| {
                    let of = |buffer| Floats::from(buffer).part(table.clone());
                    let (values, gradients) = (of(parameters), of(gradients));
                    let momenta = (momentum != 0.0).then(|| of(first));
                    let (base, rows) = (table.start as u64, table.len() / width);
                    let arguments = arguments![
                        gpu, values, momenta, gradients, rates, status, base, rows, *width, momentum, decay, nesterov
                    ];
                    // SAFETY: as above, for the rows of a table; warps are whole.
                    unsafe { gpu.launch(&gpu.kernels.train_sgd_rows, rows_by_lanes(rows, *width), arguments) }
                })
            }
        }
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

/// The kernels' `Constants`, field by field.
fn constants(optimizer: &OptimizerSpec) -> [f64; 11] {
    let schedule = &optimizer.schedule;
    let kind = match schedule.kind {
        LrScheduleKind::Constant => 0.0,
        LrScheduleKind::Cosine => 1.0,
        LrScheduleKind::Step => 2.0,
        LrScheduleKind::Plateau => 3.0,
    };
    // Without betas, an Adam step's coefficients are the learning rate and 1.
    let (betas, decoupled) = match optimizer.kind {
        OptimizerKind::Adam => ([optimizer.beta1, optimizer.beta2], 0.0),
        OptimizerKind::AdamW => ([optimizer.beta1, optimizer.beta2], optimizer.weight_decay),
        OptimizerKind::Sgd => ([0.0; 2], 0.0),
    };
    let steps_per_reduction = schedule.steps_per_epoch * u64::from(schedule.step_size);
    [
        optimizer.lr,
        betas[0],
        betas[1],
        decoupled,
        optimizer.clip_norm.unwrap_or(0.0),
        kind,
        schedule.min,
        schedule.gamma,
        schedule.warmup_steps() as f64,
        schedule.falling_steps() as f64,
        steps_per_reduction as f64,
    ]
}

/// Uploads values to an existing buffer.
pub(crate) fn upload<T: Pod>(stream: &Stream, values: &[T], to: &mut Buffer<T>) -> Result<()> {
    stream.copy(&Pinned::of(stream.device(), values)?, 0..values.len(), to, 0)
}
