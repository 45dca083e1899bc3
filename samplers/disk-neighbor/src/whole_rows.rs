//! Whole rows, in which edges are looked up.

use morphgl_platform::direct::{Fetch, Reader};
use morphgl_registry::Result;
use morphgl_sampler_core::ReadRows;

use crate::offsets::{self, CsrRow};
use crate::sampler::Shared;

/// Neighbours that are read at a time, unless a single row has more.
const PART: usize = 1 << 18;

/// The rows of the dataset's file; cached ones are not read.
#[derive(Debug)]
pub(crate) struct WholeRows<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) reader: &'a mut Reader,
    pub(crate) scratch: &'a mut Scratch,
}

/// Buffers, reused from mini-batch to mini-batch.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    rows: Vec<CsrRow>,
    offsets: offsets::Scratch,
    fetches: Vec<Fetch>,
    neighbors: Vec<u32>,
}

impl ReadRows for WholeRows<'_> {
    fn are_sorted(&self) -> bool {
        // Nothing is known of a file that is read in parts.
        false
    }

    fn read_rows(&mut self, nodes: &[u32], row: &mut dyn FnMut(usize, u64, &[u32])) -> Result<()> {
        let Self { shared, reader, scratch: Scratch { rows, offsets, fetches, neighbors } } = self;
        let cached = |node: u32| shared.caches.lists.as_ref().and_then(|lists| lists.get(node));
        rows.clear();
        shared.counted(
            reader,
            |counts| &mut counts.offsets,
            |reader| shared.offsets.append_rows(&shared.files.indptr, nodes, reader, offsets, rows),
        )?;
        let mut first = 0;
        while first < nodes.len() {
            fetches.clear();
            let mut end = first;
            while let Some(csr) = rows.get(end) {
                let len = if cached(nodes[end]).is_some() { 0 } else { csr.degree };
                if end > first && fetches.len() + len as usize > PART {
                    break;
                }
                let at = fetches.len() as u32;
                fetches.extend((0..len).map(|p| Fetch { element: csr.start + u64::from(p), to: at + p }));
                end += 1;
            }
            neighbors.clear();
            neighbors.resize(fetches.len(), 0);
            fetches.sort_unstable();
            let out = bytemuck::cast_slice_mut(neighbors);
            let indices = &shared.files.indices;
            shared.counted(reader, |counts| &mut counts.neighbors, |reader| indices.read(reader, fetches, out))?;
            let mut at = 0;
            for i in first..end {
                let CsrRow { start, degree } = rows[i];
                match cached(nodes[i]) {
                    Some(neighbors) => row(i, start, neighbors),
                    None => {
                        row(i, start, &neighbors[at..at + degree as usize]);
                        at += degree as usize;
                    }
                }
            }
            first = end;
        }
        Ok(())
    }
}
