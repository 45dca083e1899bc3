//! Rows of nodes, with their sub-rows.

use std::ops::Range;

use morphgl_platform::direct::{Fetch, Reader};
use morphgl_registry::Result;

use crate::files::OnDisk;
use crate::offsets::{self, CsrRow};
use crate::sampler::Shared;
use crate::typed::wrong_type;

/// Elements that are read at a time.
const PART: usize = 1 << 18;

/// CSR rows of nodes, with their sub-rows where they are sampled by edge type.
#[derive(Debug, Default)]
pub(crate) struct Located {
    pub(crate) rows: Vec<CsrRow>,
    /// Edge type and positions of each sub-row with edges; empty where rows are not divided.
    sub_rows: Vec<(u16, Range<u32>)>,
    /// End of the sub-rows of each row.
    ends: Vec<usize>,
    offsets: offsets::Scratch,
    fetches: Vec<Fetch>,
    edge_types: Vec<u16>,
}

impl Located {
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.sub_rows.clear();
        self.ends.clear();
    }

    /// Appends the rows of `nodes`.
    pub(crate) fn append(&mut self, shared: &Shared, nodes: &[u32], reader: &mut Reader) -> Result<()> {
        let Self { rows, sub_rows, ends, offsets, fetches, edge_types } = self;
        let first = rows.len();
        let read = |reader: &mut Reader| shared.offsets.append_rows(&shared.files.indptr, nodes, reader, offsets, rows);
        shared.counted(reader, |counts| &mut counts.offsets, read)?;
        let Some((typed, types)) = shared.typed.as_ref().zip(shared.dataset.topology.types()) else { return Ok(()) };
        if let Some(table) = &typed.ends {
            for &node in nodes {
                sub_rows.extend(table.sub_rows(node));
                ends.push(sub_rows.len());
            }
            return Ok(());
        }
        let on_disk = shared.files.edge_types.as_ref().expect("opened with a graph that has types");
        let read = |reader: &mut Reader| read_rows(on_disk, &rows[first..], reader, fetches, edge_types);
        shared.counted(reader, |counts| &mut counts.edge_types, read)?;
        let mut rest = &edge_types[..];
        for (&node, &row) in nodes.iter().zip(&rows[first..]) {
            let (of_row, later) = rest.split_at(row.degree as usize);
            rest = later;
            let (mut start, mut previous, target) = (0, None, types.node_type(node));
            for run in of_row.chunk_by(|a, b| a == b) {
                let edge_type = run[0];
                let leads_here = usize::from(edge_type) < types.edge_types().len()
                    && types.ends(usize::from(edge_type))[1] == target;
                if !leads_here || previous >= Some(edge_type) {
                    return Err(wrong_type(on_disk, node, row.start + u64::from(start), edge_type));
                }
                previous = Some(edge_type);
                sub_rows.push((edge_type, start..start + run.len() as u32));
                start += run.len() as u32;
            }
            ends.push(sub_rows.len());
        }
        Ok(())
    }

    /// The sub-rows of a row with edges by positions in it: the whole row as type 0 where it is not divided.
    pub(crate) fn sub_rows(&self, index: usize) -> impl Iterator<Item = (u16, Range<u32>)> + '_ {
        let (of_row, whole) = match self.ends.get(index) {
            Some(&end) => (&self.sub_rows[index.checked_sub(1).map_or(0, |before| self.ends[before])..end], None),
            None => (&[][..], Some((0, 0..self.rows[index].degree))),
        };
        of_row.iter().cloned().chain(whole)
    }
}

/// Reads the elements of whole rows, row after row, to `out`.
pub(crate) fn read_rows<T: bytemuck::Pod>(
    array: &OnDisk,
    rows: &[CsrRow],
    reader: &mut Reader,
    fetches: &mut Vec<Fetch>,
    out: &mut Vec<T>,
) -> Result<()> {
    out.clear();
    let mut elements = rows.iter().flat_map(|row| row.start..row.start + u64::from(row.degree));
    loop {
        fetches.clear();
        fetches.extend(elements.by_ref().take(PART).zip(0..).map(|(element, to)| Fetch { element, to }));
        if fetches.is_empty() {
            return Ok(());
        }
        let first = out.len();
        out.resize(first + fetches.len(), T::zeroed());
        fetches.sort_unstable();
        array.read(reader, fetches, bytemuck::cast_slice_mut(&mut out[first..]))?;
    }
}
