//! Time lost between the groups of a joint route, by whole mini-batches and a short ready buffer.
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
fn least(transfers: usize, steps: usize, (transfer, step): (f64, f64), ready: usize) -> f64 {
    let (moved, trained) = (transfers as f64 * transfer, steps as f64 * step);
    let beside = (ready + transfers).saturating_sub(1);
    moved.max(trained).max(moved + steps.saturating_sub(beside) as f64 * step)
}

/// Lines below every possible run; there is at least one. All seconds are positive.
///
/// They are the lower convex hull of all runs in the plane of steps a transfer (x) and seconds a transfer (y), with runs of steps
/// alone as its direction.
pub(crate) fn lines(transfer: f64, step: f64, ready: usize) -> Vec<Line> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    for transfers in 1..=WHOLE {
        // Linear between these, so the hull has no others.
        let even = (transfers as f64 * transfer / step).min(1e9) as usize;
        let most = ready + transfers;
        for steps in [0, even, even + 1, most - 1, most] {
            let steps = steps.min(most);
            let seconds = least(transfers, steps, (transfer, step), ready);
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
    let mut lines = Vec::new();
    for pair in hull.windows(2) {
        let along = slope(pair[0], pair[1]);
        if along >= step {
            break;
        }
        lines.push(Line { transfer: pair[0].1 - along * pair[0].0, step: along });
    }
    // Where the hull is steeper than runs of steps alone, those are the last line.
    let last = hull.iter().map(|p| p.1 - step * p.0).fold(f64::INFINITY, f64::min);
    lines.push(Line { transfer: last.max(0.0), step });
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Line, least, lines};

    proptest! {
        #[test]
        fn no_run_is_below_a_line(transfer in 0.01f64..10.0, step in 0.01f64..10.0, ready in 1usize..20,
                                  transfers in 0usize..200, steps in 0usize..400) {
            let steps = steps.min(ready + transfers);
            let seconds = least(transfers, steps, (transfer, step), ready);
            for line in lines(transfer, step, ready) {
                let bound = line.transfer * transfers as f64 + line.step * steps as f64;
                prop_assert!(bound <= seconds * (1.0 + 1e-9) + 1e-12, "{line:?}: {bound} above {seconds}");
            }
        }

        #[test]
        fn the_fluid_loads_are_never_above_all_lines(transfer in 0.01f64..10.0, step in 0.01f64..10.0,
                                                     ready in 1usize..20, share in 0.0f64..1.0) {
            // For one mini-batch, `share` of it transferred: the lines are at least the loads of bus and device alone.
            let of = |line: &Line| line.transfer * share + line.step;
            let bound = lines(transfer, step, ready).iter().map(of).fold(0.0, f64::max);
            prop_assert!(bound >= (share * transfer).max(step) * (1.0 - 1e-9));
        }
    }

    #[test]
    fn a_transfer_of_six_and_a_half_steps_is_never_hidden_evenly() {
        // Seven steps beside it leave the bus idle for half a step, six leave the device.
        let lines = lines(6.5, 1.0, 10);
        let at = |steps: f64| lines.iter().map(|l| l.transfer + l.step * steps).fold(0.0, f64::max);
        assert!((at(7.0) - 7.0).abs() < 1e-9 && (at(6.0) - 6.5).abs() < 1e-9, "{lines:?}");
        assert!(at(6.5) > 6.7, "{lines:?}");
    }
}
