//! The probability that a node is in a mini-batch, propagated outward from the seeds.

use morphgl_registry::{Error, Expansion, Fanout, NeighborSettings, Result, SamplerSettings, Sampling};
use morphgl_sampler_core::{TYPED, TypeFanout, TypedSettings};
use rayon::prelude::*;

use crate::policy::check_seeds;
use crate::scatter::{scatter, scatter_by_type};
use crate::{Graph, Hotness, Policy};

/// Expected accesses by the inclusion probability of each node.
///
/// A seed is one of a mini-batch with probability `batch size / seeds`. A hop that expands node `v` of in-degree `d` with
/// fanout `k` picks each in-neighbour with probability `min(k, d) / d`; picks of different nodes are assumed to be
/// independent. So the probability that a hop misses `u` is the product of `1 - p(v) · min(k, d) / d` over the nodes `v` that
/// `u` leads to. ShaDow reads the row of every node once more.
///
/// Sampled by edge type, each sub-row has the fanout of its type. Of disjoint trees each seed is a mini-batch of its own: a node is
/// accessed once per tree. Times are not read: scores are those of a graph in which no edge is later than a seed.
///
/// # Errors
///
/// No seeds, a seed that does not exist, or a kind of sampling without known hops, such as random walks.
///
/// # Complexity
///
/// One scan of the edges per hop; 12 bytes per node, 16 with expansion `New`. A large graph in memory is scanned by all
/// threads of the current rayon pool, with the same bits as a result.
#[derive(Debug, Clone, Copy, Default)]
pub struct Inclusion;

/// The hops of a sampler.
struct Hops {
    settings: NeighborSettings,
    /// `by_type[hop][edge_type]`; empty where rows are not divided.
    by_type: Vec<Vec<TypeFanout>>,
    batch_size: usize,
}

impl Hops {
    fn of(graph: &dyn Graph, settings: &SamplerSettings) -> Result<Self> {
        let SamplerSettings { sampling, batch_size, .. } = settings;
        if let Some(hops) = sampling.hops() {
            return Ok(Self { settings: hops.clone(), by_type: Vec::new(), batch_size: *batch_size });
        }
        if sampling.kind() != TYPED.name {
            let what = format!("sampling by {} has no fanouts; estimate it by pre-sampling", sampling.kind());
            return Err(Error::setting("inclusion probability", what));
        }
        let TypedSettings { hops, fanouts, trees, .. } = TypedSettings::of_graph(settings, graph.types(), true, 0)?;
        Ok(Self { settings: hops, by_type: fanouts, batch_size: if trees.is_some() { 1 } else { *batch_size } })
    }
}

/// How hops expand, of a kind of sampling whose inclusion probabilities are known.
pub(crate) fn expansion(sampling: &Sampling) -> Option<Expansion> {
    match sampling {
        Sampling::Custom(custom) if custom.kind == TYPED.name => custom.hops.as_ref().map(|hops| hops.expansion),
        _ => sampling.hops().map(|hops| hops.expansion),
    }
}

impl Policy for Inclusion {
    fn score(&self, graph: &dyn Graph, seeds: &[u32], settings: &SamplerSettings) -> Result<Hotness> {
        let num_nodes = graph.num_nodes();
        check_seeds(seeds, num_nodes)?;
        let Hops { settings: hops, by_type, batch_size } = Hops::of(graph, settings)?;
        let batches = seeds.len().div_ceil(batch_size.max(1)) as f32;
        let mut included = vec![0f32; num_nodes];
        let seed = (batch_size as f32 / seeds.len() as f32).min(1.0);
        // A seed that repeats is in more mini-batches; its occurrences are assumed to be independent.
        seeds.iter().for_each(|&v| included[v as usize] += (1.0 - included[v as usize]) * seed);
        let mut rows = vec![0f32; num_nodes];
        let mut missed = vec![0f32; num_nodes];
        // With expansion `New`, nodes of the previous hop are not expanded again.
        let mut previous = (hops.expansion == Expansion::New).then(|| vec![0f32; num_nodes]);
        for (hop, &fanout) in hops.fanouts.0.iter().enumerate() {
            let expanded = |v: usize| included[v] - previous.as_ref().map_or(0.0, |b| b[v]);
            rows.par_iter_mut().enumerate().for_each(|(v, row)| *row += batches * expanded(v));
            missed.fill(0.0);
            // Sums of logarithms of the probabilities that a hop misses the node, negated.
            let log = |v: u32, fanout: Fanout, degree: u64| {
                let p = expanded(v as usize);
                if p > 0.0 { -(-p * (fanout.take(degree) as f32 / degree as f32)).ln_1p() } else { 0.0 }
            };
            match by_type.get(hop) {
                None => scatter(graph, &mut missed, |v, degree| log(v, fanout, degree))?,
                Some(fanouts) => scatter_by_type(graph, &mut missed, |v, edge_type, degree| {
                    fanouts[usize::from(edge_type)].map_or(0.0, |fanout| log(v, fanout, degree))
                })?,
            }
            if let Some(previous) = &mut previous {
                previous.copy_from_slice(&included);
            }
            included.par_iter_mut().zip(&missed).for_each(|(p, &log)| {
                // 1 - (1 - p) · exp(-log), accurate for small values. Most nodes are far from few seeds.
                if log > 0.0 {
                    *p += (1.0 - *p) * -(-log).exp_m1();
                }
            });
        }
        drop(missed);
        if matches!(settings.sampling, Sampling::Shadow(_)) {
            // The rows of all nodes found are read once more, for the edges among them.
            rows.iter_mut().zip(&included).for_each(|(row, p)| *row += batches * p);
        }
        included.iter_mut().for_each(|p| *p *= batches);
        Ok(Hotness { features: included.into(), rows: rows.into() })
    }
}
