//! Scores: scikit-learn's values, definitions in one line each, and what is submitted.

use morphgl_model_core::{Predicted, ScoreDescription, ScoreKind};
use morphgl_registry::Score;
use proptest::prelude::*;

/// What `scores/reference.py` draws by.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> i64 {
        self.0 = self.0 * 48271 % 2_147_483_647;
        self.0 as i64
    }
}

/// Logits, labels and number of classes of a case of `scores/reference.py`.
fn case(index: u64) -> (Vec<f32>, Vec<i32>, usize) {
    let mut draw = Draw(index + 1);
    (0..5).for_each(|_| _ = draw.next());
    let (nodes, classes) = ((draw.next() % 60 + 2) as usize, (draw.next() % 5 + 2) as usize);
    let logit = |draw: &mut Draw| match classes {
        2 => (draw.next() % 7 - 3) as f32,
        _ => (draw.next() % (1 << 20) - (1 << 19)) as f32 / (1 << 17) as f32,
    };
    let logits = (0..nodes * classes).map(|_| logit(&mut draw)).collect();
    let mut labels: Vec<i32> = (0..nodes).map(|_| (draw.next() % (classes as i64 + 1) - 1) as i32).collect();
    labels[0] = 0;
    (logits, labels, classes)
}

fn value(kind: ScoreKind, logits: &[f32], labels: &[i32], classes: usize) -> f64 {
    kind.value(&Score::of(logits, labels, classes), &Predicted::new(logits, labels, classes))
}

#[test]
fn values_are_those_of_scikit_learn() {
    let kinds = [
        ScoreKind::Accuracy,
        ScoreKind::BalancedAccuracy,
        ScoreKind::MacroF1,
        ScoreKind::RocAuc,
        ScoreKind::AveragePrecision,
    ];
    let rows = include_str!("scores/reference.csv").lines().skip(1);
    let mut cases = 0;
    for (index, row) in rows.enumerate() {
        let (logits, labels, classes) = case(index as u64);
        let expected: Vec<f64> = row.split(',').map(|value| value.parse().expect("a number")).collect();
        assert_eq!(expected.len(), kinds.len());
        for (kind, expected) in kinds.into_iter().zip(expected) {
            let found = value(kind, &logits, &labels, classes);
            let same = (found - expected).abs() < 1e-9 || (found.is_nan() && expected.is_nan());
            assert!(same, "case {index}, {kind}: {found}, expected {expected}");
        }
        cases += 1;
    }
    assert_eq!(cases, 1000);
}

/// Outputs, values and width of a case of `scores/values.py`; labels are 1 where values are at least 2.
fn case_of_values(index: u64) -> (Vec<f32>, Vec<f32>, usize) {
    let mut draw = Draw(index + 1);
    (0..5).for_each(|_| _ = draw.next());
    let (nodes, width) = ((draw.next() % 60 + 2) as usize, (draw.next() % 4 + 1) as usize);
    let outputs = (0..nodes * width).map(|_| (draw.next() % 13 - 6) as f32 / 2.0).collect();
    let value = |(i, drawn): (usize, i64)| match drawn < 8 || i < width {
        true => (drawn % 8) as f32 / 2.0,
        false => f32::NAN,
    };
    let values = (0..nodes * width).map(|_| draw.next() % 10).collect::<Vec<_>>();
    (outputs, values.into_iter().enumerate().map(value).collect(), width)
}

#[test]
fn values_of_labels_and_values_are_those_of_scikit_learn() {
    use ScoreKind::*;
    let kinds = [MicroF1, MacroF1, RocAuc, AveragePrecision, Mae, Rmse, R2];
    let rows = include_str!("scores/values.csv").lines().skip(1);
    let mut cases = 0;
    for (index, row) in rows.enumerate() {
        let (outputs, values, width) = case_of_values(index as u64);
        let labels: Vec<f32> =
            values.iter().map(|y| if y.is_nan() { *y } else { f32::from(u8::from(*y >= 2.0)) }).collect();
        let expected: Vec<f64> = row.split(',').map(|value| value.parse().expect("a number")).collect();
        assert_eq!(expected.len(), kinds.len());
        for (i, (kind, expected)) in kinds.into_iter().zip(expected).enumerate() {
            let targets = if i < 4 { &labels } else { &values };
            let found = kind.value(&Score::default(), &Predicted::of_values(&outputs, targets, width));
            let same =
                (found - expected).abs() < 1e-8 * expected.abs().max(1.0) || (found.is_nan() && expected.is_nan());
            assert!(same, "case {index}, {kind}: {found}, expected {expected}");
        }
        cases += 1;
    }
    assert_eq!(cases, 1000);
}

#[test]
fn scores_fit_their_tasks() {
    use morphgl_model_core::Task;
    for task in Task::ALL {
        assert!(ScoreKind::usual(task).fits(task), "{task}");
        for kind in ScoreKind::all() {
            assert_eq!(kind.check(task).is_ok(), kind.fits(task), "{kind} of {task}");
        }
    }
    let error = ScoreKind::Rmse.check(Task::Link).expect_err("no score of pairs").to_string();
    assert!(error.contains("roc-auc, average-precision, mrr, filtered-mrr, hits@K, filtered-hits@K"), "{error}");
    let hits: ScoreKind = "hits@50".parse().expect("a score");
    assert_eq!(hits.to_string(), "hits@50");
    assert!(hits.fits(Task::Link) && hits.ranking().is_some() && hits.highest_is_best());
    assert!("hits@0".parse::<ScoreKind>().is_err() && "hits@x".parse::<ScoreKind>().is_err());
}

proptest! {
    /// An area is the fraction of pairs in order; a confusion matrix counts every labelled node once.
    #[test]
    fn definitions(rows in prop::collection::vec((-3i8..=3, -3i8..=3, -1i32..2), 1..40)) {
        let logits: Vec<f32> = rows.iter().flat_map(|&(a, b, _)| [f32::from(a), f32::from(b)]).collect();
        let labels: Vec<i32> = rows.iter().map(|row| row.2).collect();
        let margin = |label: i32| -> Vec<i8> {
            rows.iter().filter(|row| row.2 == label).map(|row| row.1 - row.0).collect()
        };
        let (ones, zeros) = (margin(1), margin(0));
        let pairs: f64 = ones.iter().flat_map(|one| zeros.iter().map(move |zero| match one.cmp(zero) {
            std::cmp::Ordering::Greater => 1.0,
            std::cmp::Ordering::Equal => 0.5,
            std::cmp::Ordering::Less => 0.0,
        })).sum();
        let auc = value(ScoreKind::RocAuc, &logits, &labels, 2);
        let expected = pairs / (ones.len() * zeros.len()) as f64;
        prop_assert!((auc - expected).abs() < 1e-12 || (auc.is_nan() && expected.is_nan()), "{auc}, {expected}");
        let confusion = Predicted::new(&logits, &labels, 2).confusion();
        let (sums, labelled) = (Score::of(&logits, &labels, 2), (ones.len() + zeros.len()) as u64);
        prop_assert_eq!(confusion.rows().flatten().sum::<u64>(), labelled);
        prop_assert_eq!(confusion.classes().map(|c| c.correct).sum::<u64>(), sums.correct);
        prop_assert_eq!(confusion.classes().map(|c| c.nodes).sum::<u64>(), labelled);
        prop_assert_eq!(confusion.classes().map(|c| c.predicted).sum::<u64>(), labelled);
    }
}

/// Nodes with the last class, of all.
const LAST: ScoreDescription =
    ScoreDescription::new("of-last-class", "fraction of nodes of the last class", |predicted| {
        let last = predicted.num_classes() - 1;
        let (of, all) =
            predicted.nodes().fold((0, 0), |(of, all), (_, class)| (of + u32::from(class == last), all + 1));
        f64::from(of) / f64::from(all)
    })
    .lowest_is_best();

morphgl_model_core::submit_score! { LAST }

#[test]
fn a_submitted_score_is_found_by_its_name() {
    let kind: ScoreKind = "of-last-class".parse().expect("it is linked");
    assert!(!kind.highest_is_best() && !kind.is_of_sums());
    assert_eq!(value(kind, &[0.0; 8], &[1, 0, -1, 1], 2), 2.0 / 3.0);
    assert_eq!(serde_json::to_string(&kind).expect("JSON"), "\"of-last-class\"");
    assert_eq!(ScoreKind::all().last(), Some(&kind));
    for kind in ScoreKind::all() {
        assert_eq!(kind.to_string().parse::<ScoreKind>().expect("its own name"), kind);
    }
}

#[test]
fn an_unknown_name_is_refused_with_those_there_are() {
    let error = "f1".parse::<ScoreKind>().expect_err("no such score").to_string();
    assert!(error.contains("macro-f1") && error.contains("of-last-class"), "{error}");
}

#[test]
fn without_labelled_nodes_nothing_is_defined() {
    for kind in ScoreKind::all() {
        assert!(value(kind, &[1.0, 2.0], &[-1], 2).is_nan(), "{kind}");
    }
}
