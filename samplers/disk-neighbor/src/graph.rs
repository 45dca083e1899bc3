//! The graph in its file.

use std::cell::RefCell;

use morphgl_hotness::Graph;
use morphgl_platform::direct::Reader;
use morphgl_registry::Result;

use crate::files::OnDisk;
use crate::offsets::{CsrRow, Offsets};

/// Neighbours per read of a pass over the array.
const PASS: usize = 1 << 21;

/// The graph in its file, its offsets in memory.
pub(crate) struct DiskGraph<'a> {
    pub(crate) indices: &'a OnDisk,
    pub(crate) offsets: &'a Offsets,
    pub(crate) num_nodes: u32,
    /// A reader of whole arrays.
    pub(crate) reader: RefCell<Reader>,
}

impl DiskGraph<'_> {
    pub(crate) fn row(&self, node: u32) -> CsrRow {
        self.offsets.get(node).expect("caches are filled only if offsets are in memory")
    }
}

impl Graph for DiskGraph<'_> {
    fn num_nodes(&self) -> usize {
        self.num_nodes as usize
    }

    fn degree(&self, node: u32) -> Result<u64> {
        Ok(u64::from(self.row(node).degree))
    }

    fn scan(&self, row: &mut dyn FnMut(u32, &[u32])) -> Result<()> {
        let (len, mut node) = (self.indices.len, 0);
        let mut buffer = vec![0u32; PASS.min(len as usize)];
        for first in (0..len).step_by(PASS) {
            let part = &mut buffer[..PASS.min((len - first) as usize)];
            self.indices.pass(&mut self.reader.borrow_mut(), first, bytemuck::cast_slice_mut(part))?;
            check_nodes(self.indices, part, self.num_nodes, |i| first + i as u64)?;
            let end = first + part.len() as u64;
            while node < self.num_nodes {
                let CsrRow { start, degree } = self.row(node);
                let stop = start + u64::from(degree);
                if start >= end {
                    break;
                }
                let piece = start.max(first)..stop.min(end);
                if piece.start < piece.end {
                    row(node, &part[(piece.start - first) as usize..(piece.end - first) as usize]);
                }
                if stop > end {
                    break;
                }
                node += 1;
            }
        }
        Ok(())
    }
}

/// Refuses in-neighbours that do not exist; `element` returns the index in the file.
pub(crate) fn check_nodes(
    indices: &OnDisk,
    nodes: &[u32],
    num_nodes: u32,
    element: impl Fn(usize) -> u64,
) -> Result<()> {
    if nodes.iter().copied().max().is_none_or(|largest| largest < num_nodes) {
        return Ok(());
    }
    let at = nodes.iter().position(|&v| v >= num_nodes).expect("the maximum exists");
    let what = format!("an edge comes from node {}, but there are {num_nodes} nodes", nodes[at]);
    Err(indices.wrong(element(at), what))
}
