//! Rows that lose edges in a mini-batch of pairs, written out by the host.

use morphgl_cuda::{Buffer, Stream};
use morphgl_graph_store::Dataset;
use morphgl_registry::Result;
use morphgl_sampler_core::{Excluded, weight_sum};

use crate::buffer::grow;
use crate::cache::{CACHED, PART};
use crate::typed::Typed;

/// The rows that lose edges in a mini-batch, without these, in device memory: one more part of the cached rows. Each mini-batch has its
/// rows in the memory of those before, which grows on demand and never shrinks.
#[derive(Debug)]
pub(crate) struct Without {
    /// Their nodes, ascending.
    pub(crate) nodes: Buffer<u32>,
    pub(crate) starts: Buffer<u64>,
    pub(crate) lens: Buffer<u32>,
    /// The nodes' degrees, or sums of weights.
    pub(crate) degrees: Buffer<f32>,
    pub(crate) lists: Buffer<u32>,
    pub(crate) weights: Option<Buffer<f32>>,
    /// Addresses of the parts of the cached rows and of the lists, and of their weights.
    pub(crate) parts: Buffer<u64>,
    pub(crate) weight_parts: Option<Buffer<u64>>,
    /// The ends of their sub-rows, of a graph with types that is sampled by them.
    pub(crate) ends: Option<Buffer<u32>>,
    /// Times of the edges, and the addresses of the parts, as of weights.
    pub(crate) times: Option<Buffer<i64>>,
    pub(crate) time_parts: Option<Buffer<u64>>,
}

impl Without {
    /// No rows, of a graph with weights or without, with the ends of sub-rows, and with times of edges.
    pub(crate) fn empty([weights, ends, times]: [bool; 3], stream: &Stream) -> Result<Self> {
        Ok(Self {
            ends: ends.then(|| Buffer::new(stream, 0)).transpose()?,
            times: times.then(|| Buffer::new(stream, 0)).transpose()?,
            time_parts: times.then(|| Buffer::new(stream, 0)).transpose()?,
            nodes: Buffer::new(stream, 0)?,
            starts: Buffer::new(stream, 0)?,
            lens: Buffer::new(stream, 0)?,
            degrees: Buffer::new(stream, 0)?,
            lists: Buffer::new(stream, 0)?,
            parts: Buffer::new(stream, 0)?,
            weight_parts: weights.then(|| Buffer::new(stream, 0)).transpose()?,
            weights: weights.then(|| Buffer::new(stream, 0)).transpose()?,
        })
    }

    /// Replaces the rows by those of a mini-batch, of a graph whose cached rows are in `part` parts.
    pub(crate) fn set(
        &mut self,
        (dataset, typed): (&Dataset, Option<&Typed>),
        part: usize,
        excluded: &Excluded,
        stream: &Stream,
    ) -> Result<()> {
        let topology = &dataset.topology;
        let (all, all_weights): (&[u32], Option<&[f32]>) = (topology.indices(), topology.weights().map(|w| &**w));
        assert!(part < 1 << (63 - PART), "{part} parts of cached rows");
        let (mut nodes, mut starts, mut lens, mut degrees) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut lists, mut weights, mut ends, mut times) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let all_times = self.times.as_ref().and(topology.edge_times());
        for (node, row) in excluded.iter() {
            let first = lists.len();
            nodes.push(node);
            starts.push(CACHED | (part as u64) << PART | first as u64);
            lens.push(row.degree);
            lists.extend(row.edges().map(|edge| all[edge as usize]));
            if let Some(all) = all_times {
                times.extend(row.edges().map(|edge| all[edge as usize]));
            }
            if let Some(typed) = typed {
                typed.lost_ends(node, |position| row.num_left_before(position), &mut ends);
            }
            degrees.push(match all_weights {
                None => row.degree as f32,
                Some(all) => {
                    weights.extend(row.edges().map(|edge| all[edge as usize]));
                    weight_sum(&weights[first..])
                }
            });
        }
        self.nodes.replace(stream, &nodes)?;
        self.starts.replace(stream, &starts)?;
        self.lens.replace(stream, &lens)?;
        self.degrees.replace(stream, &degrees)?;
        self.lists.replace(stream, &lists)?;
        grow(stream, &mut self.parts, part as u64 + 1, 0)?;
        self.ends.as_mut().map_or(Ok(()), |to| to.replace(stream, &ends))?;
        self.times.as_mut().map_or(Ok(()), |to| to.replace(stream, &times))?;
        self.time_parts.as_mut().map_or(Ok(()), |to| grow(stream, to, part as u64 + 1, 0))?;
        self.weights.as_mut().map_or(Ok(()), |to| to.replace(stream, &weights))?;
        self.weight_parts.as_mut().map_or(Ok(()), |to| grow(stream, to, part as u64 + 1, 0))
    }

    /// The rows, where any lose edges.
    pub(crate) fn any(&self) -> Option<&Self> {
        Some(self).filter(|rows| !rows.nodes.is_empty())
    }

    /// Bytes of at most so many rows, with so many edges together of so many bytes each besides their neighbour.
    pub(crate) fn bytes_of(rows: u64, edges: u64, per_edge: u64) -> u64 {
        20 * rows + (4 + per_edge) * edges
    }

    /// Bytes of the ends of the sub-rows of at most so many rows.
    pub(crate) fn end_bytes(typed: Option<&Typed>, rows: u64) -> u64 {
        typed.filter(|typed| typed.ends.is_some()).map_or(0, |typed| 4 * typed.sub_rows(rows))
    }

    pub(crate) fn num_bytes(&self) -> u64 {
        let narrow = [&self.nodes, &self.lens, &self.lists].map(Buffer::num_bytes).into_iter().sum::<u64>();
        let parts = [&self.weight_parts, &self.time_parts].map(Option::as_ref);
        let wide = [Some(&self.starts), Some(&self.parts)].into_iter().chain(parts).flatten();
        narrow
            + self.ends.as_ref().map_or(0, Buffer::num_bytes)
            + self.times.as_ref().map_or(0, Buffer::num_bytes)
            + wide.map(Buffer::num_bytes).sum::<u64>()
            + self.degrees.num_bytes()
            + self.weights.as_ref().map_or(0, Buffer::num_bytes)
    }
}
