//! The rows of a hop, divided into sub-rows of one edge type each.

use morphgl_platform::prefetch_early;

use super::expand::{CsrRow, CsrRows, RowPicker};

/// Prefetch distance of the edges' types, in rows.
const AHEAD: usize = 16;

/// The sub-rows of the rows of a hop, and the offsets of their edges in the block; types whose edges are not sampled are left out.
#[derive(Debug, Default)]
pub(crate) struct SubRows {
    csr: Vec<CsrRow>,
    types: Vec<u16>,
    indptr: Vec<u64>,
    /// The offsets, once it is known that they fit.
    offsets: Vec<u32>,
    /// Number of edges of each row.
    counts: Vec<u64>,
}

impl SubRows {
    /// Divides `rows`, whose edges have types in the order of the graph's indices, for the picks of `picker`.
    pub(crate) fn divide(&mut self, rows: &[CsrRow], edge_types: &[u16], picker: &RowPicker<'_>) {
        let Self { csr, types, indptr, counts, .. } = self;
        csr.clear();
        types.clear();
        indptr.clear();
        counts.clear();
        let mut end = 0;
        indptr.push(0);
        for (i, &row) in rows.iter().enumerate() {
            if let Some(later) = rows.get(i + AHEAD) {
                prefetch_early(edge_types, later.start as usize);
            }
            let before = end;
            let mut rest = &edge_types[row.start as usize..row.start as usize + row.degree as usize];
            let mut start = row.start;
            while let Some(&edge_type) = rest.first() {
                // Most rows have edges of one type, or few.
                let is_last = rest[rest.len() - 1] == edge_type;
                let degree = if is_last { rest.len() } else { rest.partition_point(|&other| other == edge_type) };
                if let Some(picks) = picker.picks_of(edge_type) {
                    let count = picks.count(start as usize..start as usize + degree);
                    if count > 0 {
                        end += count;
                        csr.push(CsrRow { start, degree: degree as u32, key: row.key });
                        types.push(edge_type);
                        indptr.push(end);
                    }
                }
                start += degree as u64;
                rest = &rest[degree..];
            }
            counts.push(end - before);
        }
    }

    /// Number of edges of each row.
    pub(crate) fn counts(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.counts.iter().copied()
    }

    /// Sets the types of the edges of a block, all of which fit 32-bit offsets.
    pub(crate) fn begin(&mut self, edge_types: &mut Vec<u16>) {
        self.offsets.clear();
        self.offsets.extend(self.indptr.iter().map(|&end| end as u32));
        edge_types.clear();
        for (&edge_type, ends) in self.types.iter().zip(self.indptr.windows(2)) {
            edge_types.resize(ends[1] as usize, edge_type);
        }
    }

    /// The sub-rows.
    pub(crate) fn rows(&self) -> CsrRows<'_> {
        CsrRows { csr: &self.csr, indptr: &self.offsets, types: &self.types }
    }
}
