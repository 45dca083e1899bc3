//! Lower bound of the time lost between the groups of a joint route, which whole mini-batches and a short ready buffer
//! cause.
//!
//! A joint route batches where it trains and holds bus and device at once, so no transfer and no step overlaps its work: an epoch
//! falls into *runs* of whole transfers and whole steps. A run begins with at most `ready` mini-batches to train, so its transfers
//! hide only so many steps; the remainder is lost in each run.

/// Number of transfers from which a run is treated as fluid.
const WHOLE: usize = 32;

/// A linear lower bound: `transfer · transfers + step · steps` is at most the seconds of any run, and so of their sum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Line {
    pub(crate) transfer: f64,
    pub(crate) step: f64,
}

/// Minimum seconds of a run of `transfers` transfers of `transfer` seconds and `steps` steps of `step` seconds.
///
/// During the transfers at most these steps can run: the one under way when the first begins, the `ready - 1` other ready ones,
/// and one for every transfer but the last.
fn min_seconds(transfers: usize, steps: usize, (transfer, step): (f64, f64), ready: usize) -> f64 {
    let (moved, trained) = (transfers as f64 * transfer, steps as f64 * step);
    let hidden = (ready + transfers).saturating_sub(1);
    moved.max(trained).max(moved + steps.saturating_sub(hidden) as f64 * step)
}

/// Lines below every possible run; there is at least one. All seconds are positive.
///
/// They are the lower convex hull of all runs in the plane of steps per transfer (x) and seconds per transfer (y), with
/// runs of steps alone as its direction.
pub(crate) fn lines(transfer: f64, step: f64, ready: usize) -> Vec<Line> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    for transfers in 1..=WHOLE {
        // Linear between these, so the hull has no others.
        let even = (transfers as f64 * transfer / step).min(1e9) as usize;
        let most = ready + transfers;
        for steps in [0, even, even + 1, most - 1, most] {
            let steps = steps.min(most);
            let seconds = min_seconds(transfers, steps, (transfer, step), ready);
            points.push((steps as f64 / transfers as f64, seconds / transfers as f64));
        }
    }
    let most = 1.0 + ready as f64 / WHOLE as f64;
    for steps in [0.0, (transfer / step).min(most), most] {
        points.push((steps, transfer.max(steps * step)));
    }
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    points.dedup_by(|b, a| a.0 == b.0);
    let slope = |a: (f64, f64), b: (f64, f64)| (b.1 - a.1) / (b.0 - a.0);
    let mut hull: Vec<(f64, f64)> = Vec::new();
    for point in points {
        while let [.., a, b] = hull[..] {
            if slope(b, point) > slope(a, b) {
                break;
            }
            hull.pop();
        }
        hull.push(point);
    }
    let edges = hull.windows(2).map(|pair| (pair[0], slope(pair[0], pair[1])));
    let flatter = edges.take_while(|(_, slope)| *slope < step);
    let mut lines: Vec<Line> =
        flatter.map(|(point, slope)| Line { transfer: point.1 - slope * point.0, step: slope }).collect();
    // Where the hull is steeper than runs of steps alone, those are the last line.
    let last = hull.iter().map(|p| p.1 - step * p.0).fold(f64::INFINITY, f64::min);
    lines.push(Line { transfer: last.max(0.0), step });
    lines
}

#[cfg(test)]
mod tests;
