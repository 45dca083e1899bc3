//! The rows of a hop of disjoint trees.

use std::ops::Range;

use morphgl_platform::direct::{Fetch, Reader};
use morphgl_registry::{BatchId, Block, Result};
use morphgl_sampler_core::{Relabel, TreeRows};

use crate::graph::check_nodes;
use crate::located::{Located, read_rows};
use crate::offsets::CsrRow;
use crate::sampler::Shared;

/// Rows of the dataset's files. A node that is in several trees is read once per hop; within times, rows are read whole, with the times of
/// their edges.
#[derive(Debug)]
pub(crate) struct DiskTrees<'w> {
    pub(crate) shared: &'w Shared,
    pub(crate) reader: &'w mut Reader,
    pub(crate) buffers: &'w mut TreeBuffers,
    /// Times of the seeds, in their order, where they are not those of their nodes.
    pub(crate) seed_times: Option<&'w [i64]>,
}

/// Buffers, reused from mini-batch to mini-batch.
#[derive(Debug, Default)]
pub(crate) struct TreeBuffers {
    /// The distinct nodes of the hop, and the index among them of each of its rows.
    relabel: Relabel,
    slots: Vec<u32>,
    located: Located,
    fetches: Vec<Fetch>,
    /// Rows that are not cached, and their in-neighbours.
    missing: Vec<CsrRow>,
    uncached: Vec<u32>,
    /// Within times, in-neighbours and times of all edges of the distinct rows, and where each row begins.
    neighbors: Vec<u32>,
    times: Vec<i64>,
    starts: Vec<usize>,
}

impl DiskTrees<'_> {
    /// Finds the distinct nodes of `nodes`, and their rows.
    fn locate(&mut self, nodes: &[u32]) -> Result<()> {
        let Self { shared, reader, buffers: TreeBuffers { relabel, slots, located, .. }, .. } = self;
        slots.clear();
        slots.extend_from_slice(nodes);
        let distinct = relabel.finish();
        relabel.start(distinct);
        relabel.locals(slots);
        located.clear();
        located.append(shared, relabel.nodes(), reader)
    }

    fn is_bounded(&self) -> bool {
        self.shared.is_bounded()
    }

    /// The CSR row at an index of the hop.
    fn row(&self, index: usize) -> CsrRow {
        self.buffers.located.rows[self.buffers.slots[index] as usize]
    }
}

impl TreeRows for DiskTrees<'_> {
    fn begin(&mut self, nodes: &[u32]) -> Result<()> {
        self.locate(nodes)?;
        let Self {
            shared,
            reader,
            buffers: TreeBuffers { relabel, located, fetches, missing, uncached, neighbors, times, starts, .. },
            ..
        } = self;
        if !shared.is_bounded() {
            return Ok(());
        }
        let rows = &located.rows;
        starts.clear();
        starts.extend(rows.iter().scan(0, |end, row| {
            let start = *end;
            *end += row.degree as usize;
            Some(start)
        }));
        let indices = &shared.files.indices;
        let list = |slot: usize| shared.caches.lists.as_ref().and_then(|lists| lists.get(relabel.nodes()[slot]));
        missing.clear();
        missing.extend(rows.iter().enumerate().filter(|(slot, _)| list(*slot).is_none()).map(|(_, &row)| row));
        let read = |reader: &mut Reader| read_rows(indices, missing, reader, fetches, uncached);
        shared.counted(reader, |counts| &mut counts.neighbors, read)?;
        shared.count(|counts| {
            counts.row_hits.hits += (rows.len() - missing.len()) as u64;
            counts.row_hits.misses += missing.len() as u64;
        });
        if missing.len() == rows.len() {
            std::mem::swap(neighbors, uncached);
        } else {
            neighbors.clear();
            let mut rest = &uncached[..];
            for (slot, row) in rows.iter().enumerate() {
                neighbors.extend_from_slice(match list(slot) {
                    Some(list) => list,
                    None => rest.split_off(..row.degree as usize).expect("as many as were read"),
                });
            }
        }
        let element = |at: usize| {
            let row = starts.partition_point(|&start| start <= at) - 1;
            rows[row].start + (at - starts[row]) as u64
        };
        check_nodes(indices, neighbors, shared.num_nodes, element)?;
        match &shared.files.edge_times {
            Some(on_disk) => {
                let read = |reader: &mut Reader| read_rows(on_disk, rows, reader, fetches, times);
                shared.counted(reader, |counts| &mut counts.edge_types, read)?;
            }
            None => {
                times.clear();
                times.resize(neighbors.len(), i64::MIN);
            }
        }
        if let Some(of_nodes) = shared.node_times() {
            times.iter_mut().zip(&*neighbors).for_each(|(time, &node)| *time = (*time).max(of_nodes[node as usize]));
        }
        Ok(())
    }

    fn prefetch(&self, _: u32) {}

    fn sub_rows(&self, row: usize, _: u32) -> impl Iterator<Item = (u16, Range<usize>)> {
        let start = self.row(row).start as usize;
        let sub_rows = self.buffers.located.sub_rows(self.buffers.slots[row] as usize);
        sub_rows.map(move |(edge_type, row)| (edge_type, start + row.start as usize..start + row.end as usize))
    }

    fn time(&self, row: usize, edge: usize) -> i64 {
        self.buffers.times[self.buffers.starts[self.buffers.slots[row] as usize] + edge - self.row(row).start as usize]
    }

    fn seed_time(&self, position: usize, node: u32) -> i64 {
        match self.seed_times {
            Some(times) => times[position],
            None => self.shared.node_times().map_or(i64::MAX, |times| times[node as usize]),
        }
    }

    fn neighbors(&mut self, _: BatchId, edges: &[u64], ends: &[u32], out: &mut Vec<u32>) -> Result<()> {
        out.clear();
        out.resize(edges.len(), 0);
        let is_bounded = self.is_bounded();
        let Self { shared, reader, buffers, .. } = self;
        let TreeBuffers { relabel, slots, located, fetches, neighbors, starts, .. } = &mut **buffers;
        fetches.clear();
        for (&slot, ends) in slots.iter().zip(ends.windows(2)) {
            let (slot, range) = (slot as usize, ends[0] as usize..ends[1] as usize);
            let start = located.rows[slot].start;
            let known = match &shared.caches.lists {
                _ if range.is_empty() => continue,
                _ if is_bounded => Some(&neighbors[starts[slot]..]),
                Some(lists) => lists.get(relabel.nodes()[slot]),
                None => None,
            };
            match known {
                Some(row) => {
                    let picked = out[range.clone()].iter_mut().zip(&edges[range]);
                    picked.for_each(|(node, &edge)| *node = row[(edge - start) as usize]);
                }
                None => fetches.extend(edges[range].iter().zip(ends[0]..).map(|(&element, to)| Fetch { element, to })),
            }
        }
        fetches.sort_unstable();
        let indices = &shared.files.indices;
        let read = |reader: &mut Reader| indices.read(reader, fetches, bytemuck::cast_slice_mut(out));
        shared.counted(reader, |counts| &mut counts.neighbors, read)?;
        check_nodes(indices, out, shared.num_nodes, |at| edges[at])
    }

    fn edge_ids(&mut self, edges: &[u64], block: &mut Block) -> Result<()> {
        let Self { shared, reader, buffers: TreeBuffers { fetches, .. }, .. } = self;
        fetches.clear();
        fetches.extend(edges.iter().zip(0..).map(|(&element, to)| Fetch { element, to }));
        shared.read_edge_ids(reader, fetches, block)
    }

    fn degrees(&mut self, nodes: &[u32], out: &mut Vec<f32>) -> Result<()> {
        if let Some(sums) = &self.shared.weight_sums {
            out.extend(nodes.iter().map(|&node| sums[node as usize]));
            return Ok(());
        }
        self.locate(nodes)?;
        out.extend((0..nodes.len()).map(|index| self.row(index).degree as f32));
        Ok(())
    }
}
