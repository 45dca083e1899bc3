//! Blocks of edges: checked, transformed by the options, and sorted.

use morphgl_graph_store::MAX_NODES;

use crate::ranges::Block;
use crate::records::{Record, Records, Weighted};
use crate::sort::BlockMaker;

/// Makes blocks for one [`CscBuilder`](crate::CscBuilder), on any thread, while the builder takes others.
#[derive(Debug, Clone)]
pub struct EdgeBlockMaker {
    pub(crate) num_nodes: Option<u64>,
    pub(crate) symmetrise: bool,
    pub(crate) reverse: bool,
    pub(crate) drop_self_loops: bool,
    pub(crate) maker: AnyMaker,
}

#[derive(Debug, Clone)]
pub(crate) enum AnyMaker {
    Plain(BlockMaker<u64>),
    Weighted(BlockMaker<Weighted>),
}

impl EdgeBlockMaker {
    /// Checks and sorts edges; [`CscBuilder::push_blocks`](crate::CscBuilder::push_blocks) takes the block. With `mirror`, the
    /// reverse of each edge that is no loop follows it.
    pub fn block(&self, edges: Edges<'_>, mirror: bool) -> EdgeBlock {
        let highest = match self.checked(&edges) {
            Ok(highest) => highest,
            Err(fault) => return EdgeBlock { pushed: 0, self_loops: 0, highest: None, records: Err(fault) },
        };
        let (transform, edges) = (self.transform(mirror), self.oriented(edges));
        let records = match &self.maker {
            AnyMaker::Plain(maker) => {
                let is_identity = !transform.mirror && !transform.drop_self_loops;
                let placed = if is_identity { maker.placed(edges.sources, edges.targets) } else { None };
                let sorted = || maker.sorted(edges.collect(transform, maker.buffer()));
                AnyBlock::Plain(placed.unwrap_or_else(sorted))
            }
            AnyMaker::Weighted(maker) => AnyBlock::Weighted(maker.sorted(edges.collect(transform, maker.buffer()))),
        };
        EdgeBlock {
            pushed: edges.sources.len() as u64,
            self_loops: self.self_loops(&edges),
            highest,
            records: Ok(records),
        }
    }

    /// The edges, reversed by the option.
    pub(crate) fn oriented<'e>(&self, edges: Edges<'e>) -> Edges<'e> {
        match self.reverse {
            true => Edges { sources: edges.targets, targets: edges.sources, ..edges },
            false => edges,
        }
    }

    /// Number of self-loops that are dropped.
    pub(crate) fn self_loops(&self, edges: &Edges<'_>) -> u64 {
        let loops = edges.sources.iter().zip(edges.targets).filter(|(u, v)| u == v);
        if self.drop_self_loops { loops.count() as u64 } else { 0 }
    }

    pub(crate) fn transform(&self, mirror: bool) -> Transform {
        Transform { mirror: mirror || self.symmetrise, drop_self_loops: self.drop_self_loops }
    }

    /// Checks ids and weights; the highest id of the edges.
    pub(crate) fn checked(&self, edges: &Edges<'_>) -> std::result::Result<Option<u32>, Fault> {
        let highest = edges.sources.iter().zip(edges.targets).map(|(&u, &v)| u.max(v)).max();
        let limit = self.num_nodes.unwrap_or(MAX_NODES);
        if highest.is_some_and(|h| u64::from(h) >= limit) {
            let pairs = edges.sources.iter().zip(edges.targets);
            let mut pairs = pairs.enumerate().filter(|&(_, (u, v))| u64::from(*u.max(v)) >= limit);
            let (i, (u, v)) = pairs.next().expect("an id is too high");
            let what = format!("the edge {u} -> {v} names a node that does not exist, there are {limit} nodes");
            return Err(Fault { at: i as u64, what, cure: "correct the edge or the number of nodes" });
        }
        if let AnyMaker::Weighted(_) = self.maker {
            let weights = edges.weights.expect("a weighted sorter is made for weighted edges only");
            if let Some(i) = weights.iter().position(|w| !(w.is_finite() && *w >= 0.0)) {
                let what = format!("the weight {} is not a finite number of at least 0", weights[i]);
                return Err(Fault { at: i as u64, what, cure: "correct it, or import with --drop-weights" });
            }
        }
        Ok(highest)
    }
}

/// Edges `sources[i]` → `targets[i]`.
#[derive(Debug, Clone, Copy)]
pub struct Edges<'e> {
    /// Source of each edge.
    pub sources: &'e [u32],
    /// Target of each edge.
    pub targets: &'e [u32],
    /// Weight of each edge, where there are any.
    pub weights: Option<&'e [f32]>,
}

/// A block of sorted edges, or the first fault among them.
#[derive(Debug)]
pub struct EdgeBlock {
    pub(crate) pushed: u64,
    pub(crate) self_loops: u64,
    pub(crate) highest: Option<u32>,
    pub(crate) records: std::result::Result<AnyBlock, Fault>,
}

impl EdgeBlock {
    /// Number of edges the block was made of, before any was added or dropped.
    pub fn num_edges(&self) -> u64 {
        self.pushed
    }
}

#[derive(Debug)]
pub(crate) enum AnyBlock {
    Plain(Block<u64>),
    Weighted(Block<Weighted>),
}

/// A fault of the edge `at`, counted from the first of its slice.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) at: u64,
    pub(crate) what: String,
    pub(crate) cure: &'static str,
}

/// Edges to add and to drop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transform {
    mirror: bool,
    drop_self_loops: bool,
}

impl Edges<'_> {
    /// The records of the edges, in `records`.
    pub(crate) fn collect<R: Record>(&self, transform: Transform, mut records: Records<R>) -> Records<R> {
        records.append(self.sources.len() << u32::from(transform.mirror), |out| {
            if !transform.mirror && !transform.drop_self_loops && self.weights.is_none() {
                let keys = self.sources.iter().zip(self.targets).map(|(&u, &v)| u64::from(v) << 32 | u64::from(u));
                out.iter_mut().zip(keys).for_each(|(out, key)| *out = R::new(key, 1.0));
                return out.len();
            }
            let mut len = 0;
            for (i, (&u, &v)) in self.sources.iter().zip(self.targets).enumerate() {
                if u == v && transform.drop_self_loops {
                    continue;
                }
                let weight = self.weights.map_or(1.0, |w| w[i]);
                out[len] = R::new(u64::from(v) << 32 | u64::from(u), weight);
                len += 1;
                if transform.mirror && u != v {
                    out[len] = R::new(u64::from(u) << 32 | u64::from(v), weight);
                    len += 1;
                }
            }
            len
        });
        records
    }
}
