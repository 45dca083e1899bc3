//! Memory of a stream that one mini-batch after another is made in.

use bytemuck::Pod;
use morphgl_cuda::{Buffer, Device, Pinned, Stream};
use morphgl_registry::Result;

use crate::kernels::{Kernels, Table};
use crate::launch::scan_blocks;

/// Entries of a table at least.
const LEAST_ENTRIES: u64 = 64;

/// Why a part of it is there.
pub(crate) const GROWN: &str = "it was given room at the start";

/// A stream's scratch memory. Its parts grow to what is asked for, and never shrink.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) stream: Stream,
    /// See `kernels/sample.cu`.
    pub(crate) counts: Buffer<u64>,
    pub(crate) table: Option<Table>,
    /// Where each node's row lies, and how long it is.
    pub(crate) start: Option<Buffer<u64>>,
    pub(crate) len: Option<Buffer<u32>>,
    pub(crate) positive: Option<Buffer<u32>>,
    /// Of each edge, its node's slot in the table.
    pub(crate) slots: Option<Buffer<u32>>,
    pub(crate) firsts: Option<Buffer<u32>>,
    pub(crate) sums: Option<Buffer<u64>>,
    /// Where the picked edges stand in the graph, where one kernel picks and another reads.
    pub(crate) picked: Option<Buffer<u64>>,
    pub(crate) large: Option<Buffer<u64>>,
    /// For sizes that the host asks for between two hops.
    pub(crate) sizes: Pinned<u64>,
    /// The most nodes, and rows and edges of each hop, that a mini-batch had room for so far.
    peak_nodes: u64,
    peaks: Vec<[u64; 2]>,
}

/// Which parts of it a hop needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needs {
    /// Room for this many edges.
    pub(crate) edges: u64,
    pub(crate) picked: bool,
    /// The fanout, where a block picks a row.
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

    /// Room for what belongs to `nodes` nodes, of which the first `kept` keep their content.
    pub(crate) fn grow_nodes(&mut self, nodes: u64, kept: u64, weighted: bool) -> Result<()> {
        grow(&self.stream, &mut self.start, nodes, kept)?;
        grow(&self.stream, &mut self.len, nodes, kept)?;
        if weighted {
            grow(&self.stream, &mut self.positive, nodes, kept)?;
        }
        Ok(())
    }

    /// Room for the scans of rows.
    pub(crate) fn grow_sums(&mut self, elements: u64) -> Result<()> {
        grow(&self.stream, &mut self.sums, scan_blocks(elements) as u64, 0)
    }

    /// Room for a hop's edges.
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

    /// Makes the table empty for another mini-batch.
    pub(crate) fn empty_table(&mut self) -> Result<()> {
        if let Some(table) = &mut self.table {
            table.stamp += 1;
            if table.stamp >> (32 - table.value_bits) > 0 {
                clear(&self.stream, table)?;
            }
        }
        Ok(())
    }

    /// Has a table for `nodes` nodes of a graph of `num_nodes`, with values up to `most`. Whether it is a new one.
    pub(crate) fn grow_table(&mut self, nodes: u64, num_nodes: u64, most: u64) -> Result<bool> {
        let whole = num_nodes.next_power_of_two().max(LEAST_ENTRIES);
        // At most two thirds full, or an entry a node.
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

    /// Bytes of device memory that it takes.
    pub(crate) fn num_bytes(&self) -> u64 {
        let table = self.table.as_ref().map(|table| &table.entries);
        let wide = [table, self.start.as_ref(), self.sums.as_ref(), self.picked.as_ref(), self.large.as_ref()];
        let narrow = [&self.len, &self.positive, &self.slots, &self.firsts];
        self.counts.num_bytes()
            + wide.into_iter().flatten().map(Buffer::num_bytes).sum::<u64>()
            + narrow.into_iter().flatten().map(Buffer::num_bytes).sum::<u64>()
    }

    /// Nodes that a mini-batch gets room for: as many as any had before.
    pub(crate) fn peak_nodes(&mut self, nodes: u64) -> u64 {
        self.peak_nodes = self.peak_nodes.max(nodes);
        self.peak_nodes
    }

    /// Rows of hop `hop` that a mini-batch gets room for.
    pub(crate) fn peak_rows(&mut self, hop: usize, rows: u64) -> u64 {
        let peak = &mut self.peaks[hop][0];
        *peak = rows.max(*peak);
        *peak
    }

    /// Edges of hop `hop` that a mini-batch gets room for.
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

/// Makes `buffer` one of at least `len` elements, of which the first `kept` stay what they are.
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
