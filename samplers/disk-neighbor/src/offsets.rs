//! Row offsets: in memory if they fit, else on disk.

use std::ops::Range;

use morphgl_platform::direct::{Fetch, Reader};
use morphgl_registry::Result;

use crate::files::OnDisk;

/// Nodes that share a base.
const GROUP: usize = 64;
/// Offsets per read of a pass over the array.
const PASS: usize = 1 << 19;

/// A node's CSR row: the range of its in-edges.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CsrRow {
    pub(crate) start: u64,
    pub(crate) degree: u32,
}

impl CsrRow {
    /// The in-edges.
    pub(crate) fn range(self) -> Range<usize> {
        self.start as usize..self.start as usize + self.degree as usize
    }
}

/// The offsets of all rows.
#[derive(Debug)]
pub(crate) enum Offsets {
    /// In memory, 4.1 bytes per node: a base for each 64 nodes, and each offset's distance from it.
    Ram { bases: Vec<u64>, distances: Vec<u32> },
    /// Left in their file and read per row; `num_edges` is the number of edges at the time all offsets were checked.
    Disk { num_edges: u64 },
}

impl Offsets {
    /// Bytes of the offsets in memory.
    pub(crate) fn num_bytes_of(num_nodes: usize) -> u64 {
        ((num_nodes + 1) * 4 + (num_nodes + 1).div_ceil(GROUP) * 8) as u64
    }

    pub(crate) fn num_bytes(&self) -> u64 {
        match self {
            Self::Ram { bases, distances } => (bases.len() * 8 + distances.len() * 4) as u64,
            Self::Disk { .. } => 0,
        }
    }

    /// Reads and checks all offsets, and keeps them in memory if `keep`; also returns the largest degree.
    pub(crate) fn load(indptr: &OnDisk, num_edges: u64, reader: &mut Reader, keep: bool) -> Result<(Self, u64)> {
        let len = indptr.len as usize;
        let (mut bases, mut distances) = (Vec::new(), Vec::new());
        if keep {
            bases.reserve_exact(len.div_ceil(GROUP));
            distances.reserve_exact(len);
        }
        let (mut previous, mut largest, mut keep) = (0u64, 0u64, keep);
        each(indptr, reader, &mut |i, offset| {
            if offset < previous || offset > num_edges || i == 0 && offset != 0 {
                let what = format!("the offset {offset} follows {previous}, and there are {num_edges} edges");
                return Err(indptr.wrong(i as u64, what));
            }
            largest = largest.max(offset - previous);
            previous = offset;
            if keep {
                if i.is_multiple_of(GROUP) {
                    bases.push(offset);
                }
                match u32::try_from(offset - bases[i / GROUP]) {
                    Ok(distance) => distances.push(distance),
                    // 64 rows with more than 2^32 edges: the offsets stay on disk.
                    Err(_) => keep = false,
                }
            }
            Ok(())
        })?;
        if previous != num_edges {
            let what = format!("the last offset is {previous}, and there are {num_edges} edges");
            return Err(indptr.wrong(indptr.len - 1, what));
        }
        Ok((if keep { Self::Ram { bases, distances } } else { Self::Disk { num_edges } }, largest))
    }

    /// The CSR row of `node`, if offsets are in memory.
    #[inline]
    pub(crate) fn get(&self, node: u32) -> Option<CsrRow> {
        let Self::Ram { bases, distances } = self else { return None };
        let v = node as usize;
        let start = bases[v / GROUP] + u64::from(distances[v]);
        let end = bases[(v + 1) / GROUP] + u64::from(distances[v + 1]);
        Some(CsrRow { start, degree: (end - start) as u32 })
    }

    /// Appends the CSR rows of `nodes`.
    pub(crate) fn append_rows(
        &self,
        indptr: &OnDisk,
        nodes: &[u32],
        reader: &mut Reader,
        scratch: &mut Scratch,
        rows: &mut Vec<CsrRow>,
    ) -> Result<()> {
        let &Self::Disk { num_edges } = self else {
            rows.extend(nodes.iter().filter_map(|&node| self.get(node)));
            return Ok(());
        };
        let Scratch { fetches, pairs } = scratch;
        fetches.clear();
        fetches.extend(
            nodes.iter().zip(0u32..).flat_map(|(&node, i)| {
                [0, 1].map(|end| Fetch { element: u64::from(node) + end, to: 2 * i + end as u32 })
            }),
        );
        fetches.sort_unstable();
        pairs.clear();
        pairs.resize(2 * nodes.len(), 0);
        indptr.read(reader, fetches, bytemuck::cast_slice_mut(pairs))?;
        // `load` checked all offsets: a fault here means that the file changed.
        for (&node, &[start, end]) in nodes.iter().zip(pairs.as_chunks::<2>().0) {
            let degree = end.checked_sub(start).and_then(|d| u32::try_from(d).ok());
            let Some(degree) = degree.filter(|_| end <= num_edges) else {
                let what =
                    format!("the offset {end} follows {start}, and there were {num_edges} edges: the file changed");
                return Err(indptr.wrong(u64::from(node) + 1, what));
            };
            rows.push(CsrRow { start, degree });
        }
        Ok(())
    }
}

/// Buffers of [`Offsets::append_rows`].
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    fetches: Vec<Fetch>,
    pairs: Vec<u64>,
}

/// Calls `each` with every offset.
pub(crate) fn each(indptr: &OnDisk, reader: &mut Reader, each: &mut dyn FnMut(usize, u64) -> Result<()>) -> Result<()> {
    let mut buffer = vec![0u64; PASS.min(indptr.len as usize)];
    for first in (0..indptr.len as usize).step_by(PASS) {
        let part = &mut buffer[..PASS.min(indptr.len as usize - first)];
        indptr.pass(reader, first as u64, bytemuck::cast_slice_mut(part))?;
        for (i, &offset) in part.iter().enumerate() {
            each(first + i, offset)?;
        }
    }
    Ok(())
}
