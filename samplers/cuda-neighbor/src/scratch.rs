//! Scratch memory of a stream, reused by its mini-batches.

use bytemuck::Pod;
use morphgl_cuda::{Buffer, Device, Pinned, Stream};
use morphgl_registry::Result;

use crate::kernels::{Kernels, Table};
use crate::launch::scan_blocks;

/// Minimum entries of a table.
const LEAST_ENTRIES: u64 = 64;

/// Message for parts that must have been allocated.
pub(crate) const GROWN: &str = "it was given room at the start";

/// Scratch memory of a stream. Its parts grow on demand and never shrink.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) stream: Stream,
    /// Sizes of the hops; see `kernels/sample.cu`.
    pub(crate) counts: Buffer<u64>,
    pub(crate) table: Option<Table>,
    /// Start and length of each node's row.
    pub(crate) start: Option<Buffer<u64>>,
    pub(crate) len: Option<Buffer<u32>>,
    pub(crate) positive: Option<Buffer<u32>>,
    /// Hash-table slot of each edge's source node.
    pub(crate) slots: Option<Buffer<u32>>,
    pub(crate) firsts: Option<Buffer<u32>>,
    pub(crate) sums: Option<Buffer<u64>>,
    /// Positions of picked edges, if one kernel picks and another reads.
    pub(crate) picked: Option<Buffer<u64>>,
    pub(crate) large: Option<Buffer<u64>>,
    /// Pinned copy of `counts` for size queries between hops.
    pub(crate) sizes: Pinned<u64>,
    /// Peak capacities so far: nodes, and rows and edges of each hop.
    peak_nodes: u64,
    peaks: Vec<[u64; 2]>,
}

/// Parts that a hop needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needs {
    /// Capacity in edges.
    pub(crate) edges: u64,
    pub(crate) picked: bool,
    /// Fanout, if whole blocks pick rows.
    pub(crate) large: Option<u32>,
}

impl Scratch {
    pub(crate) fn new(device: &Device, hops: usize) -> Result<Self> {
        let stream = Stream::new(device, false)?;
        Ok(Self {
            counts: Buffer::new(&stream, 2 * hops + 1)?,
            sizes: Pinned::new(device, 2 * hops + 1)?,
            stream,
            table: None,
            start: None,
            len: None,
            positive: None,
            slots: None,
            firsts: None,
            sums: None,
            picked: None,
            large: None,
            peak_nodes: 0,
            peaks: vec![[0; 2]; hops],
        })
    }

    /// Grows per-node arrays to `nodes`, preserving the first `kept`.
    pub(crate) fn grow_nodes(&mut self, nodes: u64, kept: u64, weighted: bool) -> Result<()> {
        grow(&self.stream, &mut self.start, nodes, kept)?;
        grow(&self.stream, &mut self.len, nodes, kept)?;
        if weighted {
            grow(&self.stream, &mut self.positive, nodes, kept)?;
        }
        Ok(())
    }

    /// Grows the scan buffers for rows.
    pub(crate) fn grow_sums(&mut self, elements: u64) -> Result<()> {
        grow(&self.stream, &mut self.sums, scan_blocks(elements) as u64, 0)
    }

    /// Grows per-edge arrays.
    pub(crate) fn grow_edges(&mut self, needs: &Needs, kernels: &Kernels) -> Result<()> {
        let words = needs.edges.div_ceil(32);
        grow(&self.stream, &mut self.slots, needs.edges, 0)?;
        grow(&self.stream, &mut self.firsts, words, 0)?;
        self.grow_sums(words)?;
        if needs.picked {
            grow(&self.stream, &mut self.picked, needs.edges, 0)?;
        }
        match needs.large.map(|fanout| kernels.large_scratch(fanout).0) {
            None | Some(0) => Ok(()),
            Some(words) => grow(&self.stream, &mut self.large, words as u64, 0),
        }
    }

    /// Empties the table for another mini-batch.
    pub(crate) fn empty_table(&mut self) -> Result<()> {
        if let Some(table) = &mut self.table {
            table.stamp += 1;
            if table.stamp >> (32 - table.value_bits) > 0 {
                clear(&self.stream, table)?;
            }
        }
        Ok(())
    }

    /// Ensures a table for `nodes` of the graph's `num_nodes` nodes with values up to `most`; returns whether it is new.
    pub(crate) fn grow_table(&mut self, nodes: u64, num_nodes: u64, most: u64) -> Result<bool> {
        let whole = num_nodes.next_power_of_two().max(LEAST_ENTRIES);
        // Load factor at most two thirds, or one entry per node.
        let len = (nodes + nodes / 2).next_power_of_two().max(LEAST_ENTRIES).min(whole);
        let value_bits = 64 - most.leading_zeros();
        if self.table.as_ref().is_some_and(|table| table.len >= len && table.value_bits >= value_bits) {
            return Ok(false);
        }
        let known = self.table.take();
        let value_bits = known.as_ref().map_or(value_bits, |t| t.value_bits.max(value_bits));
        let entries = match known {
            Some(known) if known.len >= len => known.entries,
            _ => Buffer::new(&self.stream, len as usize)?,
        };
        let len = entries.len() as u64;
        let mut table = Table { entries, len, value_bits, direct: len >= whole, stamp: 0 };
        clear(&self.stream, &mut table)?;
        self.table = Some(table);
        Ok(true)
    }

    /// Bytes of device memory.
    pub(crate) fn num_bytes(&self) -> u64 {
        let table = self.table.as_ref().map(|table| &table.entries);
        let wide = [table, self.start.as_ref(), self.sums.as_ref(), self.picked.as_ref(), self.large.as_ref()];
        let narrow = [&self.len, &self.positive, &self.slots, &self.firsts];
        self.counts.num_bytes()
            + wide.into_iter().flatten().map(Buffer::num_bytes).sum::<u64>()
            + narrow.into_iter().flatten().map(Buffer::num_bytes).sum::<u64>()
    }

    /// Node capacity of the next mini-batch: the peak so far.
    pub(crate) fn peak_nodes(&mut self, nodes: u64) -> u64 {
        self.peak_nodes = self.peak_nodes.max(nodes);
        self.peak_nodes
    }

    /// Row capacity of hop `hop`.
    pub(crate) fn peak_rows(&mut self, hop: usize, rows: u64) -> u64 {
        let peak = &mut self.peaks[hop][0];
        *peak = rows.max(*peak);
        *peak
    }

    /// Edge capacity of hop `hop`.
    pub(crate) fn peak_edges(&mut self, hop: usize, edges: u64) -> u64 {
        let peak = &mut self.peaks[hop][1];
        *peak = edges.max(*peak);
        *peak
    }
}

fn clear(stream: &Stream, table: &mut Table) -> Result<()> {
    stream.fill(&mut table.entries, 0)?;
    table.stamp = 1;
    Ok(())
}

/// Grows `buffer` to at least `len` elements, preserving the first `kept`.
pub(crate) fn grow<T: Pod>(stream: &Stream, buffer: &mut Option<Buffer<T>>, len: u64, kept: u64) -> Result<()> {
    if buffer.as_ref().is_some_and(|buffer| buffer.len() as u64 >= len) {
        return Ok(());
    }
    let mut grown = Buffer::new(stream, len as usize)?;
    if let Some(old) = buffer {
        stream.copy(old, 0..old.len().min(kept as usize), &mut grown, 0)?;
    }
    *buffer = Some(grown);
    Ok(())
}
