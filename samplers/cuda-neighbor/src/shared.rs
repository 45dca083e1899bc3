//! State that all workers share.

use std::ops::Range;
use std::sync::Arc;

use morphgl_cuda::{Device, Order, PageOrder};
use morphgl_registry::{BatchId, BatchingContext, Error, Fanout, Result};
use morphgl_sampler_core::seed_positions;

use crate::bounds::{Degrees, HopBounds, HopMemory, MAX_VALUE};
use crate::graph::Graph;
use crate::kernels::Kernels;
use crate::kind::{Blocks, Kind};
use crate::options::Options;
use crate::order::Orders;
use crate::pairs::PairSource;
use crate::typed::Typed;

/// Minimum default of `hop_bytes`.
const MIN_HOP_BYTES: u64 = 64 << 20;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) device: Device,
    pub(crate) graph: Arc<Graph>,
    pub(crate) degrees: Arc<Degrees>,
    pub(crate) kernels: Kernels,
    /// Maximum blocks of a grid: those that fill the device.
    pub(crate) max_blocks: u64,
    pub(crate) kind: Kind,
    pub(crate) batch_size: usize,
    /// Nodes of the graph.
    pub(crate) num_nodes: usize,
    /// Bits of a node and of a tree in the table, where nodes are in trees; else none.
    pub(crate) tree_bits: [u32; 2],
    /// Maximum number of seeds of a mini-batch.
    max_seeds: u64,
    /// Seed of all randomness.
    pub(crate) seed: u64,
    pub(crate) orders: Orders,
    /// The pairs, where the seeds are pairs.
    pub(crate) pairs: Option<Arc<PairSource>>,
    /// Lines of host memory in flight.
    lines: u32,
    /// The order of pages of lists on the host, where they are read in it.
    pub(crate) order: Option<ListOrder>,
    hop_bytes: u64,
}

/// The order of pages, in which hops are read that may read at least so many neighbours from host memory.
#[derive(Debug)]
pub(crate) struct ListOrder {
    pub(crate) pages: PageOrder,
    min_reads: usize,
}

/// What an operator samples by, in each of the graphs that it tries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sources<'a> {
    pub(crate) kind: &'a Kind,
    pub(crate) degrees: &'a Arc<Degrees>,
    pub(crate) pairs: Option<&'a Arc<PairSource>>,
}

/// Sizes reachable without a query by the host: up to the last hop, or to the first one with too large a bound.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reach {
    /// Maximum number of nodes then.
    pub(crate) nodes: u64,
    /// Maximum hash-table value.
    pub(crate) values: u64,
}

impl Shared {
    pub(crate) fn new(
        context: &BatchingContext,
        device: &Device,
        options: &Options,
        (graph, Sources { kind, degrees, pairs }): (Arc<Graph>, Sources<'_>),
        by_page: bool,
    ) -> Result<Self> {
        let settings = &context.settings;
        let shuffle = settings.shuffle.then_some(settings.seed);
        let properties = device.properties()?;
        let kernels = Kernels::load(device)?;
        let order = graph.lists_on_host().filter(|lists| by_page && !lists.is_empty()).map(|lists| {
            let [count, scan, place] =
                [&kernels.sample_order_count, &kernels.sample_order_scan, &kernels.sample_order_place];
            let bytes = (lists.len() * size_of::<u32>()) as u64;
            let pages = PageOrder::new([count.clone(), scan.clone(), place.clone()], lists.address(), bytes);
            ListOrder { pages, min_reads: if options.order == Order::Pages { 0 } else { Order::MIN_READS } }
        });
        let num_nodes = context.dataset.num_nodes();
        let orders = Orders::new(context.seeds.clone(), &context.dataset, shuffle);
        let max_seeds =
            pairs.map_or(settings.batch_size.min(orders.len()) as u64, |p| p.max_seeds(settings.batch_size));
        let bits = |count: u64| u64::BITS - count.saturating_sub(1).leading_zeros();
        let has_trees = kind.typed.as_ref().is_some_and(|typed| typed.has_trees());
        Ok(Self {
            num_nodes,
            tree_bits: if has_trees { [bits(num_nodes as u64).max(1), bits(max_seeds)] } else { [0; 2] },
            max_seeds,
            device: device.clone(),
            graph,
            degrees: Arc::clone(degrees),
            kernels,
            lines: options.lines,
            order,
            max_blocks: u64::from(properties.multiprocessors) * 16,
            kind: kind.clone(),
            batch_size: settings.batch_size,
            seed: settings.seed,
            pairs: pairs.cloned(),
            orders,
            hop_bytes: options.hop_bytes.unwrap_or((properties.memory_bytes / 256).max(MIN_HOP_BYTES)),
        })
    }

    /// Whether blocks of the hops have weights.
    pub(crate) fn has_weights(&self) -> bool {
        match self.kind.blocks {
            Blocks::Hops => self.graph.weights.is_some(),
            Blocks::Subgraph(_) => false,
            Blocks::Walks(_) => true,
        }
    }

    pub(crate) fn num_batches(&self) -> usize {
        self.pairs.as_ref().map_or(self.orders.len(), |pairs| pairs.len()).div_ceil(self.batch_size)
    }

    /// Positions of a share's seeds in the epoch's order.
    pub(crate) fn seeds(&self, id: BatchId, share: Range<usize>) -> Result<Range<usize>> {
        seed_positions(self.orders.len(), self.batch_size, id, share)
    }

    /// Maximum blocks of a kernel that reads the graph over the bus, of which each has `lines` lines in flight there: as many as keep the
    /// link busy, whose requests bound what is read, and more the fewer reads come over it.
    pub(crate) fn reading_blocks(&self, lines: u64) -> u64 {
        blocks(u64::from(self.lines), lines, self.graph.host_share, self.max_blocks)
    }

    /// The order in which the lists of a hop of these bounds are read, if it is another than that of the nodes.
    pub(crate) fn order_of(&self, bounds: &HopBounds) -> Option<&PageOrder> {
        let from_host = bounds.edges as f64 * self.graph.host_share;
        self.order.as_ref().filter(|order| from_host >= order.min_reads as f64).map(|order| &order.pages)
    }

    /// What memory of hops depends on.
    fn hop_memory(&self) -> HopMemory {
        let picked = self.kind.weighted() || self.kind.walks().is_some();
        let keyed = self.graph.draw_keys.is_some();
        let typed = self.kind.typed.as_deref();
        HopMemory {
            weights: self.has_weights(),
            picked: picked && typed.is_none(),
            keyed,
            ordered: self.order.is_some(),
            typed: typed.is_some(),
            trees: typed.is_some_and(Typed::has_trees),
            sub_rows: typed.map_or(0, Typed::row_bytes),
        }
    }

    /// Bytes of device memory of a mini-batch, as far as it is allocated by upper bounds, and of pairs and the rows that lose edges.
    pub(crate) fn max_batch_bytes(&self) -> u64 {
        let memory = self.hop_memory();
        let hops: Vec<HopBounds> =
            self.bounds_from(0, self.first_hop()).take_while(|bounds| self.fits(bounds)).collect();
        let mut bytes: u64 = hops.iter().map(|bounds| bounds.bytes(memory)).sum();
        if let Some((layers, last)) = self.kind.subgraphs().zip(hops.last().filter(|_| hops.len() == self.num_hops())) {
            let subgraph = self.degrees.subgraph(last);
            bytes += if self.fits_subgraph(&subgraph, layers) { self.subgraph_bytes(&subgraph, layers) } else { 0 };
        }
        bytes + self.pairs.as_ref().map_or(0, |pairs| pairs.max_bytes(self.batch_size, &self.kind))
    }

    /// Refuses mini-batches whose upper bounds exceed the free device memory.
    pub(crate) fn check_memory(&self, in_flight: usize) -> Result<()> {
        let (all, free) = (self.max_batch_bytes().saturating_mul(in_flight as u64), self.device.free_bytes()?);
        if all > free {
            let of_pairs = self.pairs.as_ref().map_or("", |_| ", the rows of pairs' ends that lose edges among them");
            let message = format!(
                "{in_flight} mini-batches under way take up to {all} bytes of device memory{of_pairs}, and {free} are free; \
                 give a smaller batch size or fanouts, or a smaller in_flight or topology_bytes"
            );
            return Err(Error::setting(&self.kind.key, message));
        }
        Ok(())
    }

    pub(crate) fn num_hops(&self) -> usize {
        self.kind.hops.fanouts.0.len()
    }

    pub(crate) fn first_hop(&self) -> HopBounds {
        self.of_seeds(self.kind.hops.fanouts.0[0])
    }

    /// Bounds of a hop that expands the seeds.
    pub(crate) fn of_seeds(&self, fanout: Fanout) -> HopBounds {
        // Of pairs each seed occurs once, and each in a tree of its own is another node.
        let is_distinct = self.pairs.is_some() || self.tree_bits[0] > 0;
        let repeats = if is_distinct { 0 } else { self.orders.num_repeats() as u64 };
        self.degrees.first_hop(self.max_seeds, repeats, fanout)
    }

    /// `bounds`, which are those of hop `hop`, and the bounds of all later hops.
    fn bounds_from(&self, hop: usize, bounds: HopBounds) -> impl Iterator<Item = HopBounds> {
        let later = self.kind.hops.fanouts.0[hop + 1..].iter().scan(bounds, |bounds, &fanout| {
            *bounds = self.degrees.after(bounds, self.kind.hops.expansion, fanout);
            Some(*bounds)
        });
        std::iter::once(bounds).chain(later)
    }

    /// Whether a hop is allocated by its upper bounds.
    pub(crate) fn fits(&self, bounds: &HopBounds) -> bool {
        bounds.bytes(self.hop_memory()) <= self.hop_bytes && bounds.edges <= MAX_VALUE / 2
    }

    /// The same of a subgraph in so many blocks.
    pub(crate) fn fits_subgraph(&self, bounds: &HopBounds, layers: usize) -> bool {
        self.subgraph_bytes(bounds, layers) <= self.hop_bytes && bounds.edges <= MAX_VALUE / 2
    }

    /// Bytes of the edges of a subgraph in all its blocks.
    fn subgraph_bytes(&self, bounds: &HopBounds, layers: usize) -> u64 {
        let edge = if self.graph.weights.is_some() { 8 } else { 4 };
        bounds.edges.saturating_mul(layers as u64 * edge)
    }

    /// Reach of mini-batch `id` from hop `hop` on; if `exact`, the bounds are that hop's sizes, and it is always included.
    pub(crate) fn reach(&self, id: BatchId, hop: usize, bounds: HopBounds, exact: bool) -> Result<Reach> {
        let mut reach = Reach { nodes: bounds.rows, values: bounds.rows };
        for (i, bounds) in self.bounds_from(hop, bounds).enumerate() {
            if !(self.fits(&bounds) || exact && i == 0) {
                reach.nodes = reach.nodes.max(bounds.rows);
                break;
            }
            reach.nodes = bounds.nodes;
            reach.values = reach.values.max(bounds.rows + bounds.edges);
        }
        if reach.values > MAX_VALUE {
            let message = "a hop may have more than 2^31 - 1 edges; give a smaller batch size or fanouts";
            return Err(Error::setting(id, message));
        }
        let [node_bits, tree_bits] = self.tree_bits;
        let value_bits = u64::BITS - reach.values.leading_zeros();
        if node_bits + tree_bits + value_bits >= u64::BITS {
            let message = format!(
                "the table of its nodes has no room for {} trees in a graph of {} nodes; give a smaller batch size or fanouts",
                self.max_seeds, self.num_nodes
            );
            return Err(Error::setting(id, message));
        }
        Ok(reach)
    }

    /// Sampling by edge type.
    pub(crate) fn typed(&self) -> &Typed {
        self.kind.typed.as_ref().expect("rows are divided by edge type")
    }

    /// Entry of `counts` with the number of sub-rows of a hop.
    pub(crate) fn sub_rows_entry(&self) -> u32 {
        2 * self.num_hops() as u32 + 1
    }

    /// Whether candidates are counted among the edges of sub-rows, before they are picked by weight or within times.
    pub(crate) fn counts_candidates(&self) -> bool {
        self.kind.weighted() || self.typed().is_timed()
    }
}

/// Blocks for so many lines in flight, of which each block has `each`, where a read is from host memory with probability `host_share`; at
/// most `max`.
fn blocks(lines: u64, each: u64, host_share: f64, max: u64) -> u64 {
    // A division by 0 is infinity, which is clamped as well.
    ((lines.div_ceil(each) as f64 / host_share) as u64).clamp(1, max)
}

#[cfg(test)]
mod tests {
    use super::blocks;

    #[test]
    fn blocks_are_as_many_as_lines_are_in_flight() {
        for (lines, each, host_share, expected) in [
            (1536, 128, 1.0, 12),
            (1536, 80, 1.0, 20),
            (1536, 4, 1.0, 384),
            (1, 128, 1.0, 1),
            (1536, 128, 0.5, 24),
            (1536, 128, 0.01, 1200),
            (1536, 128, 0.0, 2112),
            (1 << 30, 4, 1.0, 2112),
        ] {
            assert_eq!(blocks(lines, each, host_share, 2112), expected, "{lines} lines, {each} each, {host_share}");
        }
    }
}
