//! Softmax cross-entropy of the seeds: score and gradient in one pass.

use std::sync::Mutex;

use morphgl_registry::Score;

use crate::parallel;

/// Seeds that a task scores.
const TASK: usize = 64;

/// Scores `logits` as [`Score::of`] does, and writes the gradient of the summed loss: the softmax less 1 at the label,
/// 0 for a seed without a label. `scores` is scratch.
pub(crate) fn cross_entropy(
    logits: &[f32],
    labels: &[i32],
    classes: usize,
    scores: &mut Vec<Score>,
    grad: &mut [f32],
) -> Score {
    let tasks = labels.len().div_ceil(TASK);
    scores.clear();
    scores.resize(tasks, Score::default());
    let shared_scores = Mutex::new(&mut scores[..]);
    parallel::tasks(tasks, [(grad, TASK * classes)], &|task, [grad]| {
        let seeds = parallel::block(task, TASK, labels.len());
        let labels = &labels[seeds.clone()];
        let logits = &logits[seeds.start * classes..seeds.end * classes];
        let score = Score::of(logits, labels, classes);
        for ((row, out), &label) in logits.chunks_exact(classes).zip(grad.chunks_exact_mut(classes)).zip(labels) {
            if label < 0 {
                out.fill(0.0);
                continue;
            }
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let mut sum = 0.0;
            for (o, x) in out.iter_mut().zip(row) {
                *o = (x - max).exp();
                sum += *o;
            }
            out.iter_mut().for_each(|o| *o /= sum);
            out[label as usize] -= 1.0;
        }
        shared_scores.lock().expect("no task panics while it holds the lock")[task] = score;
    });
    let mut total = Score::default();
    scores.iter().for_each(|&score| total += score);
    total
}
