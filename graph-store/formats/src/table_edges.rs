//! Edges from plain arrays, in each of the three forms they come in.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use morphgl_graph_store::{Error, Position, Result};
use morphgl_ingest::Edges;
use morphgl_platform::PagePool;

use crate::pipeline;
use crate::raw::Raw;
use crate::table::{Table, Tables};
use crate::{Ingest, Rows};

/// Bytes an edge takes on its way to a record: as it is read, and decoded. What is read of a file is not there at once.
const EDGE_BYTES: u64 = 8 + 8;
/// Offsets read at a time.
const OFFSETS: u64 = 1 << 16;

/// A matrix that `scipy.sparse.save_npz` wrote: entry (i, j) is an edge from i to j.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scipy {
    pub(crate) entries: Entries,
    pub(crate) num_nodes: u64,
}

/// How its entries are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entries {
    /// By row, or by column.
    Rows(Rows),
    /// In any order, by `row` and `col`.
    Pairs,
}

/// Streams the edges; returns the number of nodes.
pub(crate) fn push(
    ingest: &mut Ingest<'_>,
    source: &Path,
    num_nodes: Option<u64>,
    rows: Option<Rows>,
    scipy: Option<Scipy>,
) -> Result<u64> {
    // Two arrays are read side by side, and the weights with them: each from its own handle.
    let (mut one, mut two, mut three) = (Tables::open(source)?, Tables::open(source)?, Tables::open(source)?);
    let (src, dst) = match scipy {
        Some(Scipy { entries: Entries::Pairs, .. }) => ("row", "col"),
        _ => ("src", "dst"),
    };
    let own = match scipy {
        Some(Scipy { entries: Entries::Rows(rows), .. }) => rows,
        _ => Rows::Sources,
    };
    let rows = rows.unwrap_or(own);
    let forms = [one.one_of(&["indptr"])?, one.one_of(&["edge_index"])?, one.one_of(&[src])?];
    if forms.iter().flatten().count() > 1 {
        let what = format!(
            "the edges are given more than once, by {}",
            forms.into_iter().flatten().collect::<Vec<_>>().join(" and ")
        );
        return Err(Error::invalid(source, Position::File, what, "keep one of indptr, edge_index and src"));
    }
    let names = if scipy.is_some() { &["data"][..] } else { &["weights", "edge_weight"] };
    let name = three.one_of(names)?.filter(|_| !ingest.options().drop_weights);
    // The entries of most matrices are 1, and say nothing.
    let name = match name.filter(|_| scipy.is_some()) {
        Some(name) if all_ones(three.array(name)?)? => None,
        _ => name,
    };
    let weights = name.map(|name| three.array(name)).transpose()?;
    match forms {
        [Some(_), ..] => {
            let (indptr, indices) = (one.array("indptr")?, two.array("indices")?);
            indptr.expect_vector()?;
            indices.expect_vector()?;
            let num_nodes = num_nodes_of(&indptr, num_nodes)?;
            drive(ingest, Some(num_nodes), indices, weights, Form::Compressed(Compressed::new(indptr, rows)))
        }
        [_, Some(_), _] => {
            let mut edge_index = one.array("edge_index")?;
            let &[a, b] = edge_index.shape.as_slice() else { return shape(&edge_index, "[2, edges]") };
            let planar = match (a, b, edge_index.fortran) {
                (2, _, fortran) => !fortran,
                (_, 2, fortran) => fortran,
                _ => return shape(&edge_index, "[2, edges]"),
            };
            let num_edges = if a == 2 { b } else { a };
            if !planar {
                edge_index.shape = vec![2 * num_edges];
                return drive(ingest, num_nodes, edge_index, weights, Form::Interleaved);
            }
            let mut targets = two.array("edge_index")?;
            targets.skip(num_edges)?;
            drive(ingest, num_nodes, edge_index, weights, Form::Planar { targets, num_edges })
        }
        [_, _, Some(_)] => {
            let (sources, targets) = (one.array(src)?, two.array(dst)?);
            sources.expect_vector()?;
            targets.expect_vector()?;
            let num_edges = sources.shape[0];
            if targets.shape[0] != num_edges {
                return shape(&targets, &format!("[{num_edges}] as of src"));
            }
            drive(ingest, num_nodes, sources, weights, Form::Planar { targets, num_edges })
        }
        [None, None, None] => {
            let what = "no edges: neither indptr and indices, nor edge_index, nor src and dst";
            Err(Error::invalid(source, Position::File, what, "save the edges under one of these names"))
        }
    }
}

fn all_ones(mut table: Table<'_>) -> Result<bool> {
    let mut values = Vec::new();
    while table.remaining() > 0 {
        values.clear();
        table.floats(OFFSETS, &mut values)?;
        if values.iter().any(|&v| v != 1.0) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn shape<T>(table: &Table<'_>, expected: &str) -> Result<T> {
    let what = format!("an array of shape {:?}, expected {expected}", table.shape);
    Err(Error::invalid(&table.path, Position::File, what, "save the arrays of one graph together"))
}

/// The rows of `indptr`, which must be those of the other arrays.
fn num_nodes_of(indptr: &Table<'_>, others: Option<u64>) -> Result<u64> {
    let Some(rows) = indptr.shape[0].checked_sub(1) else {
        return shape(indptr, "[nodes + 1]");
    };
    match others {
        Some(n) if n != rows => shape(indptr, &format!("[{}] for {n} nodes", n + 1)),
        _ => Ok(rows),
    }
}

/// Where the ends of an edge are.
enum Form<'t> {
    /// Sources in the leading array, targets in another, or further on in the same.
    Planar { targets: Table<'t>, num_edges: u64 },
    /// Source, target, source, target.
    Interleaved,
    /// Neighbours in the leading array, offsets of the rows in another.
    Compressed(Compressed<'t>),
}

/// What some threads make a block of, edge by edge, while others read on.
struct Job {
    leading: Raw,
    other: Other,
    weights: Option<Raw>,
}

enum Other {
    Targets(Raw),
    Interleaved,
    Rows(RowEnds),
}

/// Vectors that go from one job to the next.
#[derive(Default)]
struct Room {
    leading: Vec<u32>,
    other: Vec<u32>,
    weights: Vec<f32>,
}

fn drive(
    ingest: &mut Ingest<'_>,
    num_nodes: Option<u64>,
    mut leading: Table<'_>,
    mut weights: Option<Table<'_>>,
    mut form: Form<'_>,
) -> Result<u64> {
    let num_edges = match &form {
        Form::Planar { num_edges, .. } => *num_edges,
        Form::Interleaved => leading.remaining() / 2,
        Form::Compressed(_) => leading.remaining(),
    };
    if let Some(table) = &weights {
        table.expect_vector()?;
        if table.shape[0] != num_edges {
            return shape(table, &format!("[{num_edges}], one weight an edge"));
        }
    }
    let (progress, memory) = (ingest.progress(), ingest.options().memory);
    progress.stage("read", Some(num_edges));
    let path = leading.path.clone();
    let mut sink = ingest.edges(&path, num_nodes, weights.is_some())?;
    let (blocks, step) = (sink.csc.block_maker(), sink.csc.block_len() as u64);
    let by_target = matches!(&form, Form::Compressed(Compressed { rows: Rows::Targets, .. }));
    if matches!(&form, Form::Compressed(Compressed { rows: Rows::Sources, .. })) {
        sink.csc.targets_in_order(&sink.ingest.writer)?;
    }
    let (pool, rooms) = (PagePool::new(), Mutex::new(Vec::<Room>::new()));
    let mut done = 0;
    let next = || {
        let count = step.min(num_edges - done);
        if count == 0 {
            return match &mut form {
                Form::Compressed(form) => form.end().map(|()| None),
                _ => Ok(None),
            };
        }
        done += count;
        let other = match &mut form {
            Form::Planar { targets, .. } => Other::Targets(targets.raw(count, &pool)?),
            Form::Interleaved => Other::Interleaved,
            Form::Compressed(form) => Other::Rows(form.rows_of(count)?),
        };
        let ids = if let Other::Interleaved = other { 2 * count } else { count };
        let weights = weights.as_mut().map(|table| table.raw(count, &pool)).transpose()?;
        Ok(Some(Job { leading: leading.raw(ids, &pool)?, other, weights }))
    };
    let work = |job: Job| {
        // A vector is whole whatever happened to the thread that held the lock.
        let room = || rooms.lock().unwrap_or_else(PoisonError::into_inner);
        let mut own = room().pop().unwrap_or_default();
        let Room { leading, other, weights } = &mut own;
        job.leading.node_ids(&pool, leading)?;
        match job.other {
            Other::Targets(raw) => raw.node_ids(&pool, other)?,
            Other::Interleaved => {
                other.clear();
                other.extend(leading.iter().skip(1).step_by(2));
                for i in 0..other.len() {
                    leading[i] = leading[2 * i];
                }
                leading.truncate(other.len());
            }
            Other::Rows(rows) => rows.fill(leading.len(), other),
        }
        if by_target {
            std::mem::swap(leading, other);
        }
        let weights = match job.weights {
            None => None,
            Some(raw) => {
                raw.floats(&pool, weights)?;
                Some(&weights[..])
            }
        };
        let block = blocks.block(Edges { sources: leading, targets: other, weights }, false);
        room().push(own);
        Ok(block)
    };
    pipeline::ordered(pipeline::ahead(memory, step * (EDGE_BYTES + sink.csc.edge_bytes())), next, work, |block| {
        let len = block.num_edges();
        sink.csc.push_blocks([block])?;
        progress.advance(len);
        Ok(())
    })?;
    sink.finish()
}

/// The offsets of a compressed graph, read row by row.
struct Compressed<'t> {
    offsets: Table<'t>,
    buffer: Vec<i64>,
    /// Offsets of the buffer that are used up.
    at: usize,
    /// Offsets read.
    count: u64,
    /// The last offset read: where the current row, `count - 2`, ends.
    end: u64,
    /// Edges handed on.
    read: u64,
    rows: Rows,
}

/// The rows that some edges belong to, each with how many of the edges lie before its end; rows without edges, which may
/// be far more, have no place here.
struct RowEnds(Vec<(u32, u32)>);

impl RowEnds {
    /// Replaces `out` by the row of each of `len` edges.
    fn fill(&self, len: usize, out: &mut Vec<u32>) {
        out.clear();
        out.reserve_exact(len);
        for &(row, end) in &self.0 {
            out.resize(end as usize, row);
        }
    }
}

impl<'t> Compressed<'t> {
    fn new(offsets: Table<'t>, rows: Rows) -> Self {
        Self { offsets, buffer: Vec::new(), at: 0, count: 0, end: 0, read: 0, rows }
    }

    /// Steps to the next row; false behind the last.
    fn next_row(&mut self) -> Result<bool> {
        if self.at == self.buffer.len() {
            self.buffer.clear();
            self.offsets.ints(OFFSETS, &mut self.buffer)?;
            self.at = 0;
        }
        let Some(&offset) = self.buffer.get(self.at) else { return Ok(false) };
        self.at += 1;
        self.count += 1;
        if self.count == 1 && offset != 0 {
            return self.fail(format!("the first offset is {offset} and must be 0"));
        }
        match u64::try_from(offset).ok().filter(|&offset| offset >= self.end) {
            Some(offset) => self.end = offset,
            None => return self.fail(format!("the offset decreases from {} to {offset}", self.end)),
        }
        Ok(true)
    }

    fn fail<T>(&self, what: String) -> Result<T> {
        let at = Position::Element(self.count.saturating_sub(1));
        Err(Error::invalid(&self.offsets.path, at, what, "save the arrays of one graph together"))
    }

    /// The rows of the next `count` edges, which fit 32 bits.
    fn rows_of(&mut self, count: u64) -> Result<RowEnds> {
        let (start, stop) = (self.read, self.read + count);
        let mut rows = Vec::new();
        while self.read < stop {
            if self.end > self.read {
                self.read = self.end.min(stop);
                rows.push(((self.count - 2) as u32, (self.read - start) as u32));
            } else {
                self.step()?;
            }
        }
        Ok(RowEnds(rows))
    }

    /// Steps to the next row, which there has to be.
    fn step(&mut self) -> Result<()> {
        if self.next_row()? {
            return Ok(());
        }
        self.fail(format!("the last offset is {}, but there are more edges", self.end))
    }

    /// Looks at what is left when all edges are read.
    fn end(&mut self) -> Result<()> {
        while self.next_row()? {}
        if self.end != self.read {
            return self.fail(format!("the last offset is {}, but there are {} edges", self.end, self.read));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
