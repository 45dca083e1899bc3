//! The probability that a node is in a mini-batch, propagated outward from the seeds.

use morphgl_registry::{Error, Expansion, Result, SamplerKind, SamplerSettings};

use crate::{Graph, Hotness, Policy};

/// Expected accesses by the inclusion probability of each node.
///
/// A node is a seed of a mini-batch with probability `batch size / seeds`. A hop that expands node `v` of in-degree `d` with
/// fanout `k` picks each in-neighbour with probability `min(k, d) / d`; picks of different nodes are assumed to be
/// independent. So the probability that a hop misses `u` is the product of `1 - p(v) · min(k, d) / d` over the nodes `v` that
/// `u` leads to. ShaDow reads the row of every node once more.
///
/// # Errors
///
/// Random walks, which have no fanouts.
///
/// # Complexity
///
/// One pass over the edges a hop; 12 bytes a node, 16 with expansion `New`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Inclusion;

impl Policy for Inclusion {
    fn score(&self, graph: &dyn Graph, seeds: &[u32], settings: &SamplerSettings) -> Result<Hotness> {
        let num_nodes = graph.num_nodes();
        let hops = settings.sampling.hops().ok_or_else(|| {
            let what = format!("sampling by {} has no fanouts; estimate it by pre-sampling", settings.sampling.kind());
            Error::setting("inclusion probability", what)
        })?;
        let batches = seeds.len().div_ceil(settings.batch_size.max(1)) as f32;
        let mut included = vec![0f32; num_nodes];
        let seed = (settings.batch_size as f32 / seeds.len() as f32).min(1.0);
        seeds.iter().for_each(|&v| included[v as usize] = seed);
        let mut rows = vec![0f32; num_nodes];
        let mut missed = vec![0f32; num_nodes];
        // With expansion `New`, nodes of the previous hop are not expanded again.
        let mut previous = (hops.expansion == Expansion::New).then(|| vec![0f32; num_nodes]);
        for &fanout in &hops.fanouts.0 {
            let expanded = |v: usize, included: &[f32]| included[v] - previous.as_ref().map_or(0.0, |b| b[v]);
            rows.iter_mut().enumerate().for_each(|(v, row)| *row += batches * expanded(v, &included));
            missed.fill(0.0);
            // A row may come in several calls: its logarithm is computed once.
            let (mut last, mut log) = (u32::MAX, 0f32);
            let mut failed = Ok(());
            graph.scan(&mut |v, neighbors| {
                let p = expanded(v as usize, &included);
                if p <= 0.0 || failed.is_err() {
                    return;
                }
                if v != last {
                    match graph.degree(v) {
                        Ok(degree) => log = -(-p * (fanout.take(degree) as f32 / degree as f32)).ln_1p(),
                        Err(e) => failed = Err(e),
                    }
                    last = v;
                }
                neighbors.iter().for_each(|&u| missed[u as usize] += log);
            })?;
            failed?;
            if let Some(previous) = &mut previous {
                previous.copy_from_slice(&included);
            }
            for (p, &log) in included.iter_mut().zip(&missed) {
                // 1 - (1 - p) · exp(-log), accurate for small values.
                *p += (1.0 - *p) * -(-log).exp_m1();
            }
        }
        drop(missed);
        if settings.sampling.kind() == SamplerKind::Shadow {
            // The rows of all nodes found are read once more, for the edges among them.
            rows.iter_mut().zip(&included).for_each(|(row, p)| *row += batches * p);
        }
        included.iter_mut().for_each(|p| *p *= batches);
        Ok(Hotness { features: included.into(), rows: rows.into() })
    }
}
