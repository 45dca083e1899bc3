//! The hot ratio while training, from measured times.

/// Fraction of a super-batch's seconds that computing given rows should take.
const AIM: f64 = 0.95;
/// Fractions of a super-batch's seconds within which the ratio is not changed.
const KEEP: std::ops::RangeInclusive<f64> = 0.9..=1.0;
/// Damping: fraction of the step to the ratio that would be balanced if costs were proportional to it.
const DAMPING: f64 = 0.25;
/// Maximum growth in one super-batch.
const MAX_GROWTH: f64 = 2.0;

/// The hot ratio of a coming super-batch: lower where the CPU was late, higher where it was idle, the same where it took 90% to
/// 100% of the super-batch.
///
/// `embed_seconds` are those of computing the given rows of a super-batch at `ratio`. `super_batch_seconds` are those of the
/// mini-batches meanwhile, without the time that a transfer waited for given rows. A ratio of 0 stays: nothing is measured there.
///
/// Where the first grow and the second fall linearly with the ratio, the ratio approaches the balance of both from one side, if
/// there the super-batch takes at least a quarter of its seconds at ratio 0. Below that it can pass the balance.
///
/// NeutronOrch (PVLDB 17(8), 2024), section 4.3.1, gives the directions; the law and its damping are ours.
///
/// # Panics
///
/// When the ratio is not between 0 and 1, or seconds are negative or not numbers.
pub fn next_ratio(ratio: f64, embed_seconds: f64, super_batch_seconds: f64) -> f64 {
    assert!((0.0..=1.0).contains(&ratio), "a hot ratio is between 0 and 1, not {ratio}");
    let valid = embed_seconds >= 0.0 && super_batch_seconds >= 0.0;
    assert!(valid, "seconds are not negative: {embed_seconds} of {super_batch_seconds}");
    let used = embed_seconds / super_batch_seconds;
    // Both may be 0.
    if KEEP.contains(&used) || used.is_nan() {
        return ratio;
    }
    // Infinite where computing takes no time; the growth is bounded.
    let growth = 1.0 + DAMPING * (AIM / used - 1.0);
    (ratio * growth.min(MAX_GROWTH)).min(1.0)
}
