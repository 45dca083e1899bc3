use morphgl_model_core::ScoreKind;
use morphgl_registry::Score;

use super::{Bound, EarlyStopping};
use crate::{Evaluated, Evaluation, TrainOptions};

/// Epochs at most, patience, and epochs between evaluations.
#[track_caller]
fn check(steps_per_epoch: usize, validated: bool, expected: (u32, Option<u32>, u32)) {
    let options = TrainOptions::until_best(steps_per_epoch, Evaluation::Full, validated);
    assert_eq!((options.epochs, options.patience, options.evaluate_every), expected);
    let never = TrainOptions::until_best(steps_per_epoch, Evaluation::None, validated);
    assert_eq!(never, TrainOptions { evaluation: Evaluation::None, ..unvalidated(steps_per_epoch) });
}

fn unvalidated(steps_per_epoch: usize) -> TrainOptions {
    TrainOptions::epochs(Bound::UNVALIDATED.in_epochs(steps_per_epoch))
}

#[test]
fn bounds_are_steps_in_whole_epochs_and_some_epochs_at_least() {
    check(1, true, (2000, Some(100), 5));
    check(2, true, (1000, Some(50), 3));
    check(11, true, (182, Some(10), 1));
    check(30, true, (67, Some(4), 1));
    check(1000, true, (10, Some(4), 1));
    check(usize::MAX, true, (10, Some(4), 1));
    check(0, true, (2000, Some(100), 5));
    check(1, false, (300, None, 1));
    check(11, false, (28, None, 1));
    check(1000, false, (5, None, 1));
}

/// Epochs that are run when validation goes as `scores` say, each a count of correct nodes and a loss.
fn epochs_run(options: &TrainOptions, scores: &[(u64, f64)]) -> (u32, u32) {
    let mut stopping = EarlyStopping::new(options, None);
    let mut best = 0;
    for epoch in 0..options.epochs {
        let (correct, loss_sum) = *scores.get(epoch as usize).unwrap_or(&scores[scores.len() - 1]);
        if (epoch + 1).is_multiple_of(options.evaluate_every) {
            if stopping.is_best(epoch, &Score { loss_sum, correct, count: 100 }.into()) {
                best = epoch;
            }
            if stopping.is_due(epoch) {
                return (epoch + 1, best);
            }
        }
    }
    (options.epochs, best)
}

#[test]
fn training_ends_a_patience_after_the_best_epoch() {
    let eleven = TrainOptions::until_best(11, Evaluation::Full, true);
    // The best at once, and never again.
    assert_eq!(epochs_run(&eleven, &[(60, 1.0), (50, 1.0)]), (11, 0));
    // A better loss at the same accuracy counts, the same score does not.
    assert_eq!(epochs_run(&eleven, &[(60, 1.0), (60, 1.0), (60, 0.9), (60, 0.9)]), (13, 2));
    // A better accuracy counts at any loss.
    assert_eq!(epochs_run(&eleven, &[(60, 1.0), (59, 0.1), (61, 9.0), (60, 0.1)]), (13, 2));
    // Always better: the bound ends it.
    let better: Vec<(u64, f64)> = (0..1000).map(|epoch| (60, 1000.0 - f64::from(epoch))).collect();
    assert_eq!(epochs_run(&eleven, &better), (182, 181));
    // Evaluated every fifth epoch: the best is one of those, and so is the last.
    let one = TrainOptions::until_best(1, Evaluation::Full, true);
    assert_eq!(epochs_run(&one, &[(90, 1.0), (50, 1.0), (50, 1.0), (50, 1.0), (60, 1.0), (50, 1.0)]), (105, 4));
    // By loss, accuracy does not count.
    let by_loss = TrainOptions { score: ScoreKind::Loss, ..eleven };
    assert_eq!(epochs_run(&by_loss, &[(60, 1.0), (61, 2.0), (50, 0.9), (99, 1.0)]), (13, 2));
    // Without a patience nothing ends it early; a loss that is not a number is never the better one.
    assert_eq!(epochs_run(&TrainOptions::epochs(7), &[(60, 1.0), (60, f64::NAN)]), (7, 0));
}

/// A score that is not defined is the worst, and among those of which it is not the loss decides.
#[test]
fn a_score_that_is_not_defined_is_the_worst() {
    let options = TrainOptions { score: ScoreKind::RocAuc, ..TrainOptions::epochs(9) };
    let mut stopping = EarlyStopping::new(&options, None);
    let mut is_best = |epoch, value, loss_sum| {
        let sums = Score { loss_sum, correct: 1, count: 2 };
        stopping.is_best(epoch, &Evaluated { sums, value: Some(value) })
    };
    assert!(is_best(0, f64::NAN, 1.0), "the only one");
    assert!(is_best(1, f64::NAN, 0.5) && !is_best(2, f64::NAN, 0.6));
    assert!(is_best(3, 0.1, 9.0) && !is_best(4, f64::NAN, 0.1) && is_best(5, 0.2, 9.0) && !is_best(6, 0.1, 0.1));
}
