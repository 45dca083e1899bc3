//! Softmax cross-entropy of the seeds: score and gradient in one pass.

use morphgl_registry::Score;

use crate::parallel;

/// Seeds a task scores.
const TASK: usize = 64;

/// Scores `logits` as [`Score::of`] does, and writes the gradient of the summed loss: softmax less one at the label,
/// 0 without a label. `scores` has room for a number of scores of tasks.
pub(crate) fn cross_entropy(
    logits: &[f32],
    labels: &[i32],
    classes: usize,
    scores: &mut Vec<Score>,
    grad: &mut [f32],
) -> Score {
    scores.clear();
    scores.resize(labels.len().div_ceil(TASK), Score::default());
    let scores_of = std::sync::Mutex::new(&mut scores[..]);
    parallel::tasks(labels.len().div_ceil(TASK), [(grad, TASK * classes)], &|task, [grad]| {
        let first = task * TASK;
        let labels = &labels[first..(first + TASK).min(labels.len())];
        let logits = &logits[first * classes..][..labels.len() * classes];
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
        scores_of.lock().expect("no task panics with the scores")[task] = score;
    });
    let mut total = Score::default();
    scores.iter().for_each(|&score| total += score);
    total
}
