//! Seconds that a cache hit saves, measured on the dataset's own files by the operator's own reader.
//!
//! What a hit costs is neglected: some cache misses, a tenth of a microsecond, where a read takes several with as many of
//! them in flight as the disk serves.

use std::io;
use std::time::{Duration, Instant};

use morphgl_dual_cache::{Curve, Slopes};
use morphgl_platform::direct::{Fetch, Reader};
use morphgl_platform::{SPLITMIX_STEP, splitmix64};
use morphgl_registry::{Error, Fanout, NeighborSettings, Result};

use crate::files::{Files, OnDisk};
use crate::graph::DiskGraph;

/// Rows or lists that are read at a time.
const READS: usize = 128;
/// Times that each is measured, with other nodes. The least counts, since other programs only add time.
const ROUNDS: usize = 8;
/// Time after which no further round begins: of a slow disk one round tells enough.
const ENOUGH: Duration = Duration::from_millis(300);
/// Least number of lists of similar length that are measured apart: fewer do not keep the disk busy.
const LISTS: usize = 64;
/// Maximum neighbours that are read at a time.
const NEIGHBORS: u64 = 1 << 18;

/// Measures a read of feature rows, and of the picks of adjacency lists of each length: the fanouts of all hops in turn.
///
/// # Errors
///
/// The disk fails, or the clock stands still.
pub(crate) fn measure(
    graph: &DiskGraph<'_>,
    files: &Files,
    (hops, seed): (&NeighborSettings, u64),
    reader: &mut Reader,
) -> Result<Slopes> {
    let (mut draws, fanouts) = (Draws(seed), &hops.fanouts.0);
    let (rows, lists) = samples(graph, &mut draws);
    let features = files.features.as_ref().filter(|_| !rows.nodes.is_empty());
    let mut row = f64::INFINITY;
    let mut times = vec![f64::INFINITY; lists.len()];
    let mut buffer = Vec::new();
    let start = Instant::now();
    for round in 0..ROUNDS {
        if let Some(features) = features {
            let mut fetches = row_fetches(rows.of_round(round));
            row = row.min(timed(features, reader, &mut fetches, rows.of_round(round).count(), &mut buffer)?);
        }
        for (lists, time) in lists.iter().zip(&mut times) {
            let (mut fetches, read) = list_fetches(graph, lists.of_round(round), fanouts, &mut draws);
            *time = time.min(timed(&files.indices, reader, &mut fetches, read, &mut buffer)?);
        }
        if start.elapsed() > ENOUGH {
            break;
        }
    }
    let degree = |&node: &u32| f64::from(graph.row(node).degree);
    let mean = |nodes: &[u32]| nodes.iter().map(degree).sum::<f64>() / nodes.len() as f64;
    let list = Curve::new(lists.iter().map(|s| mean(&s.nodes)).zip(times));
    // Without features nothing was read, and nothing is saved.
    Ok(Slopes { row: if row.is_finite() { row } else { 0.0 }, list })
}

/// A stream of random numbers.
struct Draws(u64);

impl Draws {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(SPLITMIX_STEP);
        ((u128::from(splitmix64(self.0)) * u128::from(limit)) >> 64) as u64
    }
}

/// Nodes drawn from all that were offered, each with the same probability.
#[derive(Default)]
struct Sample {
    nodes: Vec<u32>,
    offered: u64,
}

impl Sample {
    fn offer(&mut self, node: u32, draws: &mut Draws) {
        self.offered += 1;
        if self.nodes.len() < ROUNDS * READS {
            self.nodes.push(node);
        } else if let Some(place) = self.nodes.get_mut(draws.below(self.offered) as usize) {
            *place = node;
        }
    }

    /// The nodes of a round: others in each, where there are enough.
    fn of_round(&self, round: usize) -> impl Iterator<Item = u32> + '_ {
        let rounds = (self.nodes.len() / READS).max(1);
        self.nodes.iter().skip(round % rounds).step_by(rounds).take(READS).copied()
    }
}

/// Nodes whose features are read, and nodes whose lists are, by length: a sample for each power of four.
fn samples(graph: &DiskGraph<'_>, draws: &mut Draws) -> (Sample, Vec<Sample>) {
    let mut all = Sample::default();
    let mut by_length: [Sample; 16] = Default::default();
    for node in 0..graph.num_nodes {
        all.offer(node, draws);
        if let Some(power) = graph.row(node).degree.checked_ilog2() {
            by_length[power as usize / 2].offer(node, draws);
        }
    }
    // The few longest lists are measured with those next to them in length.
    let mut lists: Vec<Sample> = Vec::new();
    let mut few = Vec::new();
    for mut sample in by_length.into_iter().rev() {
        sample.nodes.append(&mut few);
        match sample.nodes.len() < LISTS {
            true => few = sample.nodes,
            false => lists.push(sample),
        }
    }
    match lists.last_mut() {
        Some(shortest) => shortest.nodes.append(&mut few),
        None if !few.is_empty() => lists.push(Sample { nodes: few, offered: 0 }),
        None => {}
    }
    (all, lists)
}

fn row_fetches(nodes: impl Iterator<Item = u32>) -> Vec<Fetch> {
    nodes.zip(0..).map(|(node, to)| Fetch { element: node.into(), to }).collect()
}

/// The neighbours that hops pick of the lists of `nodes`, and the number of these lists.
fn list_fetches(
    graph: &DiskGraph<'_>,
    nodes: impl Iterator<Item = u32>,
    fanouts: &[Fanout],
    draws: &mut Draws,
) -> (Vec<Fetch>, usize) {
    let (mut fetches, mut read) = (Vec::new(), 0);
    for (node, fanout) in nodes.zip(fanouts.iter().cycle()) {
        let row = graph.row(node);
        let degree = u64::from(row.degree);
        let picks = fanout.take(degree);
        if read > 0 && fetches.len() as u64 + picks > NEIGHBORS {
            break;
        }
        let picked = (0..picks).map(|i| row.start + if picks == degree { i } else { draws.below(degree) });
        fetches.extend(picked.zip(fetches.len() as u32..).map(|(element, to)| Fetch { element, to }));
        read += 1;
    }
    (fetches, read)
}

/// Seconds that each of `count` rows or lists takes, read as a mini-batch reads them.
fn timed(
    array: &OnDisk,
    reader: &mut Reader,
    fetches: &mut [Fetch],
    count: usize,
    buffer: &mut Vec<u8>,
) -> Result<f64> {
    buffer.resize(fetches.len() * array.unit, 0);
    let start = Instant::now();
    fetches.sort_unstable();
    array.read(reader, fetches, buffer)?;
    let seconds = start.elapsed().as_secs_f64();
    if seconds > 0.0 && count > 0 {
        return Ok(seconds / count as f64);
    }
    let what = format!("{count} reads took {seconds} s; repair the system's clock, or cache nothing (cache=none)");
    Err(Error::failed("measuring reads of the dataset", io::Error::other(what)))
}
