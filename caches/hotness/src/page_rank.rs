//! Reverse PageRank, plain and weighted by the seeds.

use morphgl_registry::{Error, Result, SamplerSettings};

use crate::policy::check_seeds;
use crate::scatter::scatter;
use crate::{Graph, Hotness, Policy};

/// Reverse PageRank (Min et al., "Graph neural network training with data tiering", KDD'22, §3.1): a node is hot if it leads
/// to hot nodes with few in-neighbours.
///
/// `score(u) = (1 - d) / n + d · Σ score(v) / in-degree(v)` over the out-neighbours `v` of `u`, repeated from `score = 1 / n`
/// until it converges. Parallel edges count as often as they occur. A node of in-degree 0 passes its score to nobody: the paper
/// divides by its in-degree, and leaves open what that means. Scores therefore sum to less than 1 where there are such nodes,
/// and need not be normalised: only their order matters.
///
/// Seeds and sampler settings are ignored.
///
/// # Errors
///
/// A damping factor outside of 0 to 1, no iteration, or a tolerance that is no positive number.
///
/// # Complexity
///
/// A scan of the edges for each iteration, about `ln(tolerance / 2) / ln(damping)` at most: 47 by default; 16 bytes per
/// node. A large graph in memory is scanned by all threads of the current rayon pool, with the same bits as a result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReversePageRank {
    /// Share of a score that is passed on, 0 to 1. Default 0.85.
    pub damping: f64,
    /// Maximum number of iterations. Default 100.
    pub iterations: u32,
    /// Sum of the changes of all scores below which they have converged; scores sum to 1 at most. Default 0.001.
    pub tolerance: f64,
}

impl Default for ReversePageRank {
    fn default() -> Self {
        Self { damping: 0.85, iterations: 100, tolerance: 1e-3 }
    }
}

impl Policy for ReversePageRank {
    fn score(&self, graph: &dyn Graph, _: &[u32], _: &SamplerSettings) -> Result<Hotness> {
        let Self { damping, iterations, tolerance } = *self;
        if tolerance.is_nan() || tolerance <= 0.0 {
            let what = format!("tolerance {tolerance}; give a positive number, such as 0.001");
            return Err(Error::setting("reverse PageRank", what));
        }
        let start = vec![1.0 / graph.num_nodes() as f64; graph.num_nodes()];
        page_rank(graph, start, damping, iterations, tolerance)
    }
}

/// Weighted reverse PageRank (Min et al., "Graph neural network training with data tiering", KDD'22, §3.1, Algorithm 1): a few
/// iterations of [`ReversePageRank`] from scores that are higher at the seeds by `weight = nodes / seeds`.
///
/// Few iterations keep the effect of the start. As there, a node of in-degree 0 passes its score to nobody, where Algorithm 1
/// divides by 0. The weight is of the seeds: weights of edges are ignored, and so are the sampler settings.
///
/// # Errors
///
/// No seeds, a seed that does not exist, a damping factor outside of 0 to 1, or no iteration.
///
/// # Complexity
///
/// A scan of the edges for each iteration; 16 bytes per node. A large graph in memory is scanned by all threads of the
/// current rayon pool, with the same bits as a result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WeightedReversePageRank {
    /// Share of a score that is passed on, 0 to 1. Default 0.85.
    pub damping: f64,
    /// Number of iterations. Default 5, as in the paper.
    pub iterations: u32,
}

impl Default for WeightedReversePageRank {
    fn default() -> Self {
        Self { damping: 0.85, iterations: 5 }
    }
}

impl Policy for WeightedReversePageRank {
    fn score(&self, graph: &dyn Graph, seeds: &[u32], _: &SamplerSettings) -> Result<Hotness> {
        let num_nodes = graph.num_nodes();
        check_seeds(seeds, num_nodes)?;
        let mut start = vec![1.0 / num_nodes as f64; num_nodes];
        // 1 / nodes, times the weight of nodes / seeds.
        seeds.iter().for_each(|&v| start[v as usize] = 0.0);
        seeds.iter().for_each(|&v| start[v as usize] += 1.0 / seeds.len() as f64);
        page_rank(graph, start, self.damping, self.iterations, 0.0)
    }
}

/// Iterates from `scores`, until the sum of changes is below `tolerance`.
fn page_rank(
    graph: &dyn Graph,
    mut scores: Vec<f64>,
    damping: f64,
    iterations: u32,
    tolerance: f64,
) -> Result<Hotness> {
    if !(0.0..=1.0).contains(&damping) {
        let what = format!("damping factor {damping}; give a number from 0 to 1, such as 0.85");
        return Err(Error::setting("reverse PageRank", what));
    }
    if iterations == 0 {
        return Err(Error::setting("reverse PageRank", "0 iterations leave every score as it is; give at least 1"));
    }
    let teleport = (1.0 - damping) / scores.len() as f64;
    let mut sums = vec![0f64; scores.len()];
    for _ in 0..iterations {
        sums.fill(0.0);
        // Terms are rounded to f32, sums are not: scores are exact to `damping / (1 - damping) · 2^-24`, relative.
        scatter(graph, &mut sums, |v, degree| (scores[v as usize] / degree as f64) as f32)?;
        let mut change = 0.0;
        for (score, &sum) in scores.iter_mut().zip(&sums) {
            let next = teleport + damping * sum;
            change += (next - *score).abs();
            *score = next;
        }
        if change < tolerance {
            break;
        }
    }
    drop(sums);
    Ok(Hotness::of_both(scores.into_iter().map(|score| score as f32).collect()))
}
