//! The traits of training: the state of the model, and steps, scores and logits by it.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{Error, Handle, HostBatch, MiniBatch, Result, Roofline, Targets};

/// Sums over seeds, so that unequal shares combine exactly.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Sum of the seeds' losses: cross-entropies, or what a model of the operator's own minimizes.
    pub loss_sum: f64,
    /// Seeds whose class was predicted correctly.
    pub correct: u64,
    /// Seeds with a label.
    pub count: u64,
}

impl Score {
    /// Mean loss per seed; NaN without seeds.
    pub fn loss(&self) -> f64 {
        self.loss_sum / self.count as f64
    }

    /// Fraction of the seeds whose class was predicted correctly; NaN without seeds.
    pub fn accuracy(&self) -> f64 {
        self.correct as f64 / self.count as f64
    }

    /// Scores the rows of `logits` (`[nodes, num_classes]`) against `labels`; a label of -1 does not count.
    ///
    /// # Panics
    ///
    /// When there are not `num_classes` logits per label.
    pub fn of(logits: &[f32], labels: &[i32], num_classes: usize) -> Self {
        assert_eq!(logits.len(), labels.len() * num_classes, "logits and labels x classes");
        let mut score = Self::default();
        for (row, &label) in logits.chunks_exact(num_classes.max(1)).zip(labels).filter(|(_, l)| **l >= 0) {
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let log_sum = row.iter().map(|&x| f64::from(x - max).exp()).sum::<f64>().ln() + f64::from(max);
            // The first of equal logits is the prediction, as in numpy and torch.
            let best = row.iter().position(|&x| x == max);
            score.loss_sum += log_sum - f64::from(row[label as usize]);
            score.correct += u64::from(best == Some(label as usize));
            score.count += 1;
        }
        score
    }
}

impl std::ops::AddAssign for Score {
    fn add_assign(&mut self, other: Self) {
        self.loss_sum += other.loss_sum;
        self.correct += other.correct;
        self.count += other.count;
    }
}

/// A named tensor in host memory.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedTensor {
    /// Its name in `morphgl-model-core`.
    pub name: String,
    /// Lengths of its dimensions, slowest first.
    pub shape: Vec<usize>,
    /// Its elements, row after row.
    pub values: Vec<f32>,
}

/// Gradients accumulated since the last step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Gradients {
    /// Sum of the seeds' gradients, one tensor per parameter.
    pub tensors: Vec<NamedTensor>,
    /// Seeds summed over.
    pub count: u64,
}

impl Gradients {
    /// Calls the gradient-ready hook with all elements, tensor by tensor, in the order of
    /// [`Training::accumulate_last`].
    pub fn hand_over(&self, complete: GradientReady<'_>) {
        let mut first = self.tensors.iter().map(|tensor| tensor.values.len()).sum();
        for tensor in self.tensors.iter().rev() {
            first -= tensor.values.len();
            complete(first, &tensor.values);
        }
    }
}

/// Gradient-ready hook: called with gradients that are final until the next step. `(first, values)` are the elements
/// `first..first + values.len()` of all gradients, tensor after tensor in the order of [`ModelState::gradients`].
pub type GradientReady<'a> = &'a mut (dyn FnMut(usize, &[f32]) + Send + 'a);

/// The processes that infer together ([`Training::infer_together`]).
pub trait GatherRows: fmt::Debug + Send {
    /// This process's number, from 0.
    fn rank(&self) -> usize;

    /// Number of processes.
    fn size(&self) -> usize;

    /// Fills in the parts of `rows` that other processes have computed. Part `i`, the elements `parts[i]`, is that of process `i`;
    /// each process has computed its own. All make the call, with the same parts.
    ///
    /// # Errors
    ///
    /// A process has left, does not come, or has other parts.
    fn gather(&mut self, rows: &mut [f32], parts: &[Range<usize>]) -> Result<()>;
}

/// Rows of a single process: nothing is gathered.
#[derive(Debug, Clone, Copy)]
pub struct SingleProcess;

impl GatherRows for SingleProcess {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn gather(&mut self, _rows: &mut [f32], _parts: &[Range<usize>]) -> Result<()> {
        Ok(())
    }
}

/// State of a training operator: parameters, optimizer state, and gradients accumulated since the last step.
pub trait ModelState: fmt::Debug + Send {
    /// Copies out the parameters, in the order of `morphgl-model-core`.
    fn parameters(&self) -> Result<Vec<NamedTensor>>;

    /// Replaces the parameters by name.
    ///
    /// # Errors
    ///
    /// A name or shape that is not the model's, or one that is missing.
    fn set_parameters(&mut self, parameters: &[NamedTensor]) -> Result<()>;

    /// Copies out the optimizer's state.
    fn optimizer_state(&self) -> Result<Vec<NamedTensor>>;

    /// Replaces the optimizer's state.
    fn set_optimizer_state(&mut self, state: &[NamedTensor]) -> Result<()>;

    /// Copies out the accumulated gradients.
    fn gradients(&mut self) -> Result<Gradients>;

    /// Replaces the accumulated gradients.
    fn set_gradients(&mut self, gradients: &Gradients) -> Result<()>;
}

/// Phase Training: owns model and optimizer at its place.
///
/// Accumulate and step are separate so that several trainers can share one step (unified-cpu-gpu-protocol §4).
pub trait Training: ModelState {
    /// Sets the host threads the operator may use from now on.
    fn set_threads(&mut self, threads: usize) -> Result<()>;

    /// Adds the gradients of a mini-batch, summed over its seeds, to those accumulated; returns its score in training mode.
    fn accumulate(&mut self, batch: &MiniBatch) -> Result<Handle<Score>>;

    /// As [`Training::accumulate`], for the last mini-batch before a step. The gradient-ready hook `complete` is called
    /// with every gradient as soon as it is final, so that a group all-reduces those of the last layers while backward
    /// goes on: once each, from the last element to the first, every call up to where the one before began. After an
    /// error it may have been called with some.
    ///
    /// An operator whose backward ends with all gradients at once needs no implementation of its own.
    fn accumulate_last(&mut self, batch: &MiniBatch, complete: GradientReady<'_>) -> Result<Handle<Score>> {
        let (score, measured) = self.accumulate(batch)?.measured()?;
        self.gradients()?.hand_over(complete);
        Ok(Handle::ready(score, measured.busy).counting(measured.counters))
    }

    /// Updates the parameters with the accumulated gradients divided by their count, and clears them.
    ///
    /// # Errors
    ///
    /// Nothing was accumulated, or a parameter is no longer a number.
    ///
    /// It may be called while a mini-batch is pending; one that fails later does not contribute to the step.
    fn step(&mut self) -> Result<Handle<()>>;

    /// Trains on one mini-batch: accumulates and steps. Both are submitted to the device before either is waited for, so that it
    /// is never idle between them. The handle has the score, and the duration of both on the operator's resource.
    ///
    /// The caller keeps the mini-batch until the handle was waited for. Up to [`Training::queue_depth`] mini-batches may be
    /// pending; they are trained on in order.
    ///
    /// # Errors
    ///
    /// As [`Training::accumulate`] and [`Training::step`]; of two the first.
    fn train(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        let accumulating = self.accumulate(batch)?;
        let stepping = self.step();
        Ok(accumulating.then(stepping))
    }

    /// Takes the steps that [`Training::train`] has left behind, so that parameters and optimizer state are those after every mini-batch
    /// trained so far. Only a trainer whose gradients may be stale leaves any.
    ///
    /// # Errors
    ///
    /// As [`Training::step`]; another trainer of the group has failed.
    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    /// Maximum number of pending mini-batches of [`Training::train`]. With two, a device has the next step in its stream when a
    /// step ends; with one it idles until the host submits the next. One is right where the host itself computes.
    fn queue_depth(&self) -> usize {
        1
    }

    /// Appends the first layer's output, with the dropout that the features have in mini-batch `batch.id`, and before that of the
    /// output itself: a row for each destination node of the mini-batch's only block, as [`GivenRows`](crate::GivenRows) have it; and
    /// to each of `inputs`, where there are any, a row per destination node of what that one of the layer's weights multiplies.
    /// Features are read from the dataset. `None` where the operator does not compute a layer alone.
    fn first_layer(&mut self, batch: &HostBatch, rows: &mut Vec<f32>, inputs: &mut [Vec<f32>]) -> Option<Result<()>> {
        let _ = (batch, rows, inputs);
        None
    }

    /// Scores a mini-batch in evaluation mode (no dropout): sampled evaluation.
    fn score(&mut self, batch: &MiniBatch) -> Result<Handle<Score>>;

    /// Outputs of a mini-batch's seeds in evaluation mode (no dropout), `[seeds, width]`; what is known of the seeds is not read.
    ///
    /// # Errors
    ///
    /// As [`Training::score`]; an operator without an implementation of its own refuses.
    fn outputs(&mut self, batch: &MiniBatch) -> Result<Handle<Vec<f32>>> {
        let _ = batch;
        let cure = "evaluate with all neighbours, or leave --training out";
        Err(Error::setting(
            "outputs",
            format!("this operator scores mini-batches, and does not return their outputs; {cure}"),
        ))
    }

    /// Scores rows of outputs (`[nodes, width]`, of [`Training::infer`]) against their targets, by the loss that is trained; a class of
    /// -1 and values that are NaN do not count. Of pairs, the ends are rows of the outputs.
    ///
    /// # Errors
    ///
    /// The loss cannot be computed: an operator without an implementation of its own has that of classes alone.
    fn score_logits(&mut self, logits: &[f32], targets: Targets<'_>, width: usize) -> Result<Score> {
        match targets {
            Targets::Classes(labels) => Ok(Score::of(logits, labels, width)),
            _ => Err(Error::setting("targets", "this operator scores classes alone; leave --training out")),
        }
    }

    /// Scores of pairs of rows of outputs (`[nodes, width]`, of [`Training::infer`]), or the outputs of labelled edges, `[pairs, outputs]`,
    /// of an operator with a decoder of its own; `None` of one whose decoder the model's spec describes.
    fn pair_scores(&mut self, outputs: &[f32], pairs: &[[u32; 2]], width: usize) -> Option<Result<Vec<f32>>> {
        let _ = (outputs, pairs, width);
        None
    }

    /// Logits of `nodes` with all their neighbours, `[nodes, num_classes]`: layer by layer over all nodes, never by recursion.
    ///
    /// # Complexity
    ///
    /// O(layers · (nodes · width² + edges · width)) time, two node-by-width matrices of memory.
    fn infer(&mut self, nodes: &[u32]) -> Result<Vec<f32>>;

    /// As [`Training::infer`], together with the same operator of other processes, which all make the call with the same model,
    /// dataset and nodes: each computes a part of the rows of every layer, and all gather the others'. All have the logits of the
    /// process that computed them, which differ from those of one process in rounding at most.
    ///
    /// An operator without an implementation of its own computes all rows itself, in each process, and gathers nothing.
    ///
    /// # Errors
    ///
    /// As [`Training::infer`] and [`GatherRows::gather`].
    fn infer_together(&mut self, nodes: &[u32], peers: &mut dyn GatherRows) -> Result<Vec<f32>> {
        let _ = peers;
        self.infer(nodes)
    }

    /// The rows of `nodes` after the first `layers` layers, `[nodes, width of that layer]`: its inputs of the next layer, and of the last
    /// layer the logits. All else is as in [`Training::infer_together`].
    ///
    /// # Errors
    ///
    /// No such layer; an operator without an implementation of its own refuses.
    fn embed(&mut self, nodes: &[u32], layers: usize, peers: &mut dyn GatherRows) -> Result<Vec<f32>> {
        let _ = (nodes, layers, peers);
        Err(Error::setting("layer", "this operator computes the last layer's outputs alone; leave --training out"))
    }

    /// The passes of the last step, which was over `batch`, and the processor's peaks for them, which the first call measures in some
    /// tenths of a second. `None` of an operator that does not time its passes.
    ///
    /// # Errors
    ///
    /// A mini-batch that does not fit the model.
    fn roofline(&mut self, batch: &MiniBatch) -> Option<Result<Roofline>> {
        let _ = batch;
        None
    }

    /// Peak bytes of host memory of [`Training::infer`], besides the operator's own; `None` where not known.
    fn infer_bytes(&self) -> Option<u64> {
        None
    }
}
