//! Scratch memory of a stream, reused by its mini-batches.

use bytemuck::Pod;
use morphgl_cuda::{Buffer, Device, Pinned, Stream};
use morphgl_registry::Result;

use crate::kernels::Table;
use crate::launch::{row_blocks, word_blocks};

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
    /// Edges of positive weight of each node's row, for weighted picks.
    pub(crate) positive: Buffer<u32>,
    /// Hash-table slot of each edge's source node.
    pub(crate) slots: Buffer<u32>,
    pub(crate) firsts: Buffer<u32>,
    pub(crate) sums: Buffer<u64>,
    /// Positions of picked edges, if one kernel picks and another reads.
    pub(crate) picked: Buffer<u64>,
    /// Draws of picks that exceed shared memory.
    pub(crate) large: Buffer<u64>,
    /// Rows in the order of their pages, and the counters by which they are put in it.
    pub(crate) order: Buffer<u32>,
    pub(crate) buckets: Buffer<u32>,
    /// Pinned copy of `counts` for size queries between hops.
    pub(crate) sizes: Pinned<u64>,
    /// Peak capacities so far: nodes, and rows and edges of each hop.
    pub(crate) peak_nodes: u64,
    pub(crate) peak_rows: Vec<u64>,
    pub(crate) peak_edges: Vec<u64>,
}

impl Scratch {
    pub(crate) fn new(device: &Device, hops: usize) -> Result<Self> {
        let stream = Stream::new(device, false)?;
        Ok(Self {
            counts: Buffer::new(&stream, 2 * hops + 1)?,
            sizes: Pinned::new(device, 2 * hops + 1)?,
            table: Table { entries: Buffer::new(&stream, 0)?, value_bits: 0, direct: false, stamp: 0 },
            start: Buffer::new(&stream, 0)?,
            len: Buffer::new(&stream, 0)?,
            key: Buffer::new(&stream, 0)?,
            positive: Buffer::new(&stream, 0)?,
            slots: Buffer::new(&stream, 0)?,
            firsts: Buffer::new(&stream, 0)?,
            sums: Buffer::new(&stream, 0)?,
            picked: Buffer::new(&stream, 0)?,
            large: Buffer::new(&stream, 0)?,
            order: Buffer::new(&stream, 0)?,
            buckets: Buffer::new(&stream, 0)?,
            stream,
            peak_nodes: 0,
            peak_rows: vec![0; hops],
            peak_edges: vec![0; hops],
        })
    }

    /// Grows per-node arrays to `nodes`, preserving the first `preserved`.
    pub(crate) fn grow_nodes(&mut self, nodes: u64, preserved: u64, (weighted, keyed): (bool, bool)) -> Result<()> {
        grow(&self.stream, &mut self.start, nodes, preserved)?;
        grow(&self.stream, &mut self.len, nodes, preserved)?;
        if keyed {
            grow(&self.stream, &mut self.key, nodes, preserved)?;
        }
        if weighted {
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

    /// Empties the table for another mini-batch.
    pub(crate) fn empty_table(&mut self) -> Result<()> {
        self.table.stamp += 1;
        if self.table.stamp >> (32 - self.table.value_bits) > 0 {
            clear(&self.stream, &mut self.table)?;
        }
        Ok(())
    }

    /// Ensures a table for `nodes` of the graph's `num_nodes` nodes with values up to `max_value`; returns whether it is new.
    pub(crate) fn grow_table(&mut self, nodes: u64, num_nodes: u64, max_value: u64) -> Result<bool> {
        let whole = num_nodes.next_power_of_two().max(MIN_ENTRIES);
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

    pub(crate) fn num_bytes(&self) -> u64 {
        let wide = [&self.counts, &self.table.entries, &self.start, &self.sums, &self.picked, &self.large];
        let narrow = [&self.len, &self.key, &self.positive, &self.slots, &self.firsts, &self.order, &self.buckets];
        wide.map(Buffer::num_bytes).iter().chain(&narrow.map(Buffer::num_bytes)).sum()
    }
}

fn clear(stream: &Stream, table: &mut Table) -> Result<()> {
    stream.fill(&mut table.entries, 0)?;
    table.stamp = 1;
    Ok(())
}

/// Grows `buffer` to at least `len` elements, preserving the first `preserved`.
pub(crate) fn grow<T: Pod>(stream: &Stream, buffer: &mut Buffer<T>, len: u64, preserved: u64) -> Result<()> {
    if (buffer.len() as u64) < len {
        let mut grown = Buffer::new(stream, len as usize)?;
        stream.copy(buffer, 0..buffer.len().min(preserved as usize), &mut grown, 0)?;
        *buffer = grown;
    }
    Ok(())
}

/// Raises a peak to `value`, and returns it.
pub(crate) fn raise(peak: &mut u64, value: u64) -> u64 {
    *peak = value.max(*peak);
    *peak
}
