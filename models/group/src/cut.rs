//! Cuts a mini-batch's seeds into consecutive shares with the least time of the slowest.

use crate::speed::Line;

/// Halvings of the interval in which the least time is looked for: 2^-40 of it is far below what is measured.
const HALVINGS: usize = 40;

/// Ends of the shares, by trainer, whose longest predicted time is least; shares that are not worth their fixed cost are empty.
/// `sums[i]` is the work of the first `i` seeds, strictly ascending from 0. Every trainer has at least as many seeds as
/// `least` says, which has to leave the last trainers theirs.
///
/// # Complexity
///
/// O(40 · trainers · log seeds).
pub(crate) fn cut(sums: &[f64], lines: &[Line], least: &[usize]) -> Vec<usize> {
    let total = *sums.last().expect("the sum of no seeds");
    let alone = lines.iter().map(|line| line.at(total)).fold(f64::INFINITY, f64::min);
    let mut ends = vec![0; lines.len()];
    // What trainers must have may take longer than all by the fastest one.
    let mut high = alone;
    while !fill(sums, lines, least, high, &mut ends) {
        high *= 2.0;
    }
    let mut low = 0.0;
    let mut found = ends.clone();
    for _ in 0..HALVINGS {
        let middle = 0.5 * (low + high);
        if fill(sums, lines, least, middle, &mut ends) {
            high = middle;
            found.copy_from_slice(&ends);
        } else {
            low = middle;
        }
    }
    found
}

/// Gives each trainer in turn as many seeds as it can train within `seconds`, which leaves the fewest for the last; whether
/// none is left over.
fn fill(sums: &[f64], lines: &[Line], least: &[usize], seconds: f64, ends: &mut [usize]) -> bool {
    let num_seeds = sums.len() - 1;
    let mut start = 0;
    let mut owed: usize = least.iter().sum();
    for ((line, &least), end) in lines.iter().zip(least).zip(ends) {
        let work = (seconds - line.fixed) / line.slope;
        let fits = sums.partition_point(|&sum| sum <= sums[start] + work).saturating_sub(1);
        owed -= least;
        // Seeds that later trainers must have are left to them.
        start = fits.max(start + least).min(num_seeds - owed).max(start);
        *end = start;
    }
    start == num_seeds
}

#[cfg(test)]
mod tests;
