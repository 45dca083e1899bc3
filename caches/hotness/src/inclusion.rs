//! The probability that a node is in a mini-batch, propagated outward from the seeds.

use morphgl_registry::{Error, Expansion, Result, SamplerSettings, Sampling};
use rayon::prelude::*;

use crate::policy::check_seeds;
use crate::scatter::scatter;
use crate::{Graph, Hotness, Policy};

/// Expected accesses by the inclusion probability of each node.
///
/// A seed is one of a mini-batch with probability `batch size / seeds`. A hop that expands node `v` of in-degree `d` with
/// fanout `k` picks each in-neighbour with probability `min(k, d) / d`; picks of different nodes are assumed to be
/// independent. So the probability that a hop misses `u` is the product of `1 - p(v) · min(k, d) / d` over the nodes `v` that
/// `u` leads to. ShaDow reads the row of every node once more.
///
/// # Errors
///
/// No seeds, a seed that does not exist, or random walks, which have no fanouts.
///
/// # Complexity
///
/// One scan of the edges per hop; 12 bytes per node, 16 with expansion `New`. A large graph in memory is scanned by all
/// threads of the current rayon pool, with the same bits as a result.
#[derive(Debug, Clone, Copy, Default)]
pub struct Inclusion;

impl Policy for Inclusion {
    fn score(&self, graph: &dyn Graph, seeds: &[u32], settings: &SamplerSettings) -> Result<Hotness> {
        let num_nodes = graph.num_nodes();
        check_seeds(seeds, num_nodes)?;
        let hops = settings.sampling.hops().ok_or_else(|| {
            let what = format!("sampling by {} has no fanouts; estimate it by pre-sampling", settings.sampling.kind());
            Error::setting("inclusion probability", what)
        })?;
        let batches = seeds.len().div_ceil(settings.batch_size.max(1)) as f32;
        let mut included = vec![0f32; num_nodes];
        let seed = (settings.batch_size as f32 / seeds.len() as f32).min(1.0);
        // A seed that repeats is in more mini-batches; its occurrences are assumed to be independent.
        seeds.iter().for_each(|&v| included[v as usize] += (1.0 - included[v as usize]) * seed);
        let mut rows = vec![0f32; num_nodes];
        let mut missed = vec![0f32; num_nodes];
        // With expansion `New`, nodes of the previous hop are not expanded again.
        let mut previous = (hops.expansion == Expansion::New).then(|| vec![0f32; num_nodes]);
        for &fanout in &hops.fanouts.0 {
            let expanded = |v: usize| included[v] - previous.as_ref().map_or(0.0, |b| b[v]);
            rows.par_iter_mut().enumerate().for_each(|(v, row)| *row += batches * expanded(v));
            missed.fill(0.0);
            // Sums of logarithms of the probabilities that a hop misses the node, negated.
            scatter(graph, &mut missed, |v, degree| {
                let p = expanded(v as usize);
                if p > 0.0 { -(-p * (fanout.take(degree) as f32 / degree as f32)).ln_1p() } else { 0.0 }
            })?;
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
