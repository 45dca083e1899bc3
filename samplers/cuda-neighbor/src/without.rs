//! Rows that lose edges in a mini-batch of pairs, written out by the host.

use morphgl_cuda::{Buffer, Stream};
use morphgl_graph_store::Dataset;
use morphgl_registry::Result;
use morphgl_sampler_core::{Excluded, weight_sum};

use crate::cache::{CACHED, PART};

/// The rows that lose edges in a mini-batch, without these, in device memory: one more part of the cached rows.
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
}

impl Without {
    /// Of a graph whose cached rows are in `part` parts.
    pub(crate) fn new(dataset: &Dataset, part: usize, excluded: &Excluded, stream: &Stream) -> Result<Self> {
        let topology = &dataset.topology;
        let (all, all_weights): (&[u32], Option<&[f32]>) = (topology.indices(), topology.weights().map(|w| &**w));
        assert!(part < 1 << (63 - PART), "{part} parts of cached rows");
        let (mut nodes, mut starts, mut lens, mut degrees) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut lists, mut weights) = (Vec::new(), Vec::new());
        for (node, row) in excluded.iter() {
            let first = lists.len();
            nodes.push(node);
            starts.push(CACHED | (part as u64) << PART | first as u64);
            lens.push(row.degree);
            lists.extend(row.edges().map(|edge| all[edge as usize]));
            degrees.push(match all_weights {
                None => row.degree as f32,
                Some(all) => {
                    weights.extend(row.edges().map(|edge| all[edge as usize]));
                    weight_sum(&weights[first..])
                }
            });
        }
        let weights = all_weights.map(|_| Buffer::of(stream, &weights)).transpose()?;
        Ok(Self {
            nodes: Buffer::of(stream, &nodes)?,
            starts: Buffer::of(stream, &starts)?,
            lens: Buffer::of(stream, &lens)?,
            degrees: Buffer::of(stream, &degrees)?,
            lists: Buffer::of(stream, &lists)?,
            parts: Buffer::new(stream, part + 1)?,
            weight_parts: weights.as_ref().map(|_| Buffer::new(stream, part + 1)).transpose()?,
            weights,
        })
    }

    pub(crate) fn num_bytes(&self) -> u64 {
        let narrow = [&self.nodes, &self.lens, &self.lists].map(Buffer::num_bytes).into_iter().sum::<u64>();
        let wide = [Some(&self.starts), Some(&self.parts), self.weight_parts.as_ref()].into_iter().flatten();
        narrow
            + wide.map(Buffer::num_bytes).sum::<u64>()
            + self.degrees.num_bytes()
            + self.weights.as_ref().map_or(0, Buffer::num_bytes)
    }
}
