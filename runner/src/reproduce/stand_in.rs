//! Graphs in the place of the papers' datasets: of their sizes, divided by a factor, and of their degree laws.

use anyhow::Result;
use morphgl_generate::{SbmConfig, sbm};
use morphgl_graph_store::{Dataset, Topology};
use morphgl_platform::splitmix64;

/// Where the training nodes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seeds {
    /// Anywhere, with probability proportional to degree.
    Anywhere,
    /// In one community, with probability proportional to degree.
    OneCommunity,
}

/// A dataset of the papers, and how its stand-in is generated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct StandIn {
    pub(crate) name: &'static str,
    /// The dataset's nodes, neighbours in all lists, training nodes, values per row and classes.
    pub(crate) nodes: f64,
    pub(crate) edges: f64,
    pub(crate) train: f64,
    pub(crate) dim: usize,
    pub(crate) classes: usize,
    /// Exponent of the degrees' power law.
    pub(crate) exponent: f64,
    /// Number of communities, and the share of the edges within one.
    pub(crate) communities: usize,
    pub(crate) within: f64,
    pub(crate) seeds: Seeds,
    /// Factor by which nodes, edges, training nodes and seeds per mini-batch are divided.
    pub(crate) scale: f64,
}

const fn social(
    name: &'static str,
    nodes: f64,
    edges: f64,
    train: f64,
    dim: usize,
    exponent: f64,
    scale: f64,
) -> StandIn {
    let (classes, communities, within, seeds) = (47, 64, 0.5, Seeds::Anywhere);
    StandIn { name, nodes, edges, train, dim, classes, exponent, communities, within, seeds, scale }
}

/// OGB-Products.
pub(crate) const PR: StandIn = social("Products", 2.4e6, 124e6, 197e3, 100, 2.6, 16.0);
/// Twitter.
pub(crate) const TW: StandIn = social("Twitter", 41.7e6, 1.5e9, 417e3, 256, 2.2, 256.0);
/// UK-2006-05.
pub(crate) const UK: StandIn = StandIn { within: 0.9, ..social("UK-2006", 77.7e6, 3.0e9, 777e3, 256, 2.2, 512.0) };
/// UK-Union.
pub(crate) const UU: StandIn = StandIn { within: 0.9, ..social("UK-Union", 134e6, 5.5e9, 1.34e6, 128, 2.2, 1024.0) };
/// OGB-Papers100M with edges in both directions; its training nodes are of one field. Data Tiering, Section 5.2: 1% of the nodes
/// have 32% of the edges.
pub(crate) const PA: StandIn = StandIn {
    name: "Papers100M",
    nodes: 111e6,
    edges: 3.2e9,
    train: 1.207e6,
    dim: 128,
    classes: 172,
    exponent: 2.33,
    communities: 64,
    within: 0.97,
    seeds: Seeds::OneCommunity,
    scale: 512.0,
};
/// MAG240M. Data Tiering: 1% of the nodes have 46% of the edges.
pub(crate) const MAG: StandIn = StandIn {
    name: "MAG240M",
    nodes: 244.2e6,
    edges: 3.5e9,
    train: 1.11e6,
    dim: 768,
    classes: 153,
    exponent: 2.2,
    scale: 512.0,
    ..PA
};
/// WikiKG90M. Data Tiering: 1% of the nodes have 80% of the edges; labels are synthetic, so that its training nodes are anywhere.
pub(crate) const WIKIKG: StandIn = social("WikiKG90M", 87.1e6, 1.0e9, 871e3, 359, 2.05, 256.0);
/// Reddit, with a tenth of the neighbours per node: more than any fanout.
pub(crate) const REDDIT: StandIn =
    StandIn { classes: 41, ..social("Reddit", 232_965.0, 11.6e6, 153_431.0, 602, 2.6, 4.0) };
/// LiveJournal.
pub(crate) const LJ: StandIn = StandIn { classes: 60, ..social("Lj-large", 10.69e6, 224.6e6, 6.95e6, 400, 2.6, 64.0) };
/// Orkut.
pub(crate) const ORKUT: StandIn = StandIn { classes: 20, ..social("Orkut", 3.1e6, 117e6, 2.0e6, 600, 2.8, 32.0) };
/// The English Wikipedia's links.
pub(crate) const WIKI: StandIn = StandIn { classes: 16, ..social("Wikipedia", 13.6e6, 437e6, 8.84e6, 600, 2.3, 128.0) };

impl StandIn {
    /// Mini-batches of an epoch by this number of seeds.
    pub(crate) fn batches(&self, seeds: usize) -> usize {
        (self.train / seeds as f64).ceil() as usize
    }

    /// Seeds per mini-batch of the stand-in.
    pub(crate) fn seeds(&self, seeds: usize) -> usize {
        ((seeds as f64 / self.scale).round() as usize).max(1)
    }

    /// Bytes of the topology at the paper's size, with `id` bytes per neighbour.
    pub(crate) fn topology_bytes(&self, id: f64) -> f64 {
        8.0 * self.nodes + id * self.edges
    }

    /// Bytes of all rows of features at the paper's size.
    pub(crate) fn feature_bytes(&self, value: f64) -> f64 {
        self.nodes * self.dim as f64 * value
    }

    /// The graph, with so many values per row of features.
    pub(crate) fn generate(&self, dim: usize) -> Result<Dataset> {
        let config = SbmConfig {
            nodes: (self.nodes / self.scale).round() as u64,
            degree: self.edges / self.nodes,
            classes: self.communities,
            dim,
            homophily: self.within,
            exponent: self.exponent,
            train: 0.5,
            valid: 0.0,
            test: 0.0,
            seed: 20,
            ..SbmConfig::default()
        };
        let mut dataset = sbm(&config)?;
        dataset.name = self.name.to_string();
        let labels = dataset.labels.clone();
        let is_candidate = |v: usize| match (self.seeds, &labels) {
            (Seeds::OneCommunity, Some(labels)) => labels[v] == 0,
            _ => true,
        };
        let count = (self.train / self.scale).round() as usize;
        let train = by_degree(&dataset.topology, is_candidate, count);
        dataset.splits.train = train.into();
        Ok(dataset)
    }
}

/// So many candidates, drawn without replacement with probability proportional to degree (Efraimidis and Spirakis, 2006), in
/// ascending order.
fn by_degree(topology: &Topology, is_candidate: impl Fn(usize) -> bool, count: usize) -> Vec<u32> {
    let key = |v: usize| {
        let unit = ((splitmix64(v as u64 ^ 0x5eed) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        (unit.ln() / topology.degree(v as u32) as f64, v as u32)
    };
    let of_degree = |v: &usize| is_candidate(*v) && topology.degree(*v as u32) > 0;
    let mut keys: Vec<(f64, u32)> = (0..topology.num_nodes()).filter(of_degree).map(key).collect();
    keys.sort_by(|a, b| b.0.total_cmp(&a.0));
    keys.truncate(count);
    let mut nodes: Vec<u32> = keys.into_iter().map(|(_, v)| v).collect();
    nodes.sort_unstable();
    nodes
}
