//! Blocks of edges: checked, transformed by the options, and sorted.

use morphgl_graph_store::MAX_NODES;

use crate::options::EdgeOptions;
use crate::ranges::Block;
use crate::records::{Numbered, Record, Records, Weighted};
use crate::sort::BlockMaker;

/// Makes blocks for one [`CscBuilder`](crate::CscBuilder), on any thread, while the builder takes others.
#[derive(Debug, Clone)]
pub struct EdgeBlockMaker {
    pub(crate) options: EdgeOptions,
    pub(crate) maker: AnyMaker,
}

#[derive(Debug, Clone)]
pub(crate) enum AnyMaker {
    Plain(BlockMaker<u64>),
    Weighted(BlockMaker<Weighted>),
    Numbered(BlockMaker<Numbered>),
}

impl EdgeBlockMaker {
    /// Checks and sorts edges; [`CscBuilder::push_blocks`](crate::CscBuilder::push_blocks) takes the block. With `mirror`, the
    /// reverse of each edge that is no loop follows it.
    pub fn block(&self, edges: Edges<'_>, mirror: bool) -> EdgeBlock {
        let highest = match self.checked(&edges) {
            Ok(highest) => highest,
            Err(fault) => return EdgeBlock { pushed: 0, self_loops: 0, highest: None, records: Err(fault) },
        };
        let edges = self.oriented(edges);
        let records = match &self.maker {
            AnyMaker::Plain(maker) => {
                let placed = if self.adds_or_drops(mirror) { None } else { maker.placed(edges.sources, edges.targets) };
                let sorted = || maker.sorted(self.records(&edges, mirror, maker.scratch.take()));
                AnyBlock::Plain(placed.unwrap_or_else(sorted))
            }
            AnyMaker::Weighted(maker) => {
                AnyBlock::Weighted(maker.sorted(self.records(&edges, mirror, maker.scratch.take())))
            }
            AnyMaker::Numbered(maker) => {
                AnyBlock::Numbered(maker.sorted(self.records(&edges, mirror, maker.scratch.take())))
            }
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
        match self.options.reverse {
            true => Edges { sources: edges.targets, targets: edges.sources, ..edges },
            false => edges,
        }
    }

    /// Number of self-loops that are dropped.
    pub(crate) fn self_loops(&self, edges: &Edges<'_>) -> u64 {
        let loops = edges.sources.iter().zip(edges.targets).filter(|(u, v)| u == v);
        if self.options.drop_self_loops { loops.count() as u64 } else { 0 }
    }

    fn adds_or_drops(&self, mirror: bool) -> bool {
        mirror || self.options.symmetrise || self.options.drop_self_loops
    }

    /// Appends the records of the edges to `records`, numbered from 0.
    pub(crate) fn records<R: Record>(&self, edges: &Edges<'_>, mirror: bool, mut records: Records<R>) -> Records<R> {
        let EdgeOptions { symmetrise, drop_self_loops, .. } = self.options;
        let loops_twice = symmetrise && self.options.adds_weights();
        let (mirror, pairs) = (mirror || symmetrise, edges.sources.iter().zip(edges.targets));
        records.append(edges.sources.len() << u32::from(mirror), |out| {
            if !self.adds_or_drops(mirror) && edges.weights.is_none() && !self.options.numbered {
                let keys = pairs.map(|(&u, &v)| u64::from(v) << 32 | u64::from(u));
                out.iter_mut().zip(keys).for_each(|(out, key)| *out = R::new(key, 1.0));
                return out.len();
            }
            let mut len = 0;
            for (i, (&u, &v)) in pairs.enumerate() {
                if u == v && drop_self_loops {
                    continue;
                }
                let weight = edges.weights.map_or(1.0, |w| w[i]);
                out[len] = R::new(u64::from(v) << 32 | u64::from(u), weight).numbered(i as u32);
                len += 1;
                if mirror && (u != v || loops_twice) {
                    out[len] = R::new(u64::from(u) << 32 | u64::from(v), weight).numbered(i as u32);
                    len += 1;
                }
            }
            len
        });
        records
    }

    /// Checks ids and weights; the highest id of the edges.
    pub(crate) fn checked(&self, edges: &Edges<'_>) -> std::result::Result<Option<u32>, Fault> {
        let highest = edges.sources.iter().zip(edges.targets).map(|(&u, &v)| u.max(v)).max();
        let limit = self.options.num_nodes.unwrap_or(MAX_NODES);
        if highest.is_some_and(|h| u64::from(h) >= limit) {
            let pairs = edges.sources.iter().zip(edges.targets);
            let mut pairs = pairs.enumerate().filter(|&(_, (u, v))| u64::from(*u.max(v)) >= limit);
            let (i, (u, v)) = pairs.next().expect("an id is too high");
            let what = format!("the edge {u} -> {v} names a node that does not exist, there are {limit} nodes");
            return Err(Fault { at: i as u64, what, cure: "correct the edge or the number of nodes" });
        }
        if self.options.stores_weights() {
            let weights = edges.weights.expect("weights, as the stream was opened");
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
    Numbered(Block<Numbered>),
}

/// A fault of the edge `at`, counted from the first of its slice.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) at: u64,
    pub(crate) what: String,
    pub(crate) cure: &'static str,
}
