//! Limits of sampler settings, checked once before the first mini-batch.

use morphgl_graph_store::Topology;
use morphgl_registry::{
    CustomSettings, Error, Fanout, NeighborSettings, Pick, Result, SamplerSettings, Sampling, SamplingSetting, SeedSet,
    ShadowSettings, WalkSettings,
};

use crate::kind::TYPED;
use crate::stream::HOP_BITS;
use crate::uniform::MAX_FANOUT;
use crate::weighted::MAX_WEIGHTED_DEGREE;

/// Maximum number of hops that a counter can number.
pub const MAX_HOPS: usize = 1 << HOP_BITS;

/// Maximum steps of all walks from a node at one hop: 64 blocks of retries for each step fit the counter.
pub const MAX_STEPS: u32 = 1 << 16;

/// Checks that mini-batches of `seeds` can be sampled from `topology` with `settings`, and that no counter overflows.
///
/// # Errors
///
/// No hop, layer, walk or step, or more than [`MAX_HOPS`] hops; a batch size of 0, seeds of another graph, rows of a task by a kind of
/// sampling that reads no times, weighted picks without
/// weights, or degrees, fanouts and walks that overflow the counter; each with its cure.
///
/// # Complexity
///
/// One pass over the nodes' degrees.
pub fn check_settings(topology: &Topology, seeds: &SeedSet, settings: &SamplerSettings) -> Result<()> {
    let largest = || topology.indptr().windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0);
    check_limits(topology.num_nodes(), topology.weights().is_some(), largest, seeds, settings)
}

/// Checks that seeds with times of their own are sampled by a kind that reads times.
fn check_times(seeds: &SeedSet, sampling: &Sampling) -> Result<()> {
    if seeds.rows().is_none() || sampling.kind() == TYPED.name {
        return Ok(());
    }
    let what = format!("rows of a task are sampled within their times, which {} does not read", sampling.kind());
    Err(Error::setting("sampler", format!("{what}; use --sampler {}", TYPED.name)))
}

/// Checks as [`check_settings`] does, for a graph that need not be in memory: its largest in-degree is computed last.
///
/// # Errors
///
/// As [`check_settings`].
pub fn check_limits(
    num_nodes: usize,
    weights: bool,
    largest_degree: impl FnOnce() -> u64,
    seeds: &SeedSet,
    settings: &SamplerSettings,
) -> Result<()> {
    if settings.batch_size == 0 {
        return Err(Error::setting("batch size", "a mini-batch needs at least one seed; give a positive number"));
    }
    if let Some(node) = seeds.nodes().iter().find(|v| **v as usize >= num_nodes) {
        let what = format!("node {node} does not exist, there are {num_nodes}; give seeds of this graph");
        return Err(Error::setting("seeds", what));
    }
    check_times(seeds, &settings.sampling)?;
    match &settings.sampling {
        Sampling::Neighbor(hops) => check_hops(hops, weights)?,
        Sampling::Shadow(ShadowSettings { hops, layers }) => {
            check_layers(*layers)?;
            check_hops(hops, weights)?;
        }
        Sampling::Walk(walk) => check_walk(walk)?,
        Sampling::Custom(CustomSettings { layers, hops, .. }) => {
            check_layers(*layers)?;
            hops.as_ref().map_or(Ok(()), |hops| check_hops(hops, weights))?;
        }
    }
    let degree = largest_degree();
    if degree > u64::from(u32::MAX) {
        let cure = "drop duplicate edges when importing it";
        return Err(Error::setting("graph", format!("a node has {degree} in-neighbours, more than 2^32 - 1; {cure}")));
    }
    settings.sampling.hops().map_or(Ok(()), |hops| check_draws(hops, degree))
}

fn check_hops(settings: &NeighborSettings, weights: bool) -> Result<()> {
    let fanouts = &settings.fanouts.0;
    if fanouts.is_empty() {
        return Err(Error::sampling(SamplingSetting::Fanouts, "there is none; give one per hop, for example 15,10,5"));
    }
    if fanouts.len() > MAX_HOPS {
        let what = format!("{} hops are more than {MAX_HOPS}; give fewer", fanouts.len());
        return Err(Error::sampling(SamplingSetting::Fanouts, what));
    }
    if settings.pick == Pick::Weighted && !weights {
        let cure = "the graph has no edge weights; pick uniformly, or import the dataset with weights";
        return Err(Error::sampling(SamplingSetting::WeightedPick, cure));
    }
    Ok(())
}

fn check_layers(layers: usize) -> Result<()> {
    if (1..=MAX_HOPS).contains(&layers) {
        return Ok(());
    }
    Err(Error::setting("layers", format!("{layers} blocks per mini-batch; give 1 to {MAX_HOPS}")))
}

fn check_walk(settings: &WalkSettings) -> Result<()> {
    let WalkSettings { layers, walks, length, restart, neighbors } = *settings;
    check_layers(layers)?;
    let steps = u64::from(walks) * u64::from(length);
    if !(1..=u64::from(MAX_STEPS)).contains(&steps) {
        let what = format!(
            "{walks} walks of {length} steps; give at least one of each, and {MAX_STEPS} steps together at most"
        );
        return Err(Error::sampling(SamplingSetting::Walks, what));
    }
    if !(0.0..=1.0).contains(&restart) {
        return Err(Error::setting("restart", format!("{restart} is no probability; give a number from 0 to 1")));
    }
    if neighbors == 0 {
        return Err(Error::setting("neighbors", "0 neighbours of a node leave no edges; give at least 1"));
    }
    Ok(())
}

/// Checks that the draws of a node with `degree` in-neighbours fit the counter.
pub(crate) fn check_draws(settings: &NeighborSettings, degree: u64) -> Result<()> {
    let largest = settings.fanouts.0.iter().filter_map(|f| match f {
        Fanout::AtMost(k) if u64::from(k.get()) < degree => Some(k.get()),
        _ => None,
    });
    let Some(largest) = largest.max() else { return Ok(()) };
    match settings.pick {
        Pick::Uniform if largest > MAX_FANOUT => {
            let what =
                format!("{largest} is more than {MAX_FANOUT} draws per node; give fewer, or -1 for all neighbours");
            Err(Error::sampling(SamplingSetting::Fanouts, what))
        }
        Pick::Weighted if degree > MAX_WEIGHTED_DEGREE => {
            let what = format!(
                "a node has {degree} in-neighbours, more than the {MAX_WEIGHTED_DEGREE} that can be drawn from by weight; \
                 pick uniformly, or give fanout -1"
            );
            Err(Error::sampling(SamplingSetting::WeightedPick, what))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
