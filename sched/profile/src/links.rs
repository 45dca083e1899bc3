//! Links that several devices share, found by copies at once.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use morphgl_registry::{BatchId, Batching, HostBatch, MiniBatch, Place, RouteOperators};

use crate::budget::check_stop;
use crate::problem::link_of;
use crate::profile::{LinkProfile, LinkShare};
use crate::{Error, Result};

/// How long copies at once are measured.
const WINDOW: Duration = Duration::from_millis(20);
/// Minimum number of copies by each device.
const COPIES: usize = 3;
/// Measurements of which the fastest counts.
const ROUNDS: usize = 2;
/// Ratio by which copies are slowed down by others from which the devices share a link.
const SLOWED: f64 = 1.15;

/// Measures which devices share links: each copies mini-batches of the host alone, then every two of them at once, then all that slow
/// each other down, and all. Devices without a route that copies from the host are left out.
///
/// # Errors
///
/// A failing operator, or a stop.
///
/// # Complexity
///
/// At most d² / 2 + 3d measurements of 40 ms for d devices.
pub fn links(routes: &mut [RouteOperators], stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<LinkProfile>> {
    let mut copiers: Vec<Copier<'_>> = Vec::new();
    for operators in routes {
        let route = &operators.route;
        let is_known = copiers.iter().any(|c| c.place == route.trained_at);
        let Some(resource) = link_of(route).filter(|_| !is_known && route.batched_at == Place::Host) else { continue };
        let batch = first_batch(operators)?;
        copiers.push(Copier { place: route.trained_at.clone(), resource, batch, operators });
    }
    if copiers.len() < 2 {
        return Ok(Vec::new());
    }
    let found = find(copiers.len(), |members| {
        check_stop(stop)?;
        let mut best = vec![0.0_f64; members.len()];
        for _ in 0..ROUNDS {
            let rates = at_once(&mut copiers, members)?;
            best.iter_mut().zip(rates).for_each(|(best, rate)| *best = best.max(rate));
        }
        Ok(best)
    })?;
    let link = |(number, fractions): (usize, Vec<(usize, f64)>)| {
        let share = |&(device, fraction): &(usize, f64)| LinkShare {
            place: copiers[device].place.clone(),
            resource: copiers[device].resource.clone(),
            fraction,
        };
        LinkProfile { name: format!("link {number}"), users: fractions.iter().map(share).collect() }
    };
    Ok(found.into_iter().enumerate().map(link).collect())
}

/// A device with a mini-batch that is copied to it.
struct Copier<'a> {
    place: Place,
    resource: String,
    batch: HostBatch,
    operators: &'a mut RouteOperators,
}

impl Copier<'_> {
    /// Mini-batches per second, copied until `WINDOW` has passed.
    fn rate(&mut self) -> Result<f64> {
        let RouteOperators { route, transferring, .. } = &mut *self.operators;
        let (mut copies, mut seconds) = (0, 0.0);
        let begun = Instant::now();
        while copies < COPIES || begun.elapsed() < WINDOW {
            let batch = MiniBatch::Host(self.batch.clone());
            let start = Instant::now();
            Error::catch(&route.transferring, || transferring.transfer(batch)?.wait())?;
            seconds += start.elapsed().as_secs_f64();
            copies += 1;
        }
        Ok(copies as f64 / seconds.max(f64::MIN_POSITIVE))
    }
}

fn first_batch(operators: &RouteOperators) -> Result<HostBatch> {
    let RouteOperators { route, batching, .. } = operators;
    let prepare = || Batching::worker(batching.as_ref(), 1)?.prepare(BatchId { epoch: 0, index: 0 }, None)?.wait();
    match Error::catch(&route.batching, prepare)?.0 {
        MiniBatch::Host(batch) => Ok(batch),
        MiniBatch::Device(batch) => Error::catch(&route.batching, || batch.to_host()),
    }
}

/// Copies by these devices at once; mini-batches per second of each.
fn at_once(copiers: &mut [Copier<'_>], members: &[usize]) -> Result<Vec<f64>> {
    let barrier = Barrier::new(members.len());
    let copies = |copier: &mut Copier<'_>| {
        barrier.wait();
        copier.rate()
    };
    let copies = &copies;
    thread::scope(|scope| {
        let chosen = copiers.iter_mut().enumerate().filter(|(i, _)| members.contains(i));
        let running: Vec<_> = chosen.map(|(_, copier)| scope.spawn(move || copies(copier))).collect();
        running.into_iter().map(|thread| thread.join().expect("operators' panics are caught")).collect()
    })
}

/// The links of `count` devices by the rates of some of them at once, in ascending order: for each the devices with the fraction of
/// its bandwidth that each takes alone.
fn find(count: usize, mut rates: impl FnMut(&[usize]) -> Result<Vec<f64>>) -> Result<Vec<Vec<(usize, f64)>>> {
    let mut alone = Vec::new();
    for device in 0..count {
        alone.push(rates(&[device])?[0]);
    }
    let slowdown = |before: &[f64], after: &[f64]| {
        let ratios = before.iter().zip(after).map(|(before, after)| (before / after).ln());
        (ratios.sum::<f64>() / after.len() as f64).exp()
    };
    // Devices that slow each other down, directly or through others, are behind one link.
    let mut first: Vec<usize> = (0..count).collect();
    for a in 0..count {
        for b in a + 1..count {
            let both = rates(&[a, b])?;
            if slowdown(&[alone[a], alone[b]], &both) >= SLOWED {
                let (kept, merged) = (first[a].min(first[b]), first[a].max(first[b]));
                first.iter_mut().filter(|f| **f == merged).for_each(|f| *f = kept);
            }
        }
    }
    let mut links = Vec::new();
    let mut expected = alone.clone();
    let link = |members: &[usize], at_once: &[f64]| -> Vec<(usize, f64)> {
        let all: f64 = at_once.iter().sum();
        members.iter().map(|&device| (device, (alone[device] / all).min(1.0))).collect()
    };
    for leader in (0..count).filter(|&device| first[device] == device) {
        let members: Vec<usize> = (0..count).filter(|&device| first[device] == leader).collect();
        if members.len() > 1 {
            let at_once = rates(&members)?;
            members.iter().zip(&at_once).for_each(|(&device, rate)| expected[device] = *rate);
            links.push(link(&members, &at_once));
        }
    }
    // What all devices share besides: the host's memory.
    let all: Vec<usize> = (0..count).collect();
    if first.iter().any(|&leader| leader > 0) {
        let at_once = rates(&all)?;
        if slowdown(&expected, &at_once) >= SLOWED {
            links.push(link(&all, &at_once));
        }
    }
    Ok(links)
}

#[cfg(test)]
mod tests;
