//! Limits of sampler settings, checked once before the first mini-batch.

use morphgl_graph_store::Topology;
use morphgl_registry::{Error, Fanout, Pick, Result, SamplerSettings, SeedSet};

use crate::stream::HOP_BITS;
use crate::uniform::MAX_FANOUT;
use crate::weighted::MAX_WEIGHTED_DEGREE;

/// Most hops that a counter can number.
pub const MAX_HOPS: usize = 1 << HOP_BITS;

/// Checks that mini-batches of `seeds` can be made of `topology` as `settings` say, with no counter overflowing.
///
/// # Errors
///
/// No fanout or more than [`MAX_HOPS`], a batch size of 0, seeds of another graph, weighted picks without weights, or
/// degrees and fanouts that the counter has no room for; each with its cure.
///
/// # Complexity
///
/// One pass over the nodes' degrees.
pub fn check_settings(topology: &Topology, seeds: &SeedSet, settings: &SamplerSettings) -> Result<()> {
    let largest = || topology.indptr().windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0);
    check_limits(topology.num_nodes(), topology.weights().is_some(), largest, seeds, settings)
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
    let fanouts = &settings.fanouts.0;
    if fanouts.is_empty() {
        return Err(Error::setting("fanouts", "there is none; give one a hop, for example 15,10,5"));
    }
    if fanouts.len() > MAX_HOPS {
        let what = format!("{} hops are more than {MAX_HOPS}; give fewer", fanouts.len());
        return Err(Error::setting("fanouts", what));
    }
    if settings.batch_size == 0 {
        return Err(Error::setting("batch size", "a mini-batch needs at least one seed; give a positive number"));
    }
    if let Some(node) = seeds.nodes().iter().find(|v| **v as usize >= num_nodes) {
        let what = format!("node {node} does not exist, there are {num_nodes}; give seeds of this graph");
        return Err(Error::setting("seeds", what));
    }
    if settings.pick == Pick::Weighted && !weights {
        let cure = "the graph has no edge weights; pick uniformly, or import the dataset with weights";
        return Err(Error::setting("weighted pick", cure));
    }
    let degree = largest_degree();
    if degree > u64::from(u32::MAX) {
        let cure = "drop duplicate edges when importing it";
        return Err(Error::setting("graph", format!("a node has {degree} in-neighbours, more than 2^32 - 1; {cure}")));
    }
    let largest = fanouts.iter().filter_map(|f| match f {
        Fanout::AtMost(k) if u64::from(k.get()) < degree => Some(k.get()),
        _ => None,
    });
    let Some(largest) = largest.max() else { return Ok(()) };
    match settings.pick {
        Pick::Uniform if largest > MAX_FANOUT => {
            let what =
                format!("{largest} is more than {MAX_FANOUT} draws a node; give fewer, or -1 for all neighbours");
            Err(Error::setting("fanouts", what))
        }
        Pick::Weighted if degree > MAX_WEIGHTED_DEGREE => {
            let what = format!(
                "a node has {degree} in-neighbours, more than the {MAX_WEIGHTED_DEGREE} that can be drawn from by weight; \
                 pick uniformly, or give fanout -1"
            );
            Err(Error::setting("weighted pick", what))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(change: impl FnOnce(&mut SamplerSettings), expected: &str) {
        let topology = Topology::new(vec![0u64, 1, 2], vec![1u32, 0], None).expect("two nodes, each the other's");
        let seeds = SeedSet::new("seeds", &[0, 1], 2).expect("both nodes");
        let mut settings = SamplerSettings::default();
        change(&mut settings);
        let message = check_settings(&topology, &seeds, &settings).map_err(|e| e.to_string());
        match message {
            Ok(()) => assert_eq!("", expected),
            Err(message) => assert!(message.starts_with(expected) && !expected.is_empty(), "{message}"),
        }
    }

    #[test]
    fn each_impossible_setting_is_named() {
        check(|_| (), "");
        check(|s| s.fanouts.0.clear(), "fanouts: there is none");
        check(|s| s.fanouts.0 = vec![Fanout::All; 64], "");
        check(|s| s.fanouts.0 = vec![Fanout::All; 65], "fanouts: 65 hops");
        check(|s| s.batch_size = 0, "batch size: ");
        check(|s| s.pick = Pick::Weighted, "weighted pick: the graph has no edge weights");
    }

    #[test]
    fn seeds_of_a_larger_graph_are_refused() {
        let topology = Topology::new(vec![0u64, 0], Vec::<u32>::new(), None).expect("one node");
        let seeds = SeedSet::new("seeds", &[0, 1], 2).expect("two nodes");
        let error = check_settings(&topology, &seeds, &SamplerSettings::default()).expect_err("node 1 does not exist");
        assert!(error.to_string().starts_with("seeds: node 1 does not exist"), "{error}");
    }

    #[test]
    fn a_fanout_beyond_the_counter_is_refused_where_it_would_draw() {
        let hub = |degree: u64| Topology::new(vec![0, degree], vec![0u32; degree as usize], None).expect("loops");
        let seeds = SeedSet::new("seeds", &[0], 1).expect("the node");
        let fanouts = format!("{}", MAX_FANOUT + 1).parse().expect("a fanout");
        let settings = SamplerSettings { fanouts, ..Default::default() };
        assert!(check_settings(&hub(u64::from(MAX_FANOUT) + 1), &seeds, &settings).is_ok());
        let error = check_settings(&hub(u64::from(MAX_FANOUT) + 2), &seeds, &settings).expect_err("draws overflow");
        assert!(error.to_string().contains("65537 is more than 65536 draws"), "{error}");
    }
}
