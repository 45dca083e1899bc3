//! Row offsets: in memory where they fit, else read.

use std::ops::Range;

use morphgl_platform::direct::{Fetch, Reader};
use morphgl_registry::Result;

use crate::files::OnDisk;

/// Nodes that share a base.
const GROUP: usize = 64;
/// Offsets read at once in a pass over the array.
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
    /// In memory, 4.1 bytes a node: a base for each 64 of them, and how far each is from it.
    Ram { bases: Vec<u64>, far: Vec<u32> },
    /// In their file, which had this many edges when all of them were checked.
    Disk { num_edges: u64 },
}

impl Offsets {
    /// Bytes they take in memory.
    pub(crate) fn num_bytes_of(num_nodes: usize) -> u64 {
        ((num_nodes + 1) * 4 + (num_nodes + 1).div_ceil(GROUP) * 8) as u64
    }

    pub(crate) fn num_bytes(&self) -> u64 {
        match self {
            Self::Ram { bases, far } => (bases.len() * 8 + far.len() * 4) as u64,
            Self::Disk { .. } => 0,
        }
    }

    /// Reads and checks all offsets, and keeps them if `keep`; with the largest degree.
    pub(crate) fn load(indptr: &OnDisk, num_edges: u64, reader: &mut Reader, keep: bool) -> Result<(Self, u64)> {
        let len = indptr.len as usize;
        let (mut bases, mut far) = (Vec::new(), Vec::new());
        if keep {
            bases.reserve_exact(len.div_ceil(GROUP));
            far.reserve_exact(len);
        }
        let (mut before, mut largest, mut keep) = (0u64, 0u64, keep);
        each(indptr, reader, &mut |i, offset| {
            if offset < before || offset > num_edges || i == 0 && offset != 0 {
                let what = format!("the offset {offset} follows {before}, and there are {num_edges} edges");
                return Err(indptr.wrong(i as u64, what));
            }
            largest = largest.max(offset - before);
            before = offset;
            if keep {
                if i.is_multiple_of(GROUP) {
                    bases.push(offset);
                }
                match u32::try_from(offset - bases[i / GROUP]) {
                    Ok(distance) => far.push(distance),
                    // 64 rows of more than 2^32 edges together: such a graph's offsets are read.
                    Err(_) => keep = false,
                }
            }
            Ok(())
        })?;
        if before != num_edges {
            let what = format!("the last offset is {before}, and there are {num_edges} edges");
            return Err(indptr.wrong(indptr.len - 1, what));
        }
        Ok((if keep { Self::Ram { bases, far } } else { Self::Disk { num_edges } }, largest))
    }

    /// The CSR row of `node`, where offsets are in memory.
    #[inline]
    pub(crate) fn get(&self, node: u32) -> Option<CsrRow> {
        let Self::Ram { bases, far } = self else { return None };
        let v = node as usize;
        let start = bases[v / GROUP] + u64::from(far[v]);
        let end = bases[(v + 1) / GROUP] + u64::from(far[v + 1]);
        Some(CsrRow { start, degree: (end - start) as u32 })
    }

    /// Appends the CSR rows of `nodes`.
    pub(crate) fn spans(
        &self,
        indptr: &OnDisk,
        nodes: &[u32],
        reader: &mut Reader,
        scratch: &mut Scratch,
        spans: &mut Vec<CsrRow>,
    ) -> Result<()> {
        let &Self::Disk { num_edges } = self else {
            spans.extend(nodes.iter().filter_map(|&node| self.get(node)));
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
        // All offsets were checked by `load`: a fault here means that the file changed since.
        for (&node, pair) in nodes.iter().zip(pairs.chunks_exact(2)) {
            let degree = pair[1].checked_sub(pair[0]).and_then(|d| u32::try_from(d).ok());
            let Some(degree) = degree.filter(|_| pair[1] <= num_edges) else {
                let (end, start) = (pair[1], pair[0]);
                let what =
                    format!("the offset {end} follows {start}, and there were {num_edges} edges: the file changed");
                return Err(indptr.wrong(u64::from(node) + 1, what));
            };
            spans.push(CsrRow { start: pair[0], degree });
        }
        Ok(())
    }
}

/// Buffers of [`Offsets::spans`].
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
