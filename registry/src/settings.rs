//! Sampler settings and seeds: what a mini-batch depends on besides the graph.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Neighbours sampled a node at one hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fanout {
    /// All neighbours, written `-1`.
    All,
    /// At most this many.
    AtMost(NonZeroU32),
}

/// Fanouts of all hops, the seeds' own first: `15,10,5` as in DGL and PyG.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fanouts(pub Vec<Fanout>);

/// Which nodes a hop expands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Expansion {
    /// Every node found so far (DGL, SALIENT).
    #[default]
    All,
    /// Only the nodes that the hop before found (PyG).
    New,
}

/// How neighbours are picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pick {
    /// Uniformly, without replacement.
    #[default]
    Uniform,
    /// Without replacement, with probabilities proportional to the edge weights; an edge of weight 0 is never picked.
    Weighted,
}

/// Settings that determine an epoch's mini-batches, besides the graph and the seeds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SamplerSettings {
    /// Fanouts, the seeds' own hop first; one a layer of the model. Default 15,10,5.
    pub fanouts: Fanouts,
    /// Seeds a mini-batch; the last one of an epoch has the rest. Default 1024.
    pub batch_size: usize,
    /// Seed of all randomness. Default 0.
    pub seed: u64,
    /// Which nodes a hop expands. Default all.
    pub expansion: Expansion,
    /// How neighbours are picked. Default uniformly.
    pub pick: Pick,
    /// Whether each epoch permutes the seeds. Default true; evaluation keeps their order.
    pub shuffle: bool,
}

impl Default for SamplerSettings {
    fn default() -> Self {
        Self {
            fanouts: "15,10,5".parse().expect("the default fanouts are valid"),
            batch_size: 1024,
            seed: 0,
            expansion: Expansion::All,
            pick: Pick::Uniform,
            shuffle: true,
        }
    }
}

impl Fanout {
    /// Number of neighbours sampled of a node with `degree` of them.
    pub fn take(self, degree: u64) -> u64 {
        match self {
            Fanout::All => degree,
            Fanout::AtMost(k) => degree.min(u64::from(k.get())),
        }
    }
}

impl fmt::Display for Fanout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fanout::All => f.write_str("-1"),
            Fanout::AtMost(k) => write!(f, "{k}"),
        }
    }
}

impl FromStr for Fanout {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        match s.trim() {
            "-1" => Ok(Fanout::All),
            t => t.parse().map(Fanout::AtMost).map_err(|_| {
                Error::parse(t, "not a fanout; give a positive number of neighbours, or -1 for all of them")
            }),
        }
    }
}

impl fmt::Display for Fanouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.0.iter().map(Fanout::to_string).collect();
        f.write_str(&texts.join(","))
    }
}

impl FromStr for Fanouts {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        s.split(',').map(Fanout::from_str).collect::<Result<Vec<_>>>().map(Self)
    }
}

crate::error::serialized_as_text!(Fanouts);

/// Distinct seed nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct SeedSet(
    // Invariant: not empty, no node twice, every node below the `num_nodes` of the constructor.
    Arc<[u32]>,
);

impl SeedSet {
    /// Checks the nodes; `what` names them in errors, for example `train split`.
    ///
    /// # Errors
    ///
    /// No node, a node twice, or a node that does not exist.
    pub fn new(what: &str, nodes: &[u32], num_nodes: usize) -> Result<Self> {
        if nodes.is_empty() {
            let cure = "it is empty; import the dataset with its split, or make one with --split 0.6,0.2,0.2";
            return Err(Error::setting(what, cure));
        }
        let mut seen = vec![false; num_nodes];
        for &v in nodes {
            match seen.get_mut(v as usize) {
                None => return Err(Error::setting(what, format!("node {v} does not exist, there are {num_nodes}"))),
                Some(true) => return Err(Error::setting(what, format!("node {v} is listed twice; list it once"))),
                Some(seen) => *seen = true,
            }
        }
        Ok(Self(nodes.into()))
    }

    /// The nodes, in the order given.
    pub fn nodes(&self) -> &[u32] {
        &self.0
    }
}
