//! Loss and score of a mini-batch's seeds, or of its pairs.

use morphgl_cuda::{Buffer, CudaBatch, Event, Floats, Pinned, Shape, Stream};
use morphgl_model_core::{LossKind, ModelSpec, Task, check_loss};
use morphgl_registry::{BatchId, Error, Handle, Result, Score};

use crate::KEY;
use crate::arena::Region;
use crate::edges::zero;
use crate::forward::Pass;
use crate::gpu::{Gpu, arguments, each, rows_by_lanes};
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

    /// The classes that it reads of a mini-batch.
    fn labels<'a>(&self, batch: &'a CudaBatch) -> Option<&'a Buffer<i32>> {
        matches!(self, Loss::CrossEntropy | Loss::Smoothed { .. }).then_some(&batch.labels)
    }
}

/// Two words of loss and a mark of each example.
#[derive(Debug, Clone, Copy)]
struct Examples {
    count: usize,
    losses: Region,
    marks: Region,
}

impl Examples {
    fn new(gpu: &mut Gpu, count: usize) -> Result<Self> {
        Ok(Self { count, losses: gpu.take(2 * count)?, marks: gpu.take(count)? })
    }
}

/// Scores the outputs of a mini-batch's seeds, or of its pairs, into the state's outcome. If `gradient` is given, writes the gradient of
/// the summed loss with respect to the outputs of seeds, and to the parameters of a decoder, and opens or shuts the gate.
pub(crate) fn score(
    pass: &mut Pass<'_, '_>,
    (state, loss): (&State, &Loss),
    batch: &CudaBatch,
    outputs: Region,
    gradient: Option<Region>,
) -> Result<()> {
    let (model, seeds) = (pass.model.spec, batch.num_seeds);
    assert!(outputs.len() >= seeds * model.num_classes, "outputs of each seed");
    assert!(gradient.is_none_or(|g| g.len() >= seeds * model.num_classes), "one gradient per output");
    let (width, bounds) = (model.target_width(), Bounds::of(model, batch));
    if !model.learns_pairs() {
        let examples = score_rows(pass.gpu, loss, batch, (outputs, [seeds, width]), gradient)?;
        return finish(pass.gpu, state, (examples, bounds), (loss.labels(batch), None), gradient.is_some());
    }
    let of_batch = batch.pairs.as_ref().expect("the mini-batch was checked");
    let mut pairs = Pairs::new(pass, of_batch, (outputs, seeds))?;
    pairs.score(pass)?;
    let gpu = &mut *pass.gpu;
    let slopes = gradient.map(|_| gpu.take(pairs.scores.len())).transpose()?;
    let examples = match model.learns_edges() {
        true => score_rows(gpu, loss, batch, (pairs.scores, [pairs.count, width]), slopes)?,
        false => score_links(gpu, loss, &pairs, of_batch.num_positives, slopes)?,
    };
    let checked = (loss.labels(batch), Some(pairs.largest));
    finish(gpu, state, (examples, bounds), checked, gradient.is_some())?;
    match (slopes, gradient) {
        (Some(slopes), Some(gradient)) => pairs.backward(pass, slopes, gradient),
        _ => Ok(()),
    }
}

/// Scores rows of outputs, of seeds or of pairs, against the mini-batch's labels or values.
fn score_rows(
    gpu: &mut Gpu,
    loss: &Loss,
    batch: &CudaBatch,
    (outputs, [count, width]): (Region, [usize; 2]),
    gradient: Option<Region>,
) -> Result<Examples> {
    let examples = Examples::new(gpu, count)?;
    let Examples { losses, marks, .. } = examples;
    let (shape, labels, values) = (rows_by_lanes(count, width), &batch.labels, &batch.targets.values);
    assert!(loss.labels(batch).is_none_or(|labels| labels.len() >= count), "a label per row");
    match loss {
        Loss::Values { kind, setting } => {
            assert!(values.len() >= count * width, "a target per output");
            let arguments = arguments![gpu, outputs, values, gradient, losses, marks, count, width, *kind, *setting];
            // SAFETY: the kernel's arguments; a row has outputs, as many targets, two words of loss and a mark; warps are whole.
            unsafe { gpu.launch(&gpu.kernels.train_loss_values, shape, arguments) }?;
        }
        Loss::Smoothed { smoothing, weights } => {
            assert!(weights.as_ref().is_none_or(|w| w.len() == width), "a weight per class");
            let weights = weights.as_ref().map(Floats::from);
            let arguments =
                arguments![gpu, outputs, labels, weights, gradient, losses, marks, count, width, *smoothing];
            // SAFETY: the kernel's arguments; a row has outputs, a label, two words of loss and a mark; a class has a weight; warps are whole.
            unsafe { gpu.launch(&gpu.kernels.train_loss_smoothed, shape, arguments) }?;
        }
        Loss::CrossEntropy => {
            let arguments = arguments![gpu, outputs, labels, gradient, losses, marks, count, width];
            // SAFETY: the kernel's arguments; a row has outputs, a label, two words of loss and a mark; warps are whole.
            unsafe { gpu.launch(&gpu.kernels.train_loss, shape, arguments) }?;
        }
        Loss::Pairs { .. } | Loss::Ranks { .. } => unreachable!("a loss of links"),
    }
    Ok(examples)
}

/// Scores pairs, of which so many exist.
fn score_links(
    gpu: &mut Gpu,
    loss: &Loss,
    pairs: &Pairs,
    positives: usize,
    slopes: Option<Region>,
) -> Result<Examples> {
    let (count, scores) = (pairs.count, pairs.scores);
    // Of a ranking loss the positives alone are examples.
    let all = Examples::new(gpu, count)?;
    let Examples { losses, marks, .. } = all;
    match loss {
        Loss::Ranks { kind, margin } => {
            let negatives = count.saturating_sub(positives).checked_div(positives).unwrap_or(0);
            let ranked = positives * (1 + negatives);
            if let Some(slopes) = slopes.filter(|_| ranked < count) {
                zero(gpu, slopes.from(ranked, count - ranked))?;
            }
            let arguments = arguments![gpu, scores, slopes, losses, marks, positives, negatives, *kind, *margin];
            // SAFETY: the kernel's arguments; a pair has a score, a slope, two words of loss and a mark; all negatives are pairs; warps are
            // whole.
            unsafe { gpu.launch(&gpu.kernels.train_loss_ranks, rows_by_lanes(positives, negatives), arguments) }?;
            Ok(Examples { count: positives, ..all })
        }
        Loss::Pairs { positive_weight } => {
            let arguments = arguments![gpu, scores, slopes, losses, marks, count, positives, *positive_weight];
            // SAFETY: the kernel's arguments; a pair has a score, a slope, two words of loss and a mark.
            unsafe { gpu.launch(&gpu.kernels.train_loss_pairs, each(count), arguments) }?;
            Ok(all)
        }
        _ => unreachable!("a loss of nodes or edges"),
    }
}

/// Sums the examples' losses and marks into the outcome; labels and ends of pairs, as they are given, are to be within the bounds.
fn finish(
    gpu: &Gpu,
    state: &State,
    (Examples { count, losses, marks }, Bounds { classes, seeds, .. }): (Examples, Bounds),
    (labels, ends): (Option<&Buffer<i32>>, Option<Region>),
    trains: bool,
) -> Result<()> {
    let threads = count.div_ceil(4).next_power_of_two().clamp(32, 256);
    let (outcome, gate) = (&state.outcome, trains.then_some(&state.gate));
    let (num_labels, num_ends) = (labels.map_or(0, |_| count), ends.map_or(0, Region::len));
    let arguments =
        arguments![gpu, losses, marks, labels, ends, outcome, gate, count, num_labels, num_ends, classes, seeds];
    // SAFETY: the kernel's arguments, as many labels and ends as said; a block of whole warps, 32 at most.
    unsafe { gpu.launch(&gpu.kernels.train_score, Shape::linear(1, threads as u32), arguments) }
}

/// Handle of the score; `start` is an event before the mini-batch's work.
pub(crate) fn outcome(
    gpu: &Gpu,
    state: &State,
    (id, bounds, trains): (BatchId, Bounds, bool),
    start: Event,
) -> Result<Handle<Score>> {
    let mut words = Pinned::<u64>::new(gpu.stream.device(), state.outcome.len())?;
    gpu.stream.copy(&state.outcome, 0..words.len(), &mut words, 0)?;
    let end = gpu.stream.record(true)?;
    Ok(morphgl_cuda::pending(start, end, move || {
        let [loss, correct, count, label, end] = [words[0], words[1], words[2], words[3], words[4]];
        if let Some(what) = bounds.exceeded(label, end) {
            return Err(Error::setting(format!("{KEY}, {id}"), what));
        }
        let score = Score { loss_sum: f64::from_bits(loss), correct, count };
        if trains {
            check_loss(KEY, id, &score)?;
        }
        Ok(score)
    }))
}

/// What the labels and the ends of pairs of a mini-batch have to be below.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    classes: usize,
    seeds: usize,
    /// What a label is of.
    example: &'static str,
}

impl Bounds {
    /// Of a model's mini-batch.
    pub(crate) fn of(model: &ModelSpec, batch: &CudaBatch) -> Self {
        let example = if model.learns_edges() { "pair" } else { "seed" };
        Self { classes: model.target_width(), seeds: batch.num_seeds, example }
    }

    /// What is wrong with the largest label or end; they are 0 where there are none.
    fn exceeded(self, label: u64, end: u64) -> Option<String> {
        let Self { classes, seeds, example } = self;
        if end > 0 && end >= seeds as u64 {
            return Some(format!("it has a pair of seed {end}, there are {seeds}; batch it again"));
        }
        (label >= classes as u64)
            .then(|| format!("it has a {example} of class {label}, the model has {classes} classes"))
    }
}
