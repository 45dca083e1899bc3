//! The work of seeds: aggregations that each of them is expected to cause.

use morphgl_graph_store::Topology;
use morphgl_registry::{
    CustomSettings, Expansion, Fanout, NeighborSettings, PairSeeds, Pick, RowSeeds, Sampling, ShadowSettings,
    WalkSettings,
};
use rayon::prelude::*;

/// The work of every node as the only seed of a mini-batch: expected edges, summed over its blocks.
///
/// - **Neighbour sampling, uniform picks:** exact where no node is reached on two ways. Where several ways lead to a node, the
///   mini-batch holds its row once, and the work is an upper bound.
/// - **Picks by weight:** as many neighbours as are picked, each with a probability in proportion to its weight, as if picked with
///   replacement.
/// - **ShaDow:** every node that the hops find brings an edge in each direction between itself and the node it was found from;
///   edges that close triangles, and rows of one direction only, are not seen. Every layer but the last has all edges, the last
///   one the rows of the seeds.
/// - **Random walks:** a node's neighbours are the distinct nodes of the first steps, and every later step as one more node, up
///   to the maximum; they are expanded as if all were in-neighbours.
/// - **Kinds of other crates:** as neighbour sampling by their fanouts; without any, every seed has the same work.
///
/// The result is the same on any number of threads of the current rayon pool.
///
/// # Complexity
///
/// O(nodes + edges) per hop or layer; 16 bytes per node.
pub fn work(topology: &Topology, sampling: &Sampling) -> Vec<f32> {
    match sampling {
        Sampling::Neighbor(hops) => expected(topology, &Hops::new(topology, hops), Count::Edges),
        Sampling::Shadow(ShadowSettings { hops, layers }) => {
            let mut found = expected(topology, &Hops::new(topology, hops), Count::Nodes);
            let inner = 2.0 * layers.saturating_sub(1) as f32;
            let first = Hops::new(topology, hops);
            // The seed's own row has the neighbours picked of it in any hop that expands it.
            let hops_of_seed = if hops.expansion == Expansion::All { first.fanouts.len() } else { 1 };
            found.par_iter_mut().enumerate().for_each(|(v, nodes)| {
                let degree = topology.degree(v as u32);
                let missed: f64 = (0..hops_of_seed).map(|hop| 1.0 - first.probability(hop, v as u32, degree)).product();
                *nodes = inner * (*nodes - 1.0) + (degree as f64 * (1.0 - missed)) as f32;
            });
            found
        }
        Sampling::Walk(walks) => expected(topology, &Walked(walks), Count::Edges),
        Sampling::Custom(CustomSettings { hops: Some(hops), .. }) => {
            expected(topology, &Hops::new(topology, hops), Count::Edges)
        }
        Sampling::Custom(_) => vec![1.0; topology.num_nodes()],
    }
}

/// The work of every pair as the only positive of a mini-batch, by the `work` of all nodes: that of its ends, and for the destination of
/// each negative the mean of all nodes.
pub fn work_of_pairs(work: &[f32], pairs: &PairSeeds) -> Vec<f32> {
    let mean = work.iter().map(|&w| f64::from(w)).sum::<f64>() / work.len() as f64;
    let negatives = f64::from(pairs.settings().negatives) * mean;
    let of_end = |v: u32| f64::from(work[v as usize]);
    pairs.ends().iter().map(|&[from, to]| (of_end(from) + of_end(to) + negatives) as f32).collect()
}

/// The work of every row of a task, by the `work` of all nodes: that of its node.
pub fn work_of_rows(work: &[f32], rows: &RowSeeds) -> Vec<f32> {
    rows.nodes().iter().map(|&node| work[node as usize]).collect()
}

/// The quantity that is summed over a seed's mini-batch.
#[derive(Clone, Copy, PartialEq)]
enum Count {
    /// Edges of all blocks.
    Edges,
    /// Nodes found, the seed included.
    Nodes,
}

/// How the rows of a hop are sampled.
trait HopSampling: Sync {
    /// Number of hops.
    fn hops(&self) -> usize;

    /// Whether a node is expanded again in the hops after its first.
    fn again(&self) -> bool {
        true
    }

    /// Expected edges of a node's row in a hop.
    fn edges(&self, hop: usize, node: u32, degree: u64) -> f64;

    /// Weights of the neighbours' probabilities, where they are not equal.
    fn weights(&self) -> Option<&[f32]> {
        None
    }

    /// Mean probability that a hop picks a neighbour of the node.
    fn probability(&self, hop: usize, node: u32, degree: u64) -> f64 {
        if degree == 0 { 0.0 } else { (self.edges(hop, node, degree) / degree as f64).min(1.0) }
    }
}

/// The expected sum for each node as the only seed.
///
/// From the last hop to the first, with `S(h, v)` the sum below a node `v` that hop `h` expands first. `v` has `t(h, v)` edges,
/// and finds each neighbour in hop `h` with probability `p = t / degree`, or else perhaps in a later one:
/// `below(h, v) = p · Σ S(h + 1, u) + (1 - p) · below(h + 1, v)` over its neighbours `u`.
fn expected(topology: &Topology, rows: &impl HopSampling, count: Count) -> Vec<f32> {
    let num_nodes = topology.num_nodes();
    let own = if count == Count::Nodes { 1.0 } else { 0.0 };
    // S(h + 1, ·), and for each node its edges from hop h + 1 on and `below(h + 1)`.
    let mut next = vec![own as f32; num_nodes];
    let mut sums = vec![own as f32; num_nodes];
    let mut later = vec![[0f32; 2]; num_nodes];
    for hop in (0..rows.hops()).rev() {
        sums.par_iter_mut().zip(&mut later).enumerate().for_each(|(v, (sum, later))| {
            let range = topology.edge_range(v as u32);
            let degree = range.len() as u64;
            let (edges, p) = (rows.edges(hop, v as u32, degree), rows.probability(hop, v as u32, degree));
            let mut total = 0.0;
            if hop + 1 < rows.hops() || count == Count::Nodes {
                let neighbors = &topology.indices()[range.clone()];
                total = match rows.weights().map(|weights| &weights[range]) {
                    None => neighbors.iter().map(|&u| value(&next, u)).sum(),
                    Some(weights) => mean(neighbors, weights, &next) * degree as f64,
                };
            }
            let (kept, missed) = if rows.again() { (*later, 1.0 - p) } else { ([0.0; 2], 0.0) };
            let below = p * total + missed * f64::from(kept[1]);
            let row = edges + f64::from(kept[0]);
            *later = [row as f32, below as f32];
            *sum = (if count == Count::Edges { row } else { own } + below) as f32;
        });
        next.copy_from_slice(&sums);
    }
    sums
}

/// The value of a node; 0 of one that does not exist, in a mapped file that was changed, whose mini-batches are refused.
fn value(values: &[f32], node: u32) -> f64 {
    values.get(node as usize).copied().unwrap_or(0.0).into()
}

/// The mean of the neighbours' values by weight.
fn mean(neighbors: &[u32], weights: &[f32], values: &[f32]) -> f64 {
    let total: f64 = weights.iter().map(|&w| f64::from(w)).sum();
    let sum: f64 = neighbors.iter().zip(weights).map(|(&u, &w)| f64::from(w) * value(values, u)).sum();
    if total > 0.0 { sum / total } else { 0.0 }
}

/// Hops by fanouts.
struct Hops<'a> {
    fanouts: &'a [Fanout],
    expansion: Expansion,
    topology: &'a Topology,
    weights: Option<&'a [f32]>,
}

impl<'a> Hops<'a> {
    fn new(topology: &'a Topology, settings: &'a NeighborSettings) -> Self {
        let weights = topology.weights().map(|weights| &**weights).filter(|_| settings.pick == Pick::Weighted);
        Self { fanouts: &settings.fanouts.0, expansion: settings.expansion, topology, weights }
    }
}

impl HopSampling for Hops<'_> {
    fn hops(&self) -> usize {
        self.fanouts.len()
    }

    fn again(&self) -> bool {
        self.expansion == Expansion::All
    }

    fn edges(&self, hop: usize, node: u32, degree: u64) -> f64 {
        // An edge of weight 0 is never picked.
        let candidates = self.weights.map_or(degree, |weights| {
            weights[self.topology.edge_range(node)].iter().filter(|weight| **weight > 0.0).count() as u64
        });
        self.fanouts[hop].take(candidates) as f64
    }

    fn weights(&self) -> Option<&[f32]> {
        self.weights
    }
}

/// Random walks.
struct Walked<'a>(&'a WalkSettings);

impl HopSampling for Walked<'_> {
    fn hops(&self) -> usize {
        self.0.layers
    }

    fn edges(&self, _hop: usize, _node: u32, degree: u64) -> f64 {
        let WalkSettings { walks, length, restart, neighbors, .. } = *self.0;
        if degree == 0 {
            return 0.0;
        }
        let degree = degree as f64;
        let first = degree * (1.0 - (1.0 - 1.0 / degree).powi(walks.min(i32::MAX as u32) as i32));
        let further: f64 = (1..length.min(1 << 16)).map(|step| (1.0 - restart).powi(step as i32)).sum();
        (first + f64::from(walks) * further).min(f64::from(neighbors))
    }
}
