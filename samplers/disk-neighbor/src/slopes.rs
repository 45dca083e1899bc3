//! Seconds that a cache hit saves, measured on the dataset's own files by the operator's own reader.
//!
//! What a hit costs is neglected: some cache misses, a tenth of a microsecond, where a read takes several with as many of
//! them in flight as the disk serves.

use std::io;
use std::time::{Duration, Instant};

use morphgl_dual_cache::{Curve, Slopes};
use morphgl_platform::direct::{Fetch, Reader};
use morphgl_platform::{SPLITMIX_STEP, splitmix64};
use morphgl_registry::{Error, Result};

use crate::files::{Files, OnDisk};
use crate::graph::DiskGraph;
use crate::typed::HopFanouts;

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
    (fanouts, seed): (HopFanouts<'_>, u64),
    reader: &mut Reader,
) -> Result<Slopes> {
    let mut draws = Draws(seed);
    let (rows, lists) = samples(graph, files, &mut draws);
    let mut of_rows = vec![f64::INFINITY; files.features.len()];
    let mut times = vec![f64::INFINITY; lists.len()];
    let mut buffer = Vec::new();
    let start = Instant::now();
    for round in 0..ROUNDS {
        for ((matrix, rows), time) in files.features.iter().zip(&rows).zip(&mut of_rows) {
            if !rows.nodes.is_empty() {
                let rows = rows.of_round(round).zip(0..);
                let mut fetches: Vec<Fetch> = rows.map(|(node, to)| matrix.fetch(node, to)).collect();
                let count = fetches.len();
                *time = time.min(timed(&matrix.rows, reader, &mut fetches, count, &mut buffer)?);
            }
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
    // Rows of the same length of two matrices are alike.
    let mut row: Vec<(f64, f64)> = files.features.iter().map(|matrix| matrix.rows.unit as f64).zip(of_rows).collect();
    row.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    row.dedup_by_key(|(bytes, _)| *bytes);
    Ok(Slopes { row: Curve::new(row), list })
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

/// Nodes whose features are read, of each matrix, and nodes whose lists are, by length: a sample for each power of four.
fn samples(graph: &DiskGraph<'_>, files: &Files, draws: &mut Draws) -> (Vec<Sample>, Vec<Sample>) {
    let mut of_rows: Vec<Sample> = files.features.iter().map(|_| Sample::default()).collect();
    let mut by_length: [Sample; 16] = Default::default();
    for node in 0..graph.num_nodes {
        let matrix = files.features.partition_point(|matrix| matrix.nodes.end <= node);
        if let Some(of_rows) = of_rows.get_mut(matrix).filter(|_| files.features[matrix].nodes.contains(&node)) {
            of_rows.offer(node, draws);
        }
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
    (of_rows, lists)
}

/// The neighbours that hops pick of the lists of `nodes`, and the number of these lists.
fn list_fetches(
    graph: &DiskGraph<'_>,
    nodes: impl Iterator<Item = u32>,
    fanouts: HopFanouts<'_>,
    draws: &mut Draws,
) -> (Vec<Fetch>, usize) {
    let (mut picked, mut read) = (Vec::new(), 0);
    for (node, hop) in nodes.zip((0..fanouts.hops.fanouts.0.len()).cycle()) {
        let before = picked.len();
        fanouts.pick(graph, (node, hop), |limit| draws.below(limit), &mut picked);
        if read > 0 && picked.len() as u64 > NEIGHBORS {
            picked.truncate(before);
            break;
        }
        read += 1;
    }
    (picked.into_iter().zip(0..).map(|(element, to)| Fetch { element, to }).collect(), read)
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
