//! Loss and score of a mini-batch's seeds, or of its pairs.

use morphgl_cuda::{Argument, Buffer, CudaBatch, Event, Floats, Pinned, Shape, Stream};
use morphgl_model_core::{LossKind, ModelSpec, Task, check_loss};
use morphgl_registry::{BatchId, Error, Handle, Result, Score};

use crate::KEY;
use crate::arena::Region;
use crate::edges::zero;
use crate::forward::Pass;
use crate::gpu::{Gpu, KernelArgument, arguments, each, rows_by_lanes};
use crate::pairs::Pairs;
use crate::state::State;

/// The loss that a model is trained by.
#[derive(Debug)]
pub(crate) enum Loss {
    CrossEntropy,
    /// With label smoothing, or a weight per class.
    Smoothed {
        smoothing: f32,
        weights: Option<Buffer<f32>>,
    },
    /// The mean over the known values of a seed; kind and setting are those of the kernel.
    Values {
        kind: u32,
        setting: f32,
    },
    /// Binary cross-entropy of each pair.
    Pairs {
        positive_weight: f32,
    },
    /// A ranking loss, the mean over the negatives of a positive; kind and setting are those of the kernel.
    Ranks {
        kind: u32,
        margin: f32,
    },
}

/// What the seeds are to be predicted to be, in device memory.
#[derive(Debug, Clone, Copy)]
enum Labels<'a> {
    Classes(&'a Buffer<i32>),
    /// Ends of pairs, which are to be seeds.
    Ends(Region),
    None,
}

impl Loss {
    /// The loss of a valid model.
    pub(crate) fn new(stream: &Stream, model: &ModelSpec) -> Result<Self> {
        let number = |name: &str| model.loss_settings().number(name) as f32;
        Ok(match (model.task, model.loss) {
            (Task::Link, LossKind::Bpr) => Loss::Ranks { kind: 0, margin: 0.0 },
            (Task::Link, LossKind::Margin) => Loss::Ranks { kind: 1, margin: number("margin") },
            (Task::Link, _) => Loss::Pairs { positive_weight: number("positive_weight") },
            (_, LossKind::BinaryCrossEntropy) => Loss::Values { kind: 0, setting: number("positive_weight") },
            (_, LossKind::Squared) => Loss::Values { kind: 1, setting: 0.0 },
            (_, LossKind::Absolute) => Loss::Values { kind: 2, setting: 0.0 },
            (_, LossKind::Huber) => Loss::Values { kind: 3, setting: number("delta") },
            (_, LossKind::CrossEntropy) => match (number("label_smoothing"), model.class_weights()) {
                (0.0, weights) if weights.is_empty() => Loss::CrossEntropy,
                (smoothing, weights) => {
                    let weights = (!weights.is_empty()).then(|| Buffer::of(stream, &weights)).transpose()?;
                    Loss::Smoothed { smoothing, weights }
                }
            },
            (_, LossKind::Bpr | LossKind::Margin | LossKind::Submitted(_)) => {
                unreachable!("the spec was validated, and a submitted loss refused")
            }
        })
    }
}

/// Scores the outputs of a mini-batch's seeds into the state's outcome. If `gradient` is given, writes the gradient of the summed loss
/// with respect to the outputs, and to the parameters of a decoder, and opens or shuts the gate.
pub(crate) fn score(
    pass: &mut Pass<'_, '_>,
    (state, loss): (&State, &Loss),
    batch: &CudaBatch,
    outputs: Region,
    gradient: Option<Region>,
) -> Result<()> {
    let (count, width) = (batch.num_seeds, pass.model.spec.num_classes);
    assert!(outputs.len() >= count * width, "outputs of each seed");
    assert!(gradient.is_none_or(|g| g.len() >= count * width), "one gradient per output");
    if let Loss::Pairs { .. } | Loss::Ranks { .. } = loss {
        return score_pairs(pass, (state, loss), batch, outputs, gradient);
    }
    let gpu = &mut *pass.gpu;
    let (losses, marks) = (gpu.take(2 * count)?, gpu.take(count)?);
    let (shape, labels, values) = (rows_by_lanes(count, width), &batch.labels, &batch.targets.values);
    let reads_labels = !matches!(loss, Loss::Values { .. });
    assert!(!reads_labels || labels.len() >= count, "a label per seed");
    match loss {
        Loss::Values { kind, setting } => {
            assert!(values.len() >= count * width, "a target per output");
            let arguments = arguments![gpu, outputs, values, gradient, losses, marks, count, width, *kind, *setting];
            // SAFETY: the kernel's arguments; a seed has outputs, as many targets, two words of loss and a mark; warps are whole.
            unsafe { gpu.launch(&gpu.kernels.train_loss_values, shape, arguments) }?;
            return finish(gpu, state, [losses, marks], (count, Labels::None, width), gradient.is_some());
        }
        Loss::Smoothed { smoothing, weights } => {
            assert!(weights.as_ref().is_none_or(|w| w.len() == width), "a weight per class");
            let weights = weights.as_ref().map(Floats::from);
            let arguments =
                arguments![gpu, outputs, labels, weights, gradient, losses, marks, count, width, *smoothing];
            // SAFETY: the kernel's arguments; a seed has outputs, a label, two words of loss and a mark; a class has a weight; warps are whole.
            unsafe { gpu.launch(&gpu.kernels.train_loss_smoothed, shape, arguments) }?;
        }
        _ => {
            let arguments = arguments![gpu, outputs, labels, gradient, losses, marks, count, width];
            // SAFETY: the kernel's arguments; a seed has outputs, a label, two words of loss and a mark; warps are whole.
            unsafe { gpu.launch(&gpu.kernels.train_loss, shape, arguments) }?;
        }
    }
    finish(gpu, state, [losses, marks], (count, Labels::Classes(labels), width), gradient.is_some())
}

/// As [`score`], of the mini-batch's pairs.
fn score_pairs(
    pass: &mut Pass<'_, '_>,
    (state, loss): (&State, &Loss),
    batch: &CudaBatch,
    embeddings: Region,
    gradient: Option<Region>,
) -> Result<()> {
    let of_batch = batch.pairs.as_ref().expect("the mini-batch was checked");
    let mut pairs = Pairs::new(pass, of_batch, (embeddings, batch.num_seeds))?;
    let (count, positives) = (pairs.count, of_batch.num_positives);
    pairs.score(pass)?;
    let gpu = &mut *pass.gpu;
    let slopes = gradient.map(|_| gpu.take(count)).transpose()?;
    let (losses, marks) = (gpu.take(2 * count)?, gpu.take(count)?);
    let examples = match loss {
        Loss::Ranks { kind, margin } => {
            let negatives = count.saturating_sub(positives).checked_div(positives).unwrap_or(0);
            let ranked = positives * (1 + negatives);
            if let Some(slopes) = slopes.filter(|_| ranked < count) {
                zero(gpu, slopes.from(ranked, count - ranked))?;
            }
            let arguments = arguments![gpu, pairs.scores, slopes, losses, marks, positives, negatives, *kind, *margin];
            // SAFETY: the kernel's arguments; a pair has a score, a slope, two words of loss and a mark; all negatives are pairs; warps are
            // whole.
            unsafe { gpu.launch(&gpu.kernels.train_loss_ranks, rows_by_lanes(positives, negatives), arguments) }?;
            positives
        }
        Loss::Pairs { positive_weight } => {
            let arguments = arguments![gpu, pairs.scores, slopes, losses, marks, count, positives, *positive_weight];
            // SAFETY: the kernel's arguments; a pair has a score, a slope, two words of loss and a mark.
            unsafe { gpu.launch(&gpu.kernels.train_loss_pairs, each(count), arguments) }?;
            count
        }
        _ => unreachable!("a loss of nodes"),
    };
    let labels = Labels::Ends(pairs.largest);
    finish(gpu, state, [losses, marks], (examples, labels, batch.num_seeds), gradient.is_some())?;
    match (slopes, gradient) {
        (Some(slopes), Some(gradient)) => pairs.backward(pass, slopes, gradient),
        _ => Ok(()),
    }
}

/// Sums the examples' losses and marks into the outcome; labels are to be below `classes`.
fn finish(
    gpu: &Gpu,
    state: &State,
    [losses, marks]: [Region; 2],
    (examples, labels, classes): (usize, Labels<'_>, usize),
    trains: bool,
) -> Result<()> {
    let threads = examples.div_ceil(4).next_power_of_two().clamp(32, 256);
    let (outcome, gate) = (&state.outcome, trains.then_some(&state.gate));
    let (labels, num_labels) = match labels {
        Labels::Classes(labels) => (labels.into(), examples),
        Labels::Ends(ends) => (ends.resolve(gpu), ends.len()),
        Labels::None => (Argument::NULL, 0),
    };
    let arguments = arguments![gpu, losses, marks, labels, outcome, gate, examples, num_labels, classes];
    // SAFETY: the kernel's arguments, as many labels as said; a block of whole warps, 32 at most.
    unsafe { gpu.launch(&gpu.kernels.train_score, Shape::linear(1, threads as u32), arguments) }
}

/// Handle of the score; `start` is an event before the mini-batch's work.
pub(crate) fn outcome(
    gpu: &Gpu,
    state: &State,
    (id, bound, trains): (BatchId, Bound, bool),
    start: Event,
) -> Result<Handle<Score>> {
    let mut words = Pinned::<u64>::new(gpu.stream.device(), state.outcome.len())?;
    gpu.stream.copy(&state.outcome, 0..words.len(), &mut words, 0)?;
    let end = gpu.stream.record(true)?;
    Ok(morphgl_cuda::pending(start, end, move || {
        let [loss, correct, count, label] = [words[0], words[1], words[2], words[3]];
        if let Some(what) = bound.exceeded(label) {
            return Err(Error::setting(format!("{KEY}, {id}"), what));
        }
        let score = Score { loss_sum: f64::from_bits(loss), correct, count };
        if trains {
            check_loss(KEY, id, &score)?;
        }
        Ok(score)
    }))
}

/// What the largest label of a mini-batch has to be below.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bound {
    Classes(usize),
    /// Of ends of pairs.
    Seeds(usize),
}

impl Bound {
    /// Of a model's labels in a mini-batch.
    pub(crate) fn of(model: &ModelSpec, batch: &CudaBatch) -> Self {
        match model.task {
            Task::Link => Bound::Seeds(batch.num_seeds),
            _ => Bound::Classes(model.num_classes),
        }
    }

    /// What is wrong with the largest label.
    fn exceeded(self, label: u64) -> Option<String> {
        match self {
            Bound::Classes(classes) if label >= classes as u64 => {
                Some(format!("it has a seed of class {label}, the model has {classes} classes"))
            }
            // Without pairs the largest end is 0, whether there are seeds or not.
            Bound::Seeds(seeds) if label > 0 && label >= seeds as u64 => {
                Some(format!("it has a pair of seed {label}, there are {seeds}; batch it again"))
            }
            _ => None,
        }
    }
}
