//! The loss of a mini-batch and its gradient by the model's output, for training operators on the host.

use morphgl_registry::{BatchPairs, Result, Score, Targets};
use rayon::prelude::*;

use crate::logistic::binary;
use crate::pair_loss::PairLoss;
use crate::{Decoder, LossKind, ModelSpec};

/// Seeds that a task computes.
const TASK: usize = 64;

/// The loss that a model is trained by, with its settings. Results are the same on any number of threads.
#[derive(Debug, Clone)]
pub struct Objective {
    /// Outputs per seed, or of the decoder per pair.
    width: usize,
    loss: Loss,
    /// What makes outputs of pairs of the embeddings of their ends, and the width of these; `None` where nodes are learned, and of links.
    decoder: Option<(Decoder, usize)>,
}

#[derive(Debug, Clone)]
enum Loss {
    /// Weights are empty where all are 1.
    CrossEntropy {
        smoothing: f32,
        weights: Vec<f32>,
    },
    Binary {
        positive_weight: f32,
    },
    Squared,
    Absolute,
    Huber {
        delta: f32,
    },
    Pairs(PairLoss),
    /// A loss of another crate, which this crate does not compute.
    Submitted,
}

/// The target of a seed.
#[derive(Debug, Clone, Copy)]
enum Target<'a> {
    Class(i32),
    Values(&'a [f32]),
}

impl Objective {
    /// The loss of a model.
    ///
    /// # Errors
    ///
    /// An invalid spec.
    pub fn new(spec: &ModelSpec) -> Result<Self> {
        spec.validate()?;
        let settings = spec.loss_settings();
        let number = |name: &str| settings.number(name) as f32;
        let loss = match spec.loss {
            _ if let Some(pairs) = PairLoss::of(spec) => Loss::Pairs(pairs),
            LossKind::CrossEntropy => {
                Loss::CrossEntropy { smoothing: number("label_smoothing"), weights: spec.class_weights() }
            }
            LossKind::BinaryCrossEntropy => Loss::Binary { positive_weight: number("positive_weight") },
            LossKind::Squared => Loss::Squared,
            LossKind::Absolute => Loss::Absolute,
            LossKind::Huber => Loss::Huber { delta: number("delta") },
            LossKind::Bpr | LossKind::Margin => unreachable!("the spec was validated: losses of pairs"),
            LossKind::Submitted(_) => Loss::Submitted,
        };
        let decoder = spec.learns_edges().then_some((spec.decoder, spec.num_classes));
        Ok(Self { width: spec.target_width(), loss, decoder })
    }

    /// Whether it is cross-entropy without weights and smoothing, of which operators have faster code of their own.
    pub fn is_plain(&self) -> bool {
        matches!(&self.loss, Loss::CrossEntropy { smoothing: 0.0, weights } if weights.is_empty())
    }

    /// Whether another crate computes it.
    pub fn is_submitted(&self) -> bool {
        matches!(self.loss, Loss::Submitted)
    }

    /// The score of outputs `[seeds, width]`. `decoder` are the elements of the decoder's parameters, none without one. A seed, or a pair
    /// of an edge, counts that has a class or a known value; of links, each pair counts, or with a ranking loss each positive. Correct are seeds whose
    /// class or all of whose labels are predicted, and pairs on their side of 0, or positives above all their negatives.
    ///
    /// # Panics
    ///
    /// When targets do not fit the task or the output, or the loss is of another crate.
    pub fn score(&self, outputs: &[f32], targets: Targets<'_>, decoder: &[f32]) -> Score {
        match (&self.loss, targets) {
            (Loss::Pairs(loss), Targets::Pairs(pairs)) => loss.score(outputs, pairs, decoder),
            _ if let Some((pairs, of_pairs)) = of_edges(targets) => {
                let (kind, width) = self.decoder.expect("a loss of edges");
                let outputs = kind.outputs((outputs, width, self.width), (&pairs.ends, &[]), decoder);
                self.score(&outputs, of_pairs, &[])
            }
            _ if self.is_plain()
                && let Targets::Classes(labels) = targets =>
            {
                Score::of(outputs, labels, self.width)
            }
            _ => {
                let tasks = outputs.par_chunks(TASK * self.width.max(1)).enumerate();
                let scores = tasks.map(|(task, outputs)| self.rows(TASK * task, outputs, targets, None));
                sum(&scores.collect::<Vec<_>>())
            }
        }
    }

    /// As [`Objective::score`]; writes the gradient of the summed loss by the outputs to `gradient`, and adds that by the decoder's
    /// parameters to `decoder_gradient`.
    ///
    /// # Panics
    ///
    /// As [`Objective::score`].
    pub fn gradient(
        &self,
        outputs: &[f32],
        targets: Targets<'_>,
        decoder: &[f32],
        gradient: &mut [f32],
        decoder_gradient: &mut [f32],
    ) -> Score {
        if let (Loss::Pairs(loss), Targets::Pairs(pairs)) = (&self.loss, targets) {
            return loss.gradient(outputs, pairs, decoder, gradient, decoder_gradient);
        }
        if let Some((pairs, of_pairs)) = of_edges(targets) {
            let (kind, width) = self.decoder.expect("a loss of edges");
            let input = (outputs, width, self.width);
            let forward = kind.forward(input, (&pairs.ends, &[]), decoder);
            let mut slopes = vec![0.0; forward.outputs.len()];
            let score = self.gradient_by_outputs(&forward.outputs, of_pairs, &mut slopes);
            // An operator refuses such a loss; its decoder keeps the gradients that it has.
            if score.loss_sum.is_finite() {
                let ends = (&pairs.ends[..], &[][..]);
                kind.backward(input, (ends, &slopes), (decoder, &forward), gradient, decoder_gradient);
            }
            return score;
        }
        self.gradient_by_outputs(outputs, targets, gradient)
    }

    /// The score of outputs, and their gradient.
    fn gradient_by_outputs(&self, outputs: &[f32], targets: Targets<'_>, gradient: &mut [f32]) -> Score {
        let chunk = TASK * self.width.max(1);
        let tasks = outputs.par_chunks(chunk).zip(gradient.par_chunks_mut(chunk)).enumerate();
        let scores = tasks.map(|(task, (outputs, out))| self.rows(TASK * task, outputs, targets, Some(out)));
        sum(&scores.collect::<Vec<_>>())
    }

    /// The score of consecutive rows from row `first` on, and their gradient.
    fn rows(&self, first: usize, outputs: &[f32], targets: Targets<'_>, mut gradient: Option<&mut [f32]>) -> Score {
        let (width, mut score) = (self.width, Score::default());
        for (i, row) in outputs.chunks_exact(width).enumerate() {
            let seed = first + i;
            let target = match targets {
                Targets::Classes(labels) => Target::Class(labels[seed]),
                Targets::Values(values) => Target::Values(&values[seed * width..(seed + 1) * width]),
                _ => panic!("a loss of nodes is given pairs"),
            };
            let out = gradient.as_deref_mut().map(|gradient| &mut gradient[i * width..(i + 1) * width]);
            score += self.row(row, target, out);
        }
        score
    }

    fn row(&self, row: &[f32], target: Target<'_>, gradient: Option<&mut [f32]>) -> Score {
        match (&self.loss, target) {
            (Loss::CrossEntropy { smoothing, weights }, Target::Class(label)) => {
                smoothed(row, label, *smoothing, weights, gradient)
            }
            (Loss::Binary { positive_weight }, Target::Values(values)) => {
                let of_value = |x: f32, y: f32| {
                    let (loss, slope) = binary(x, y, *positive_weight);
                    (loss, slope, (x > 0.0) == (y > 0.5))
                };
                mean_of_known(row, values, gradient, of_value)
            }
            (Loss::Squared, Target::Values(values)) => {
                mean_of_known(row, values, gradient, |x, y| (f64::from(x - y).powi(2), 2.0 * (x - y), false))
            }
            (Loss::Absolute, Target::Values(values)) => {
                let slope = |x: f32, y: f32| if x == y { 0.0 } else { (x - y).signum() };
                mean_of_known(row, values, gradient, |x, y| (f64::from((x - y).abs()), slope(x, y), false))
            }
            (Loss::Huber { delta }, Target::Values(values)) => mean_of_known(row, values, gradient, |x, y| {
                let (error, wide) = (x - y, f64::from(*delta));
                let size = f64::from(error.abs());
                let loss = if size <= wide { size * size / 2.0 } else { wide * (size - wide / 2.0) };
                (loss, error.clamp(-delta, *delta), false)
            }),
            (loss, target) => panic!("{loss:?} of {target:?}"),
        }
    }
}

/// The pairs of targets of edges, and the targets as those of rows; `None` of others.
fn of_edges<'a>(targets: Targets<'a>) -> Option<(&'a BatchPairs, Targets<'a>)> {
    match targets {
        Targets::PairClasses(pairs, labels) => Some((pairs, Targets::Classes(labels))),
        Targets::PairValues(pairs, values) => Some((pairs, Targets::Values(values))),
        _ => None,
    }
}

/// The sum, in the order of the tasks.
fn sum(scores: &[Score]) -> Score {
    let mut total = Score::default();
    scores.iter().for_each(|&score| total += score);
    total
}

/// Cross-entropy of the softmax against a share `1 - smoothing` at the label and the rest spread over all classes, each term
/// multiplied by the weight of its class.
fn smoothed(row: &[f32], label: i32, smoothing: f32, weights: &[f32], gradient: Option<&mut [f32]>) -> Score {
    let Ok(label) = usize::try_from(label) else {
        gradient.into_iter().for_each(|out| out.fill(0.0));
        return Score::default();
    };
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let log_sum = row.iter().map(|&x| f64::from(x - max).exp()).sum::<f64>().ln() + f64::from(max);
    // The weighted share of a class in the target distribution.
    let share = |class: usize| {
        let spread = smoothing / row.len() as f32;
        let share = if class == label { 1.0 - smoothing + spread } else { spread };
        share * weights.get(class).copied().unwrap_or(1.0)
    };
    let loss_sum = row.iter().enumerate().map(|(class, &x)| f64::from(share(class)) * (log_sum - f64::from(x))).sum();
    if let Some(out) = gradient {
        let all: f32 = (0..row.len()).map(share).sum();
        for (class, (out, &x)) in out.iter_mut().zip(row).enumerate() {
            *out = (f64::from(x) - log_sum).exp() as f32 * all - share(class);
        }
    }
    let best = row.iter().position(|&x| x == max);
    Score { loss_sum, correct: u64::from(best == Some(label)), count: 1 }
}

/// The mean over the known values of a seed of a loss with its derivative, and whether the value is predicted correctly.
fn mean_of_known(
    row: &[f32],
    values: &[f32],
    mut gradient: Option<&mut [f32]>,
    of_value: impl Fn(f32, f32) -> (f64, f32, bool),
) -> Score {
    let known = values.iter().filter(|value| !value.is_nan()).count();
    let (mut loss, mut correct) = (0.0, known > 0);
    for (i, (&x, &y)) in row.iter().zip(values).enumerate() {
        let (of_this, slope, is_correct) = if y.is_nan() { (0.0, 0.0, true) } else { of_value(x, y) };
        loss += of_this;
        correct &= is_correct;
        if let Some(gradient) = gradient.as_deref_mut() {
            gradient[i] = if known == 0 { 0.0 } else { slope / known as f32 };
        }
    }
    let count = u64::from(known > 0);
    Score { loss_sum: loss / known.max(1) as f64, correct: u64::from(correct), count }
}
