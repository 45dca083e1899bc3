//! Statistics of a few figures.

/// The middle value, or the mean of the middle two; NaN of none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.get(sorted.len().wrapping_sub(1) / 2), sorted.get(sorted.len() / 2)) {
        (Some(low), Some(high)) => (low + high) / 2.0,
        _ => f64::NAN,
    }
}
