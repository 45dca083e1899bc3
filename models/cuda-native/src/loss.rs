//! Loss and score of the seeds.

use morphgl_cuda::{Buffer, Event, Pinned, Shape};
use morphgl_model_core::check_loss;
use morphgl_registry::{BatchId, Error, Handle, Result, Score};

use crate::KEY;
use crate::arena::Region;
use crate::gpu::{Gpu, arguments, rows_by_lanes};
use crate::state::State;

/// Seeds of a mini-batch with their logits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seeds<'a> {
    pub(crate) count: usize,
    pub(crate) classes: usize,
    pub(crate) labels: &'a Buffer<i32>,
    pub(crate) logits: Region,
}

/// Scores the seeds into the state's outcome. If `gradient` is given, writes the gradient of the summed loss with respect to
/// the logits, and opens or shuts the gate.
pub(crate) fn score(gpu: &mut Gpu, state: &State, seeds: Seeds<'_>, gradient: Option<Region>) -> Result<()> {
    let Seeds { count, classes, labels, logits } = seeds;
    assert!(logits.len() >= count * classes && labels.len() >= count, "logits and one label per seed");
    assert!(gradient.is_none_or(|g| g.len() >= count * classes), "one gradient per logit");
    let (losses, marks) = (gpu.take(2 * count)?, gpu.take(count)?);
    let arguments = arguments![gpu, logits, labels, gradient, losses, marks, count, classes];
    // SAFETY: the kernel's arguments; a seed has logits, a label, two words of loss and a mark; warps are whole.
    unsafe { gpu.launch(&gpu.kernels.train_loss, rows_by_lanes(count, classes), arguments) }?;
    let trains = gradient.is_some();
    let threads = count.div_ceil(4).next_power_of_two().clamp(32, 256);
    let (outcome, gate) = (&state.outcome, trains.then_some(&state.gate));
    let arguments = arguments![gpu, losses, marks, labels, outcome, gate, count, classes];
    // SAFETY: the kernel's arguments; a block of whole warps, 32 at most.
    unsafe { gpu.launch(&gpu.kernels.train_score, Shape::linear(1, threads as u32), arguments) }
}

/// Handle of the score; `start` is an event before the mini-batch's work.
pub(crate) fn outcome(
    gpu: &Gpu,
    state: &State,
    (id, classes, trains): (BatchId, usize, bool),
    start: Event,
) -> Result<Handle<Score>> {
    let mut words = Pinned::<u64>::new(gpu.stream.device(), state.outcome.len())?;
    gpu.stream.copy(&state.outcome, 0..words.len(), &mut words, 0)?;
    let end = gpu.stream.record(true)?;
    Ok(morphgl_cuda::pending(start, end, move || {
        let [loss, correct, count, label] = [words[0], words[1], words[2], words[3]];
        if label >= classes as u64 {
            let what = format!("it has a seed of class {label}, the model has {classes} classes");
            return Err(Error::setting(format!("{KEY}, {id}"), what));
        }
        let score = Score { loss_sum: f64::from_bits(loss), correct, count };
        if trains {
            check_loss(KEY, id, &score)?;
        }
        Ok(score)
    }))
}
