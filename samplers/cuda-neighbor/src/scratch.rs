//! Scratch memory of a stream, reused by its mini-batches.

use morphgl_cuda::{Buffer, Device, Pinned, Stream};
use morphgl_registry::Result;

use crate::arrays::HopArrays;
use crate::buffer::grow;
use crate::kernels::{SizeIndices, Table};
use crate::kind::Walks;
use crate::launch::{large_scratch, row_blocks, word_blocks};
use crate::pairs::PairScratch;
use crate::typed::TypedScratch;
use crate::without::Without;

const MIN_ENTRIES: u64 = 64;

/// Scratch memory of a stream. Its parts are empty at first, grow on demand and never shrink.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) stream: Stream,
    /// Sizes of the hops; see `kernels/sample.cu`.
    pub(crate) counts: Buffer<u64>,
    pub(crate) table: Table,
    /// Start and length of each node's row.
    pub(crate) start: Buffer<u64>,
    pub(crate) len: Buffer<u32>,
    /// Draw key of each node, of a reordered graph.
    pub(crate) key: Buffer<u32>,
    /// Edges of each node's row that count: of positive weight, for weighted picks; of the subgraph.
    pub(crate) positive: Buffer<u32>,
    /// Hash-table slot of each edge's source node.
    pub(crate) slots: Buffer<u32>,
    pub(crate) firsts: Buffer<u32>,
    pub(crate) sums: Buffer<u64>,
    /// Positions of picked edges, if one kernel picks and another reads.
    pub(crate) picked: Buffer<u64>,
    /// Arrays of a hop, where the mini-batch does not keep them.
    pub(crate) hop: Option<HopArrays>,
    /// Draws of picks, and visits of walks, that exceed shared memory.
    pub(crate) large: Buffer<u64>,
    /// Rows in the order of their pages, and the counters by which they are put in it.
    pub(crate) order: Buffer<u32>,
    pub(crate) buckets: Buffer<u32>,
    /// The nodes that walks from each node visit most often, and the visits, with room for as many of each node.
    pub(crate) visited: Buffer<u32>,
    pub(crate) visits: Buffer<f32>,
    /// What sampling by edge type has besides.
    pub(crate) typed: Option<TypedScratch>,
    /// What a mini-batch of pairs has besides.
    pub(crate) pairs: Option<PairScratch>,
    /// Pinned copy of `counts` for size queries between hops.
    pub(crate) sizes: Pinned<u64>,
    /// Peak capacities so far: nodes, and rows and edges of each hop and of what is made of them.
    pub(crate) peak_nodes: u64,
    pub(crate) peak_rows: Vec<u64>,
    pub(crate) peak_edges: Vec<u64>,
}

impl Scratch {
    /// For so many hops, and `more` sizes besides theirs.
    pub(crate) fn new(device: &Device, hops: usize, more: usize) -> Result<Self> {
        let stream = Stream::new(device, false)?;
        Ok(Self {
            counts: Buffer::new(&stream, 2 * hops + 1 + more)?,
            sizes: Pinned::new(device, 2 * hops + 1 + more)?,
            table: Table {
                entries: Buffer::new(&stream, 0)?,
                value_bits: 0,
                tree_bits: [0; 2],
                direct: false,
                stamp: 0,
            },
            start: Buffer::new(&stream, 0)?,
            len: Buffer::new(&stream, 0)?,
            key: Buffer::new(&stream, 0)?,
            positive: Buffer::new(&stream, 0)?,
            slots: Buffer::new(&stream, 0)?,
            firsts: Buffer::new(&stream, 0)?,
            sums: Buffer::new(&stream, 0)?,
            picked: Buffer::new(&stream, 0)?,
            hop: None,
            large: Buffer::new(&stream, 0)?,
            order: Buffer::new(&stream, 0)?,
            buckets: Buffer::new(&stream, 0)?,
            visited: Buffer::new(&stream, 0)?,
            visits: Buffer::new(&stream, 0)?,
            typed: None,
            pairs: None,
            stream,
            peak_nodes: 0,
            peak_rows: vec![0; hops + more],
            peak_edges: vec![0; hops + more],
        })
    }

    /// Grows per-node arrays to `nodes`, preserving the first `preserved`.
    pub(crate) fn grow_nodes(&mut self, nodes: u64, preserved: u64, (counted, keyed): (bool, bool)) -> Result<()> {
        grow(&self.stream, &mut self.start, nodes, preserved)?;
        grow(&self.stream, &mut self.len, nodes, preserved)?;
        if keyed {
            grow(&self.stream, &mut self.key, nodes, preserved)?;
        }
        if counted {
            grow(&self.stream, &mut self.positive, nodes, preserved)?;
        }
        Ok(())
    }

    /// Grows the memory of the scan's sums, one per thread block, to a hop of `rows` rows.
    pub(crate) fn grow_row_sums(&mut self, rows: u64) -> Result<()> {
        grow(&self.stream, &mut self.sums, row_blocks(rows) as u64, 0)
    }

    /// Grows per-edge arrays, `picked` included if one kernel picks and another reads.
    pub(crate) fn grow_edges(&mut self, edges: u64, picked: bool) -> Result<()> {
        let words = edges.div_ceil(32);
        grow(&self.stream, &mut self.slots, edges, 0)?;
        grow(&self.stream, &mut self.firsts, words, 0)?;
        grow(&self.stream, &mut self.picked, if picked { edges } else { 0 }, 0)?;
        grow(&self.stream, &mut self.sums, word_blocks(words) as u64, 0)
    }

    /// Grows the memory of walks from `rows` nodes by at most `max_blocks` thread blocks.
    pub(crate) fn grow_walks(&mut self, walks: Walks, rows: u64, max_blocks: u64) -> Result<()> {
        let (words, _) = large_scratch(walks.steps(), max_blocks);
        grow(&self.stream, &mut self.large, words as u64, 0)?;
        grow(&self.stream, &mut self.visited, rows * u64::from(walks.keep), 0)?;
        grow(&self.stream, &mut self.visits, rows * u64::from(walks.keep), 0)
    }

    /// Empties the table for another mini-batch.
    pub(crate) fn empty_table(&mut self) -> Result<()> {
        self.table.stamp += 1;
        if self.table.stamp >> (64 - self.table.entry_bits()) > 0 {
            clear(&self.stream, &mut self.table)?;
        }
        Ok(())
    }

    /// Ensures a table for `nodes` of the graph's `num_nodes` nodes with values up to `max_value`; returns whether it is new.
    pub(crate) fn grow_table(&mut self, nodes: u64, num_nodes: u64, max_value: u64) -> Result<bool> {
        let has_trees = self.table.tree_bits[0] > 0;
        let whole = if has_trees { u64::MAX } else { num_nodes.next_power_of_two().max(MIN_ENTRIES) };
        // Load factor at most two thirds, or one entry per node.
        let len = (nodes + nodes / 2).next_power_of_two().max(MIN_ENTRIES).min(whole);
        let value_bits = 64 - max_value.leading_zeros();
        let table = &mut self.table;
        if table.len() >= len && table.value_bits >= value_bits {
            return Ok(false);
        }
        grow(&self.stream, &mut table.entries, len, 0)?;
        table.value_bits = table.value_bits.max(value_bits);
        table.direct = table.len() >= whole;
        clear(&self.stream, table)?;
        Ok(true)
    }

    /// Waits for the exact numbers of rows and edges of a hop or subgraph, since its upper bounds are too large to allocate.
    pub(crate) fn query_sizes(&mut self, indices: SizeIndices) -> Result<(u64, u64)> {
        self.stream.copy(&self.counts, 0..self.counts.len(), &mut self.sizes, 0)?;
        self.stream.record(false)?.synchronize()?;
        Ok((self.sizes[indices.rows as usize], self.sizes[indices.edges as usize]))
    }

    pub(crate) fn num_bytes(&self) -> u64 {
        let wide = [&self.counts, &self.table.entries, &self.start, &self.sums, &self.picked, &self.large];
        let narrow = [&self.len, &self.key, &self.positive, &self.slots, &self.firsts, &self.visited];
        let narrow = narrow.into_iter().chain([&self.order, &self.buckets]).map(Buffer::num_bytes);
        wide.map(Buffer::num_bytes).into_iter().chain(narrow).sum::<u64>()
            + self.visits.num_bytes()
            + self.hop.as_ref().map_or(0, HopArrays::num_bytes)
            + self.typed.as_ref().map_or(0, TypedScratch::num_bytes)
            + self.pairs.as_ref().map_or(0, PairScratch::num_bytes)
    }

    /// What sampling by edge type has.
    pub(crate) fn typed(&self) -> &TypedScratch {
        self.typed.as_ref().expect("a stream that samples by edge type has memory for it")
    }

    /// The rows of the mini-batch that lose edges, where any do.
    pub(crate) fn without(&self) -> Option<&Without> {
        self.pairs.as_ref().and_then(|pairs| pairs.without.any())
    }
}

fn clear(stream: &Stream, table: &mut Table) -> Result<()> {
    stream.fill(&mut table.entries, 0)?;
    table.stamp = 1;
    Ok(())
}

/// Raises a peak to `value`, and returns it.
pub(crate) fn raise(peak: &mut u64, value: u64) -> u64 {
    *peak = value.max(*peak);
    *peak
}
