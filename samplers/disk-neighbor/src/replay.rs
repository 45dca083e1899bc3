//! Reads that a mini-batch would do beside given caches, carried out and timed.
//!
//! Slopes are measured on scattered reads. Where mini-batches access a file so densely that reads of neighbours merge, a hit
//! saves less than that, and most by long lists; only the reads themselves tell.

use std::time::Instant;

use morphgl_dual_cache::CacheShare;
use morphgl_hotness::Hotness;
use morphgl_platform::direct::{Fetch, Reader};
use morphgl_platform::{SPLITMIX_STEP, splitmix64};
use morphgl_registry::{Result, SamplerSettings};

use crate::files::Files;
use crate::graph::DiskGraph;
use crate::typed::HopFanouts;

/// Accesses that are replayed: a part of a mini-batch, at its density.
const ACCESSES: f64 = 16_384.0;
/// Ranges of nodes that are replayed, spread over all.
const RANGES: u64 = 64;

/// What mini-batches access, by expected accesses in an epoch.
pub(crate) struct Replay<'a> {
    pub(crate) graph: &'a DiskGraph<'a>,
    pub(crate) files: &'a Files,
    pub(crate) hotness: &'a Hotness,
    pub(crate) settings: &'a SamplerSettings,
    pub(crate) fanouts: HopFanouts<'a>,
    /// Mini-batches of an epoch.
    batches: f64,
    /// Fraction of the nodes that is replayed.
    part: f64,
}

impl<'a> Replay<'a> {
    /// Mini-batches of an epoch of `num_seeds` seeds.
    pub(crate) fn new(
        graph: &'a DiskGraph<'a>,
        files: &'a Files,
        hotness: &'a Hotness,
        (num_seeds, settings, fanouts): (usize, &'a SamplerSettings, HopFanouts<'a>),
    ) -> Self {
        let batches = num_seeds.div_ceil(settings.batch_size.max(1)).max(1) as f64;
        let all: f64 = hotness.features.iter().chain(&*hotness.rows).map(|&accesses| f64::from(accesses)).sum();
        Self { graph, files, hotness, settings, fanouts, batches, part: (ACCESSES * batches / all).min(1.0) }
    }

    /// Seconds of the reads of a part of a mini-batch whose hits in the caches of `shares` are not read. The accesses are the
    /// same for any caches.
    ///
    /// # Errors
    ///
    /// The disk fails.
    pub(crate) fn seconds(&self, [rows, lists]: [Option<&CacheShare>; 2], reader: &mut Reader) -> Result<f64> {
        let cached = |share: Option<&CacheShare>, node| share.is_some_and(|share| share.map.get(node).is_some());
        let mut seconds = 0.0;
        for matrix in &self.files.features {
            let missed = self.accessed(0, &self.hotness.features, 1.0).filter(|node| matrix.nodes.contains(node));
            let missed = missed.filter(|&node| !cached(rows, node));
            let fetches: Vec<Fetch> = missed.zip(0..).map(|(node, to)| matrix.fetch(node, to)).collect();
            let mut out = vec![0; fetches.len() * matrix.rows.unit];
            let start = Instant::now();
            matrix.rows.read(reader, &fetches, &mut out)?;
            seconds += start.elapsed().as_secs_f64();
        }
        let num_hops = self.fanouts.hops.fanouts.0.len();
        for hop in 0..num_hops {
            let (stream, share) = (hop as u64 + 1, 1.0 / num_hops as f64);
            let mut picked = Vec::new();
            for node in self.accessed(stream, &self.hotness.rows, share).filter(|&node| !cached(lists, node)) {
                let mut draws = stream..;
                let draw = |limit| below(hash(draws.next().expect("endless"), node), limit);
                self.fanouts.pick(self.graph, (node, hop), draw, &mut picked);
            }
            let mut fetches: Vec<Fetch> =
                picked.into_iter().zip(0..).map(|(element, to)| Fetch { element, to }).collect();
            let mut out = vec![0; fetches.len() * self.files.indices.unit];
            let start = Instant::now();
            fetches.sort_unstable();
            self.files.indices.read(reader, &fetches, &mut out)?;
            seconds += start.elapsed().as_secs_f64();
        }
        Ok(seconds)
    }

    /// Nodes of the ranges that a mini-batch accesses, ascending: each with a `share` of its accesses as probability.
    fn accessed<'s>(&'s self, stream: u64, accesses: &'s [f32], share: f64) -> impl Iterator<Item = u32> + 's {
        let num_nodes = u64::from(self.graph.num_nodes);
        let (scale, part) = (share / self.batches, self.part);
        let nodes = (0..RANGES).flat_map(move |range| {
            let [start, next] = [range, range + 1].map(|r| r * num_nodes / RANGES);
            start..start + ((next - start) as f64 * part).ceil() as u64
        });
        let unit = move |node| (hash(stream << 32, node) >> 11) as f64 / (1u64 << 53) as f64;
        nodes.map(|node| node as u32).filter(move |&node| unit(node) < f64::from(accesses[node as usize]) * scale)
    }
}

fn hash(stream: u64, node: u32) -> u64 {
    splitmix64(splitmix64(stream).wrapping_add(SPLITMIX_STEP.wrapping_mul(u64::from(node) + 1)))
}

fn below(draw: u64, limit: u64) -> u64 {
    ((u128::from(draw) * u128::from(limit)) >> 64) as u64
}
