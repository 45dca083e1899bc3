//! Sorted edges into the arrays of a CSC topology, written as they come.

use morphgl_graph_store::{DatasetWriter, NpyWriter, Result};

use crate::records::Record;

const BUFFER: usize = 1 << 15;

/// Writes `indptr`, `indices` and `weights` from records sorted by (target, source).
pub(crate) struct CscWriter {
    indptr: Buffered<u64>,
    indices: Buffered<u32>,
    weights: Option<Buffered<f32>>,
    num_edges: u64,
    /// Rows whose first offset is written.
    rows: u64,
    /// The node whose edge to itself comes next, where every node shall have one.
    next_loop: Option<u64>,
    num_nodes: u64,
}

struct Buffered<T: morphgl_graph_store::Element> {
    out: NpyWriter<T>,
    buffer: Vec<T>,
}

impl<T: morphgl_graph_store::Element> Buffered<T> {
    fn new(writer: &DatasetWriter, name: &str) -> Result<Self> {
        Ok(Self { out: writer.stream(name)?, buffer: Vec::with_capacity(BUFFER) })
    }

    fn push(&mut self, value: T) -> Result<()> {
        self.buffer.push(value);
        if self.buffer.len() >= BUFFER {
            self.out.write(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    fn extend(&mut self, values: impl ExactSizeIterator<Item = T>) -> Result<()> {
        if self.buffer.len() + values.len() > BUFFER {
            self.out.write(&self.buffer)?;
            self.buffer.clear();
        }
        self.buffer.extend(values);
        Ok(())
    }

    fn finish(mut self, writer: &mut DatasetWriter, name: &str) -> Result<()> {
        self.out.write(&self.buffer)?;
        let meta = self.out.finish(None)?;
        writer.add(name, meta);
        Ok(())
    }
}

impl CscWriter {
    pub(crate) fn new(writer: &DatasetWriter, num_nodes: u64, weighted: bool, self_loops: bool) -> Result<Self> {
        Ok(Self {
            indptr: Buffered::new(writer, "indptr")?,
            indices: Buffered::new(writer, "indices")?,
            weights: weighted.then(|| Buffered::new(writer, "weights")).transpose()?,
            num_edges: 0,
            rows: 0,
            next_loop: self_loops.then_some(0),
            num_nodes,
        })
    }

    pub(crate) fn write<R: Record>(&mut self, records: &[R]) -> Result<()> {
        if self.next_loop.is_none() {
            return self.write_all(records);
        }
        for record in records {
            let key = record.key();
            self.loops_before(key)?;
            self.edge(key, record.weight())?;
        }
        Ok(())
    }

    /// Without edges to add, whole slices go into the arrays.
    fn write_all<R: Record>(&mut self, records: &[R]) -> Result<()> {
        // Most edges are of the row of the edge before: where the last of a few is, all are.
        for few in records.chunks(8) {
            if few[few.len() - 1].key() >> 32 < self.rows {
                self.num_edges += few.len() as u64;
                continue;
            }
            for record in few {
                let row = record.key() >> 32;
                if row >= self.rows {
                    self.rows_through(row)?;
                }
                self.num_edges += 1;
            }
        }
        self.indices.extend(records.iter().map(|r| r.key() as u32))?;
        self.weights.as_mut().map_or(Ok(()), |w| w.extend(records.iter().map(|r| r.weight())))
    }

    /// Writes the missing edges of nodes to themselves that come before `key`, and passes over the one that is `key`.
    fn loops_before(&mut self, key: u64) -> Result<()> {
        while let Some(v) = self.next_loop.filter(|&v| v < self.num_nodes && (v << 32 | v) <= key) {
            self.next_loop = Some(v + 1);
            if (v << 32 | v) != key {
                self.edge(v << 32 | v, 1.0)?;
            }
        }
        Ok(())
    }

    fn edge(&mut self, key: u64, weight: f32) -> Result<()> {
        self.rows_through(key >> 32)?;
        self.indices.push(key as u32)?;
        self.num_edges += 1;
        self.weights.as_mut().map_or(Ok(()), |w| w.push(weight))
    }

    fn rows_through(&mut self, row: u64) -> Result<()> {
        while self.rows <= row {
            self.indptr.push(self.num_edges)?;
            self.rows += 1;
        }
        Ok(())
    }

    pub(crate) fn finish(mut self, writer: &mut DatasetWriter) -> Result<()> {
        self.loops_before(u64::MAX)?;
        self.rows_through(self.num_nodes)?;
        self.indptr.finish(writer, "indptr")?;
        self.indices.finish(writer, "indices")?;
        self.weights.map_or(Ok(()), |w| w.finish(writer, "weights"))
    }
}
