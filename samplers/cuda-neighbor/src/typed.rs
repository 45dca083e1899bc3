//! Settings and memory of sampling by edge type.

use morphgl_cuda::{Buffer, Stream};
use morphgl_registry::{BatchingContext, Error, Fanout, Fanouts, NeighborSettings, Result};
use morphgl_sampler_core::{SubRowEnds, TimePick, TypedSettings};

use crate::TYPED;
use crate::buffer::grow;

/// Bytes that the ends of sub-rows may take in any graph.
const MIN_END_BYTES: u64 = 1 << 20;

/// Settings of sampling by edge type, where rows are divided or trees are disjoint.
#[derive(Debug)]
pub(crate) struct Typed {
    pub(crate) settings: TypedSettings,
    /// Where sub-rows end; `None` in a graph without types, whose rows have one sub-row each.
    pub(crate) ends: Option<SubRowEnds>,
    /// Sub-rows of a row: the most edge types that lead to one node type.
    pub(crate) width: u32,
    /// Fanouts by hop and edge type: 0 for none, `u32::MAX` for all.
    pub(crate) fanouts: Vec<Vec<u32>>,
}

/// Bytes of device memory that sampling by edge type takes for the graph besides rows and weights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Extra {
    /// Of all nodes: ends of sub-rows, and times.
    pub(crate) of_nodes: u64,
    /// Of each edge: its time.
    pub(crate) per_edge: u64,
}

impl Typed {
    /// Hops whose fanouts bound those of all edge types together, and the settings; without these where a graph without types is not sampled
    /// in trees, by the hops alone.
    ///
    /// # Errors
    ///
    /// Settings that [`TypedSettings::new`] refuses, and a graph of more edge types than the ends of its sub-rows are kept for.
    pub(crate) fn of(context: &BatchingContext) -> Result<(NeighborSettings, Option<Self>)> {
        let topology = &context.dataset.topology;
        let largest = topology.indptr().windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0);
        let settings = TypedSettings::of_degrees(context, largest)?;
        if topology.types().is_none() && settings.trees.is_none() {
            return Ok((settings.hops, None));
        }
        let ends = || {
            let max_bytes = (4 * topology.num_edges()).max(MIN_END_BYTES);
            SubRowEnds::within(topology, max_bytes).ok_or_else(|| {
                let cure = "batch by Batching_CPU_Typed, or merge edge types when importing it";
                let what =
                    "the graph has so many edge types that the ends of its sub-rows take more than its neighbours do";
                Error::setting(TYPED.key, format!("{what}; {cure}"))
            })
        };
        let ends = topology.types().map(|_| ends()).transpose()?;
        let number = |fanout: Option<Fanout>| match fanout {
            None => 0,
            Some(Fanout::All) => u32::MAX,
            Some(Fanout::AtMost(k)) => k.get(),
        };
        let hops = &settings.hops;
        let mut fanouts: Vec<Vec<u32>> =
            settings.fanouts.iter().map(|of_hop| of_hop.iter().copied().map(number).collect()).collect();
        if fanouts.is_empty() {
            fanouts = hops.fanouts.0.iter().map(|&fanout| vec![number(Some(fanout))]).collect();
        }
        let leading: Vec<Vec<u16>> = match &ends {
            None => vec![vec![0]],
            Some(ends) => ends.node_types().map(|(_, edge_types, _)| edge_types.to_vec()).collect(),
        };
        // No row has more edges than the fanouts of the types that lead to its node.
        let most = |of_hop: &Vec<u32>| {
            let of_type = |types: &Vec<u16>| types.iter().map(|&number| u64::from(of_hop[usize::from(number)])).sum();
            let most: u64 = leading.iter().map(of_type).max().unwrap_or(0);
            match u32::try_from(most.max(1)) {
                Ok(most) if most < u32::MAX => Fanout::AtMost(most.try_into().expect("at least 1")),
                _ => Fanout::All,
            }
        };
        let hops = NeighborSettings { fanouts: Fanouts(fanouts.iter().map(most).collect()), ..hops.clone() };
        let width = leading.iter().map(Vec::len).max().unwrap_or(0).max(1) as u32;
        Ok((hops, Some(Self { settings, ends, width, fanouts })))
    }

    /// Whether trees are disjoint.
    pub(crate) fn has_trees(&self) -> bool {
        self.settings.trees.is_some()
    }

    /// Whether times bound trees.
    pub(crate) fn is_timed(&self) -> bool {
        self.settings.trees.is_some_and(|trees| trees.by_time.is_some())
    }

    pub(crate) fn by_last(&self) -> bool {
        self.settings.trees.is_some_and(|trees| trees.by_time == Some(TimePick::Last))
    }

    /// Number of sub-rows of `rows` rows.
    pub(crate) fn sub_rows(&self, rows: u64) -> u64 {
        rows.saturating_mul(self.width.into())
    }

    /// Bytes of scratch memory for the sub-rows of a row.
    pub(crate) fn row_bytes(&self) -> u64 {
        26 * u64::from(self.width)
    }

    /// The largest fanout of a hop that is not all; 0 without one.
    pub(crate) fn largest(&self, hop: u32) -> u32 {
        self.fanouts[hop as usize].iter().copied().filter(|&fanout| fanout < u32::MAX).max().unwrap_or(0)
    }

    /// The ends of the sub-rows of a node, in a row that loses edges: `left` is the number of edges that are left before a position.
    pub(crate) fn lost_ends(&self, node: u32, left: impl Fn(u32) -> u32, out: &mut Vec<u32>) {
        let Some(ends) = &self.ends else { return };
        let start = out.len();
        out.extend(ends.ends_of(node).iter().map(|&end| left(end)));
        out.resize(start + self.width as usize, 0);
    }
}

/// The ends of sub-rows, as a device finds them: per node type its first node, the node after its last, and the place and number of its
/// edge types; and the index of the first end.
#[derive(Debug)]
pub(crate) struct NodeTypes {
    pub(crate) types: Buffer<u32>,
    pub(crate) bases: Buffer<u64>,
    pub(crate) edge_types: Buffer<u32>,
}

impl NodeTypes {
    pub(crate) fn new(stream: &Stream, ends: &SubRowEnds) -> Result<Self> {
        let (mut types, mut bases, mut edge_types) = (Vec::new(), Vec::new(), Vec::new());
        for (nodes, leading, base) in ends.node_types() {
            types.extend([nodes.start, nodes.end, edge_types.len() as u32, leading.len() as u32]);
            bases.push(base as u64);
            edge_types.extend(leading.iter().map(|&number| u32::from(number)));
        }
        let (types, bases) = (Buffer::of(stream, &types)?, Buffer::of(stream, &bases)?);
        Ok(Self { types, bases, edge_types: Buffer::of(stream, &edge_types)? })
    }

    pub(crate) fn num_bytes(&self) -> u64 {
        self.types.num_bytes() + self.bases.num_bytes() + self.edge_types.num_bytes()
    }
}

/// What sampling by edge type has in the memory of a stream.
#[derive(Debug)]
pub(crate) struct TypedScratch {
    /// Fanouts by hop and edge type.
    pub(crate) fanouts: Buffer<u32>,
    /// Of each sub-row of a hop: its first edge, numbers of edges, of candidates and of picks, the edges picked before it, and its type.
    pub(crate) start: Buffer<u64>,
    pub(crate) len: Buffer<u32>,
    pub(crate) candidates: Buffer<u32>,
    pub(crate) take: Buffer<u32>,
    pub(crate) indptr: Buffer<u32>,
    pub(crate) types: Buffer<u16>,
    /// Of each tree: seed of its random numbers, and time that bounds it.
    pub(crate) tree_seeds: Buffer<u64>,
    pub(crate) bounds: Buffer<i64>,
}

impl TypedScratch {
    pub(crate) fn new(stream: &Stream, typed: &Typed) -> Result<Self> {
        Ok(Self {
            fanouts: Buffer::of(stream, &typed.fanouts.concat())?,
            start: Buffer::new(stream, 0)?,
            len: Buffer::new(stream, 0)?,
            candidates: Buffer::new(stream, 0)?,
            take: Buffer::new(stream, 0)?,
            indptr: Buffer::new(stream, 0)?,
            types: Buffer::new(stream, 0)?,
            tree_seeds: Buffer::new(stream, 0)?,
            bounds: Buffer::new(stream, 0)?,
        })
    }

    /// Grows the arrays that have an element per sub-row, for `rows` rows; with `counted` also the numbers of edges to pick from.
    pub(crate) fn grow(&mut self, stream: &Stream, typed: &Typed, rows: u64, counted: bool) -> Result<()> {
        let subs = typed.sub_rows(rows);
        grow(stream, &mut self.start, subs, 0)?;
        grow(stream, &mut self.len, subs, 0)?;
        grow(stream, &mut self.take, subs, 0)?;
        grow(stream, &mut self.types, subs, 0)?;
        grow(stream, &mut self.candidates, if counted { subs } else { 0 }, 0)?;
        grow(stream, &mut self.indptr, subs + 1, 0)
    }

    /// Grows the memory of trees.
    pub(crate) fn grow_trees(&mut self, stream: &Stream, trees: u64) -> Result<()> {
        grow(stream, &mut self.tree_seeds, trees, 0)?;
        grow(stream, &mut self.bounds, trees, 0)
    }

    pub(crate) fn num_bytes(&self) -> u64 {
        let narrow = [&self.fanouts, &self.len, &self.candidates, &self.take, &self.indptr];
        narrow.map(Buffer::num_bytes).into_iter().sum::<u64>()
            + [&self.start, &self.tree_seeds].map(Buffer::num_bytes).into_iter().sum::<u64>()
            + self.types.num_bytes()
            + self.bounds.num_bytes()
    }
}
