//! The graph in its file.

use std::cell::RefCell;

use morphgl_graph_store::Types;
use morphgl_hotness::{Graph, SubRow};
use morphgl_platform::direct::Reader;
use morphgl_registry::{Error, Result};
use morphgl_sampler_core::SubRowEnds;

use crate::files::OnDisk;
use crate::offsets::{CsrRow, Offsets};

/// Elements per read of a pass over an array.
const PASS: usize = 1 << 21;

/// The graph in its file, its offsets in memory.
pub(crate) struct DiskGraph<'a> {
    pub(crate) indices: &'a OnDisk,
    pub(crate) offsets: &'a Offsets,
    pub(crate) num_nodes: u32,
    /// Where sub-rows end, if rows are sampled by edge type and the ends are kept.
    pub(crate) sub_rows: Option<(&'a Types, &'a SubRowEnds)>,
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

    fn types(&self) -> Option<&Types> {
        self.sub_rows.map(|(types, _)| types)
    }

    fn scan_by_type(&self, row: &mut dyn FnMut(SubRow<'_>)) -> Result<()> {
        let Some((_, ends)) = self.sub_rows else {
            let what = "the ends of sub-rows are not in memory; allow more, or cache by in-degree";
            return Err(Error::setting("memory_bytes", what));
        };
        let mut current = None;
        let mut first = 0;
        self.scan(&mut |node, part| {
            // A long row comes in several calls.
            if current.replace(node) != Some(node) {
                first = 0;
            }
            let end = first + part.len() as u32;
            for (edge_type, positions) in ends.sub_rows(node) {
                let piece = positions.start.max(first)..positions.end.min(end);
                if piece.start < piece.end {
                    let neighbors = &part[(piece.start - first) as usize..(piece.end - first) as usize];
                    row(SubRow { node, edge_type, degree: positions.len() as u64, neighbors });
                }
            }
            first = end;
        })
    }

    fn scan(&self, row: &mut dyn FnMut(u32, &[u32])) -> Result<()> {
        let reader = &mut self.reader.borrow_mut();
        scan(
            self.indices,
            self.num_nodes,
            |node| self.row(node),
            reader,
            |node, first, part| {
                let start = self.row(node).start + u64::from(first);
                check_nodes(self.indices, part, self.num_nodes, |i| start + i as u64)?;
                row(node, part);
                Ok(())
            },
        )
    }
}

/// Calls `each` with every row with edges of an array over the graph's edges: the node, the position in its row of the first element, and
/// the elements. A long row may come in several calls.
pub(crate) fn scan<T: bytemuck::Pod>(
    array: &OnDisk,
    num_nodes: u32,
    row: impl Fn(u32) -> CsrRow,
    reader: &mut Reader,
    mut each: impl FnMut(u32, u32, &[T]) -> Result<()>,
) -> Result<()> {
    let (len, mut node) = (array.len, 0);
    let mut buffer = vec![T::zeroed(); PASS.min(len as usize)];
    for first in (0..len).step_by(PASS) {
        let part = &mut buffer[..PASS.min((len - first) as usize)];
        array.pass(reader, first, bytemuck::cast_slice_mut(part))?;
        let end = first + part.len() as u64;
        while node < num_nodes {
            let CsrRow { start, degree } = row(node);
            let stop = start + u64::from(degree);
            if start >= end {
                break;
            }
            let piece = start.max(first)..stop.min(end);
            if piece.start < piece.end {
                let elements = &part[(piece.start - first) as usize..(piece.end - first) as usize];
                each(node, (piece.start - start) as u32, elements)?;
            }
            if stop > end {
                break;
            }
            node += 1;
        }
    }
    Ok(())
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
