//! CSC arrays from sorted edges, written part by part.

use morphgl_graph_store::{DatasetWriter, NpyWriter, Result};
use morphgl_platform::{PagePool, Pages};

use crate::records::{Record, Sorted};

const BUFFER: usize = 1 << 15;

/// A part of the arrays, from some records sorted by (target, source).
#[derive(Debug)]
pub(crate) struct CscPart {
    /// The rows that have edges here, and the number of edges of the part before those of each.
    rows: Vec<(u32, u32)>,
    indices: Pages,
    /// Empty without weights.
    weights: Pages,
    /// Empty where edges are not numbered.
    ids: Pages,
}

/// What is written of each edge besides its ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Columns {
    pub(crate) weights: bool,
    pub(crate) ids: bool,
}

impl CscPart {
    /// The part of some records, in buffers of `pool`.
    pub(crate) fn of<R: Record>(records: Sorted<'_, R>, columns: Columns, pool: &PagePool) -> Self {
        let (mut indices, mut weights, mut ids) = (pool.take(), Pages::new(), Pages::new());
        let out: &mut [u32] = bytemuck::cast_slice_mut(indices.resize(4 * records.len()));
        let rows = match records {
            Sorted::Whole(records) => {
                out.iter_mut().zip(records).for_each(|(out, record)| *out = record.key() as u32);
                if columns.weights {
                    weights = pool.take();
                    let out: &mut [f32] = bytemuck::cast_slice_mut(weights.resize(indices.len()));
                    out.iter_mut().zip(records).for_each(|(out, record)| *out = record.weight());
                }
                if columns.ids {
                    ids = pool.take();
                    let out: &mut [u32] = bytemuck::cast_slice_mut(ids.resize(indices.len()));
                    out.iter_mut().zip(records).for_each(|(out, record)| *out = record.number());
                }
                rows(records, |record| (record.key() >> 32) as u32)
            }
            Sorted::Narrow(keys, narrow) => {
                out.iter_mut().zip(keys).for_each(|(out, &key)| *out = narrow.source(key));
                rows(keys, |key| narrow.target(key))
            }
        };
        Self { rows, indices, weights, ids }
    }

    /// Number of edges.
    pub(crate) fn len(&self) -> u64 {
        self.indices.len() as u64 / 4
    }
}

/// The rows of some edges in order, and the number of edges before those of each.
fn rows<T: Copy>(edges: &[T], row: impl Fn(T) -> u32) -> Vec<(u32, u32)> {
    let (mut rows, mut last) = (Vec::new(), None);
    // Most edges are in the row of the edge before; the last of a few in that row means all of them are.
    for (few, i) in edges.chunks(8).zip((0u32..).step_by(8)) {
        if last == Some(row(few[few.len() - 1])) {
            continue;
        }
        for (&edge, i) in few.iter().zip(i..) {
            if last != Some(row(edge)) {
                last = Some(row(edge));
                rows.push((row(edge), i));
            }
        }
    }
    rows
}

/// Edges that are added or merged while they are written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Merging {
    /// Whether nodes without a self-loop get one.
    pub(crate) add_self_loops: bool,
    /// Whether weights of equal edges are added.
    pub(crate) adds: bool,
}

/// Writes `indptr`, `indices`, `weights` and `edge_ids` from parts in order.
#[derive(Debug)]
pub(crate) struct CscWriter {
    indptr: Buffered<u64>,
    indices: Buffered<u32>,
    weights: Option<Buffered<f32>>,
    ids: Option<Buffered<u32>>,
    num_edges: u64,
    /// Number of records written: edges without those that are added.
    pub(crate) num_records: u64,
    /// Number of rows whose first offset is written.
    rows: u64,
    /// The node of the next self-loop, where every node gets one.
    next_loop: Option<u64>,
    /// Whether weights of equal edges are added.
    adds: bool,
    /// Key, weight and number of the last edge, which is written once no equal one can follow.
    pending: Option<(u64, f32, u32)>,
    num_nodes: u64,
}

/// A stream of an array that also takes single values.
#[derive(Debug)]
pub(crate) struct Buffered<T: morphgl_graph_store::Element> {
    out: NpyWriter<T>,
    buffer: Vec<T>,
}

impl<T: morphgl_graph_store::Element> Buffered<T> {
    pub(crate) fn new(writer: &DatasetWriter, name: &str) -> Result<Self> {
        Ok(Self { out: writer.stream(name)?, buffer: Vec::with_capacity(BUFFER) })
    }

    pub(crate) fn push(&mut self, value: T) -> Result<()> {
        self.buffer.push(value);
        if self.buffer.len() >= BUFFER {
            self.out.write(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Writes many values of a stream without single ones.
    pub(crate) fn extend(&mut self, values: &[T]) -> Result<()> {
        debug_assert!(self.buffer.is_empty(), "{} values are buffered", self.buffer.len());
        self.out.write(values)
    }

    pub(crate) fn finish(mut self, writer: &mut DatasetWriter, name: &str) -> Result<()> {
        self.out.write(&self.buffer)?;
        let meta = self.out.finish(None)?;
        writer.add(name, meta);
        Ok(())
    }
}

impl CscWriter {
    pub(crate) fn new(writer: &DatasetWriter, num_nodes: u64, columns: Columns, merging: Merging) -> Result<Self> {
        Ok(Self {
            indptr: Buffered::new(writer, "indptr")?,
            indices: Buffered::new(writer, "indices")?,
            weights: columns.weights.then(|| Buffered::new(writer, "weights")).transpose()?,
            ids: columns.ids.then(|| Buffered::new(writer, "edge_ids")).transpose()?,
            num_edges: 0,
            num_records: 0,
            rows: 0,
            next_loop: merging.add_self_loops.then_some(0),
            adds: merging.adds,
            pending: None,
            num_nodes,
        })
    }

    /// Appends the next part.
    pub(crate) fn write(&mut self, part: &CscPart) -> Result<()> {
        let indices: &[u32] = bytemuck::cast_slice(&part.indices);
        let weights: &[f32] = bytemuck::cast_slice(&part.weights);
        let ids: &[u32] = bytemuck::cast_slice(&part.ids);
        self.num_records += part.len();
        if self.next_loop.is_none() && !self.adds {
            // Without edges to add or to merge, whole slices go into the arrays.
            part.rows
                .iter()
                .try_for_each(|&(row, before)| self.rows_through(row.into(), self.num_edges + u64::from(before)))?;
            self.num_edges += part.len();
            self.indices.extend(indices)?;
            self.weights.as_mut().map_or(Ok(()), |w| w.extend(weights))?;
            return self.ids.as_mut().map_or(Ok(()), |out| out.extend(ids));
        }
        for (i, &(row, before)) in part.rows.iter().enumerate() {
            let end = part.rows.get(i + 1).map_or(indices.len(), |next| next.1 as usize);
            for (&source, at) in indices[before as usize..end].iter().zip(before as usize..) {
                let key = u64::from(row) << 32 | u64::from(source);
                let weight = weights.get(at).copied().unwrap_or(1.0);
                match &mut self.pending {
                    Some((last, sum, _)) if self.adds && *last == key => {
                        *sum += weight;
                        self.num_records -= 1;
                    }
                    _ => {
                        self.flush()?;
                        self.pending = Some((key, weight, ids.get(at).copied().unwrap_or(0)));
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes the edge that equal ones would have been merged into, after the self-loops before it.
    fn flush(&mut self) -> Result<()> {
        let Some((key, weight, id)) = self.pending.take() else { return Ok(()) };
        self.loops_before(key)?;
        self.edge(key, weight, id)
    }

    /// Writes the missing self-loops before `key`, and skips the one that is `key`.
    fn loops_before(&mut self, key: u64) -> Result<()> {
        while let Some(v) = self.next_loop.filter(|&v| v < self.num_nodes && (v << 32 | v) <= key) {
            self.next_loop = Some(v + 1);
            if (v << 32 | v) != key {
                self.edge(v << 32 | v, 1.0, 0)?;
            }
        }
        Ok(())
    }

    fn edge(&mut self, key: u64, weight: f32, id: u32) -> Result<()> {
        self.rows_through(key >> 32, self.num_edges)?;
        self.indices.push(key as u32)?;
        self.num_edges += 1;
        self.ids.as_mut().map_or(Ok(()), |ids| ids.push(id))?;
        self.weights.as_mut().map_or(Ok(()), |w| w.push(weight))
    }

    /// Writes the first offsets of the rows up to `row`, which have `edges` edges before them.
    fn rows_through(&mut self, row: u64, edges: u64) -> Result<()> {
        while self.rows <= row {
            self.indptr.push(edges)?;
            self.rows += 1;
        }
        Ok(())
    }

    /// Ends the graph; returns the number of records written.
    pub(crate) fn finish(mut self, writer: &mut DatasetWriter) -> Result<u64> {
        self.flush()?;
        self.loops_before(u64::MAX)?;
        self.rows_through(self.num_nodes, self.num_edges)?;
        self.indptr.finish(writer, "indptr")?;
        self.indices.finish(writer, "indices")?;
        self.weights.map_or(Ok(()), |w| w.finish(writer, "weights"))?;
        self.ids.map_or(Ok(()), |ids| ids.finish(writer, "edge_ids"))?;
        Ok(self.num_records)
    }
}
