//! Hops of a graph in host memory, by a software pipeline over its random reads.

use std::sync::Arc;

use morphgl_graph_store::Topology;
use morphgl_registry::{Block, Result};

use crate::{Excluded, Hop, HopSampler, NeighborCheck};
use expand::RowPicker;
use frontier::Frontier;
use stages::{Buffers, Stages};
use sub_rows::SubRows;

mod expand;
mod frontier;
mod stages;
mod sub_rows;

pub use expand::TypeFanout;
pub use frontier::Expected;
pub use sub_rows::SubRowEnds;

/// The buffers of a worker that samples hops of one graph in host memory, on its thread or on those of the current rayon pool.
#[derive(Debug)]
pub struct HostHops {
    frontier: Frontier,
    sub_rows: SubRows,
    /// Buffers, one per thread.
    buffers: Vec<Buffers>,
}

impl HostHops {
    /// Buffers for mini-batches of `topology` on so many threads, at least one; workers of an operator share `expected`.
    ///
    /// # Complexity
    ///
    /// As [`Relabel::for_graph`](crate::Relabel::for_graph).
    pub fn new(topology: &Topology, threads: usize, expected: Arc<Expected>) -> Self {
        let buffers = (0..threads.max(1)).map(|_| Buffers::default()).collect();
        Self { frontier: Frontier::new(topology, expected), sub_rows: SubRows::default(), buffers }
    }

    /// Number of threads that a mini-batch is spread over.
    pub fn threads(&self) -> usize {
        self.buffers.len()
    }

    /// The sampler of a mini-batch's hops; `topology` is that of [`HostHops::new`].
    pub fn sampler<'a>(&'a mut self, topology: &'a Topology) -> HostHopSampler<'a> {
        HostHopSampler { topology, hops: self, excluded: None, by_type: &[], ends: None }
    }
}

/// Samples the hops of one mini-batch.
#[derive(Debug)]
pub struct HostHopSampler<'a> {
    topology: &'a Topology,
    hops: &'a mut HostHops,
    excluded: Option<&'a Excluded>,
    by_type: &'a [Vec<TypeFanout>],
    ends: Option<&'a SubRowEnds>,
}

impl<'a> HostHopSampler<'a> {
    /// The sampler of a graph without the edges `excluded`, whose seeds are distinct. Degrees are those of the whole graph still
    /// ([`Excluded::set_degrees`]).
    pub fn without(self, excluded: &'a Excluded) -> Self {
        Self { excluded: Some(excluded).filter(|excluded| excluded.num_rows() > 0), ..self }
    }

    /// The sampler of a typed graph by edge type: `fanouts[hop]` has a fanout per type, in place of the one of [`Hop::picks`]. Each
    /// sub-row is picked from as a row is, by draws of its own. Without the `ends` of sub-rows the types of the edges are searched.
    ///
    /// In a graph without types the fanouts are those of [`Hop::picks`].
    pub fn by_type(self, fanouts: &'a [Vec<TypeFanout>], ends: Option<&'a SubRowEnds>) -> Self {
        Self { by_type: fanouts, ends, ..self }
    }

    /// The nodes found so far, by local id.
    pub fn nodes(&self) -> &[u32] {
        self.hops.frontier.nodes()
    }

    /// Relabels `nodes`, all of which the hops so far have found: replaces each global id by its local id.
    ///
    /// # Panics
    ///
    /// When a node is not below the graph's number of nodes.
    pub fn locals(&mut self, nodes: &mut [u32]) {
        self.hops.frontier.locals(nodes);
    }
}

impl HopSampler for HostHopSampler<'_> {
    fn start(&mut self, seeds: &[u32], nodes: Vec<u32>, degrees: Vec<f32>) -> Result<()> {
        self.hops.frontier.start(nodes, degrees, seeds, self.topology);
        Ok(())
    }

    fn num_nodes(&self) -> usize {
        self.nodes().len()
    }

    fn expand(&mut self, hop: Hop<'_>, block: &mut Block) -> Result<()> {
        let Self { topology, hops: HostHops { frontier, sub_rows, buffers }, excluded, by_type, ends } = self;
        let Hop { picks, first, num_dst, is_last } = hop;
        // Nodes found by the last hop are not expanded.
        let locate = !is_last || !frontier.knows_degrees();
        let check = NeighborCheck::new(topology);
        if let Some(excluded) = excluded {
            frontier.leave_out(excluded);
        }
        let (indices, check_ref, excluded) = (topology.indices(), check.as_ref(), *excluded);
        let rows = RowPicker { indices, check: check_ref, picks, excluded, by_type: &[] };
        if let (Some(edge_types), Some(fanouts)) = (topology.edge_types(), by_type.get(picks.hop as usize)) {
            let rows = RowPicker { by_type: fanouts, ..rows };
            let of_hop = &frontier.rows()[first..];
            match ends {
                Some(ends) => sub_rows.divide_by(of_hop, &frontier.nodes()[first..], ends, &rows),
                None => sub_rows.divide(of_hop, edge_types, &rows),
            }
            let mut types = block.edge_types.take().unwrap_or_default();
            picks.begin(block, num_dst, sub_rows.counts())?;
            sub_rows.begin(&mut types);
            let sub_rows = Some(sub_rows.rows());
            Stages { rows, topology, first, sub_rows, locate }.run(frontier, buffers, block);
            block.edge_types = Some(types);
            return check.map_or(Ok(()), |check| check.result(picks.batch));
        }
        picks.begin(block, num_dst, frontier.rows()[first..].iter().map(|&row| rows.count(row)))?;
        Stages { rows, topology, first, sub_rows: None, locate }.run(frontier, buffers, block);
        check.map_or(Ok(()), |check| check.result(picks.batch))
    }

    fn finish(&mut self) -> Result<(Vec<u32>, Vec<f32>)> {
        Ok(self.hops.frontier.finish())
    }
}
