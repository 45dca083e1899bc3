//! MorphGL's own plan: Equation 6, the dual buffer, and feedback.

use crate::assemble::{fastest_pool, schedule, share};
use crate::memory;
use crate::simulate::{Simulation, simulated};
use crate::{Policy, Problem, Schedule};

/// Maximum rounds of feedback between partitioner and scheduler.
const ROUNDS: usize = 16;

/// The x of Equation 6: mini-batches of the device for each of the host, between 0 and infinity.
///
/// `C'(x) = n · (x·device/(1+x) + max(dma/(1+x), training, (host − x·device)/(1+x)))`. Each of the three is a ratio of linear
/// functions of x, so the minimum lies where two of the maximum's terms are equal, or at an end.
/// `host` is the pool's seconds per mini-batch, `device` those of batching plus gathering (§IV-B2).
pub(crate) fn equation6(host: f64, device: f64, dma: f64, training: f64) -> f64 {
    let time = |x: f64| x * device / (1.0 + x) + (dma / (1.0 + x)).max(training).max((host - x * device) / (1.0 + x));
    // The ends are the pure routes; the last is what x tends to.
    let mut crossings = vec![0.0, (host - dma) / device, dma / training - 1.0, (host - training) / (device + training)];
    crossings.retain(|x| x.is_finite() && *x >= 0.0);
    let best = crossings.into_iter().min_by(|a, b| time(*a).total_cmp(&time(*b))).unwrap_or(0.0);
    if device + training < time(best) { f64::INFINITY } else { best }
}

/// Plans a pair of routes as MorphGL does, without its errata (`docs/design.md` §12); `None` unless one is batched by the host and
/// the other by the device, and the plan fits in memory.
pub(crate) fn plan(problem: &Problem, a: usize, b: usize) -> Option<(Schedule, Simulation)> {
    let by_device = |r: usize| problem.routes[r].is_batched_by_device(problem);
    let (host, device) = match (by_device(a), by_device(b)) {
        (false, true) => (a, b),
        (true, false) => (b, a),
        _ => return None,
    };
    let candidate = &problem.routes[host];
    if candidate.in_place || candidate.batches_apart(problem) || problem.on_cores(&candidate.hardware.training) {
        return None;
    }
    let n = problem.num_batches;
    let pool = fastest_pool(problem, host);
    let host = |batches: usize| share(problem, Policy::DualBuffer, host, batches, pool, 0);
    let device = |batches: usize| share(problem, Policy::DualBuffer, device, batches, (1, 1), 0);
    let fit = |schedule: Schedule| memory::fit(problem, schedule).map(simulated);
    let (h, d) = (host(n), device(n));
    let host_seconds = h.batching.mean / pool.0 as f64;
    let device_seconds = d.batching.mean + d.transferring.mean;
    // Where training binds, a naive pipeline is the plan (§IV-B3, extreme cases).
    if h.training.mean >= host_seconds && h.training.mean >= h.transferring.mean {
        return fit(schedule(problem, Policy::Pipeline, vec![h], 0));
    }
    let x = equation6(host_seconds, device_seconds, h.transferring.mean, h.training.mean);
    let gbs = problem.limits.ready.max(1);
    // Mini-batches in workers count too.
    let batched = problem.limits.batched.max(pool.0);
    let max_cbs = (batched - pool.0).max(1);
    let run = |cbs: usize| {
        // The buffers' ratio is the routes' ratio: every overlap empties both.
        let by_host = ((n as f64 * cbs as f64 / (cbs + gbs) as f64).round() as usize).clamp(1, n - 1);
        let shares = vec![host(by_host), device(n - by_host)];
        let schedule = schedule(problem, Policy::DualBuffer, shares, 0);
        fit(Schedule { batched: (cbs + pool.0).min(batched), ready: gbs, ..schedule })
    };
    // Erratum 1: cbs = gbs · host : device.
    let ideal = if x > 0.0 { gbs as f64 / x } else { f64::INFINITY };
    let mut cbs = (ideal.round() as usize).clamp(1, max_cbs);
    let mut best = run(cbs)?;
    // Feedback, one mini-batch of the buffer at a time, in whichever direction makes the epoch shorter.
    for _ in 0..ROUNDS {
        let neighbours = [cbs.saturating_sub(1).max(1), (cbs + 1).min(max_cbs)];
        let tried = neighbours.into_iter().filter(|&c| c != cbs).filter_map(|c| Some((c, run(c)?)));
        match tried.min_by(|a, b| a.1.1.seconds.total_cmp(&b.1.1.seconds)) {
            Some(better) if better.1.1.seconds < best.1.seconds => (cbs, best) = better,
            _ => break,
        }
    }
    Some(best)
}

#[cfg(test)]
mod tests;
