//! Scores of real values: of several values per node the mean of the score of each that is known of a node.

use crate::Predicted;

/// The mean over the columns of a score of their outputs and values.
fn of_columns(predicted: &Predicted<'_>, score: impl Fn(&[(f64, f64)]) -> f64) -> f64 {
    let columns = (0..predicted.num_classes()).map(|column| {
        let known: Vec<_> = predicted.column(column).map(|(x, y)| (f64::from(x), f64::from(y))).collect();
        known
    });
    super::mean(columns.filter(|known| !known.is_empty()).map(|known| score(&known)))
}

pub(super) fn mean_absolute_error(predicted: &Predicted<'_>) -> f64 {
    of_columns(predicted, |known| super::mean(known.iter().map(|(x, y)| (x - y).abs())))
}

pub(super) fn root_mean_squared_error(predicted: &Predicted<'_>) -> f64 {
    of_columns(predicted, |known| super::mean(known.iter().map(|(x, y)| (x - y).powi(2))).sqrt())
}

/// 1 less the squared errors over the squared deviations from the mean; where nothing deviates, 1 without an error, else 0.
pub(super) fn r2(predicted: &Predicted<'_>) -> f64 {
    of_columns(predicted, |known| {
        let center = super::mean(known.iter().map(|(_, y)| *y));
        let errors: f64 = known.iter().map(|(x, y)| (x - y).powi(2)).sum();
        let deviations: f64 = known.iter().map(|(_, y)| (y - center).powi(2)).sum();
        match deviations > 0.0 {
            true => 1.0 - errors / deviations,
            false => f64::from(u8::from(errors == 0.0)),
        }
    })
}
