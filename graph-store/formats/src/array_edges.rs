//! Edges from plain arrays, in each of three forms.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use morphgl_graph_store::{Error, Position, Result};
use morphgl_ingest::Edges;
use morphgl_platform::PagePool;

use crate::archive::ArraySet;
use crate::files::invalid;
use crate::npy::ArrayReader;
use crate::pipeline;
use crate::segment::Segment;
use crate::{Ingest, RowContent};

/// Bytes of an edge before it becomes a record: as it is read, and decoded. Bytes of a file are not all read at once.
const EDGE_BYTES: u64 = 8 + 8;
/// Offsets read at a time.
const OFFSETS: u64 = 1 << 16;

/// A matrix that `scipy.sparse.save_npz` wrote: entry (i, j) is an edge from i to j.
pub(crate) struct Scipy {
    /// Content of the rows; `None` for entries in any order, by `row` and `col`.
    pub(crate) rows: Option<RowContent>,
    pub(crate) num_nodes: u64,
}

/// Streams the edges; returns the number of nodes.
pub(crate) fn push(
    ingest: &mut Ingest<'_>,
    source: &Path,
    num_nodes: Option<u64>,
    rows: Option<RowContent>,
    scipy: Option<Scipy>,
) -> Result<u64> {
    // Two arrays and the weights are read at the same time: each through its own handle.
    let (mut one, mut two, mut three) = (ArraySet::open(source)?, ArraySet::open(source)?, ArraySet::open(source)?);
    let is_scipy = scipy.is_some();
    let (default_rows, src, dst) = match scipy {
        Some(Scipy { rows: None, .. }) => (RowContent::Sources, "row", "col"),
        Some(Scipy { rows: Some(rows), .. }) => (rows, "src", "dst"),
        None => (RowContent::Sources, "src", "dst"),
    };
    let forms = [one.one_of(&["indptr"])?, one.one_of(&["edge_index"])?, one.one_of(&[src])?];
    if forms.iter().flatten().count() > 1 {
        let forms = forms.into_iter().flatten().collect::<Vec<_>>().join(" and ");
        let what = format!("the edges are given more than once, by {forms}");
        return invalid(source, what, "keep one of indptr, edge_index and src");
    }
    let names = if is_scipy { &["data"][..] } else { &["weights", "edge_weight"] };
    let mut weights = three.one_of(names)?.filter(|_| !ingest.options().drop_weights);
    // The entries of most matrices are 1, and no weights.
    if let Some(name) = weights.filter(|_| is_scipy)
        && all_ones(three.array(name)?)?
    {
        weights = None;
    }
    let weights = weights.map(|name| three.array(name)).transpose()?;
    match forms {
        [Some(_), ..] => {
            let (indptr, indices) = (one.array("indptr")?, two.array("indices")?);
            indptr.expect_vector()?;
            indices.expect_vector()?;
            let num_nodes = num_nodes_of(&indptr, num_nodes)?;
            let rows = CompressedRows::new(indptr, rows.unwrap_or(default_rows));
            push_edges(ingest, Some(num_nodes), indices, weights, Form::Compressed(rows))
        }
        [_, Some(_), _] => {
            let mut edge_index = one.array("edge_index")?;
            let (planar, num_edges) = match edge_index.shape[..] {
                [2, num_edges] => (!edge_index.fortran, num_edges),
                [num_edges, 2] => (edge_index.fortran, num_edges),
                _ => return wrong_shape(&edge_index, "[2, edges]"),
            };
            if !planar {
                edge_index.shape = vec![2 * num_edges];
                return push_edges(ingest, num_nodes, edge_index, weights, Form::Interleaved);
            }
            let mut targets = two.array("edge_index")?;
            targets.skip(num_edges)?;
            push_edges(ingest, num_nodes, edge_index, weights, Form::Planar { targets, num_edges })
        }
        [_, _, Some(_)] => {
            let (sources, targets) = (one.array(src)?, two.array(dst)?);
            sources.expect_vector()?;
            targets.expect_vector()?;
            let num_edges = sources.shape[0];
            if targets.shape[0] != num_edges {
                return wrong_shape(&targets, &format!("[{num_edges}] as of src"));
            }
            push_edges(ingest, num_nodes, sources, weights, Form::Planar { targets, num_edges })
        }
        [None, None, None] => {
            let what = "no edges: neither indptr and indices, nor edge_index, nor src and dst";
            invalid(source, what, "save the edges under one of these names")
        }
    }
}

fn all_ones(mut array: ArrayReader<'_>) -> Result<bool> {
    let mut values = Vec::new();
    while array.remaining() > 0 {
        values.clear();
        array.floats(OFFSETS, &mut values)?;
        if values.iter().any(|&v| v != 1.0) {
            return Ok(false);
        }
    }
    Ok(true)
}

const SAVE_TOGETHER: &str = "save the arrays of one graph together";

fn wrong_shape<T>(array: &ArrayReader<'_>, expected: &str) -> Result<T> {
    invalid(&array.path, format!("an array of shape {:?}, expected {expected}", array.shape), SAVE_TOGETHER)
}

/// Number of rows of `indptr`, which must be that of the other arrays.
fn num_nodes_of(indptr: &ArrayReader<'_>, others: Option<u64>) -> Result<u64> {
    match (indptr.shape[0].checked_sub(1), others) {
        (None, _) => wrong_shape(indptr, "[nodes + 1]"),
        (Some(rows), Some(n)) if n != rows => wrong_shape(indptr, &format!("[{}] for {n} nodes", n + 1)),
        (Some(rows), _) => Ok(rows),
    }
}

/// Form of the edges, without their leading array.
enum Form<'t> {
    /// Sources in the leading array, targets in another, or further on in the same.
    Planar { targets: ArrayReader<'t>, num_edges: u64 },
    /// Source, target, source, target.
    Interleaved,
    /// Neighbours in the leading array, offsets of the rows in another.
    Compressed(CompressedRows<'t>),
}

/// The edges of a block, read by one thread and decoded by another.
struct EdgeSegment {
    leading: Segment,
    other: OtherEnds,
    weights: Option<Segment>,
}

/// The ends of edges that are not in the leading array.
enum OtherEnds {
    Targets(Segment),
    Interleaved,
    Rows(RowEnds),
}

/// Decoded edges, in buffers that every block reuses.
#[derive(Default)]
struct EdgeBuffers {
    leading: Vec<u32>,
    other: Vec<u32>,
    weights: Vec<f32>,
}

fn push_edges(
    ingest: &mut Ingest<'_>,
    num_nodes: Option<u64>,
    mut leading: ArrayReader<'_>,
    mut weights: Option<ArrayReader<'_>>,
    mut form: Form<'_>,
) -> Result<u64> {
    let (num_edges, rows) = match &form {
        Form::Planar { num_edges, .. } => (*num_edges, None),
        Form::Interleaved => (leading.remaining() / 2, None),
        Form::Compressed(form) => (leading.remaining(), Some(form.rows)),
    };
    if let Some(weights) = &weights {
        weights.expect_vector()?;
        if weights.shape[0] != num_edges {
            return wrong_shape(weights, &format!("[{num_edges}], one weight per edge"));
        }
    }
    let (progress, memory) = (ingest.progress(), ingest.options().memory);
    progress.stage("read", Some(num_edges));
    let path = leading.path.clone();
    let mut sink = ingest.edges(&path, num_nodes, weights.is_some())?;
    let (blocks, step) = (sink.csc.block_maker(), sink.csc.block_len() as u64);
    if rows == Some(RowContent::Sources) {
        sink.csc.targets_in_order(&sink.ingest.writer)?;
    }
    let (pool, free_buffers) = (PagePool::new(), Mutex::new(Vec::<EdgeBuffers>::new()));
    let mut done = 0;
    let next = || {
        let count = step.min(num_edges - done);
        if count == 0 {
            if let Form::Compressed(form) = &mut form {
                form.end()?;
            }
            return Ok(None);
        }
        done += count;
        let other = match &mut form {
            Form::Planar { targets, .. } => OtherEnds::Targets(targets.segment(count, &pool)?),
            Form::Interleaved => OtherEnds::Interleaved,
            Form::Compressed(form) => OtherEnds::Rows(form.rows_of(count)?),
        };
        let ids = if let OtherEnds::Interleaved = other { 2 * count } else { count };
        let weights = weights.as_mut().map(|weights| weights.segment(count, &pool)).transpose()?;
        Ok(Some(EdgeSegment { leading: leading.segment(ids, &pool)?, other, weights }))
    };
    let work = |segment: EdgeSegment| {
        // A vector is whole whatever happened to the thread that held the lock.
        let free_buffers = || free_buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buffers = free_buffers().pop().unwrap_or_default();
        let EdgeBuffers { leading, other, weights } = &mut buffers;
        segment.leading.node_ids(&pool, leading)?;
        match segment.other {
            OtherEnds::Targets(targets) => targets.node_ids(&pool, other)?,
            OtherEnds::Interleaved => {
                other.clear();
                other.extend(leading.iter().skip(1).step_by(2));
                for i in 0..other.len() {
                    leading[i] = leading[2 * i];
                }
                leading.truncate(other.len());
            }
            OtherEnds::Rows(rows) => rows.fill(leading.len(), other),
        }
        if rows == Some(RowContent::Targets) {
            std::mem::swap(leading, other);
        }
        let weights = match segment.weights {
            None => None,
            Some(segment) => {
                segment.floats(&pool, weights)?;
                Some(&weights[..])
            }
        };
        let block = blocks.block(Edges { sources: leading, targets: other, weights }, false);
        free_buffers().push(buffers);
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

/// The rows of a compressed graph, from their offsets.
struct CompressedRows<'t> {
    offsets: ArrayReader<'t>,
    buffer: Vec<i64>,
    /// Number of offsets of the buffer that are used up.
    at: usize,
    /// Number of offsets read.
    count: u64,
    /// The last offset read: the end of the current row, `count - 2`.
    end: u64,
    /// Number of edges whose rows were returned.
    read: u64,
    rows: RowContent,
}

/// The rows of some edges, each with the number of edges before its end; rows without edges, which may be far more, are not
/// among them.
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

impl<'t> CompressedRows<'t> {
    fn new(offsets: ArrayReader<'t>, rows: RowContent) -> Self {
        Self { offsets, buffer: Vec::new(), at: 0, count: 0, end: 0, read: 0, rows }
    }

    /// Steps to the next row; false after the last.
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
        Err(Error::invalid(&self.offsets.path, at, what, SAVE_TOGETHER))
    }

    /// The rows of the next `count` edges, which fit 32 bits.
    fn rows_of(&mut self, count: u64) -> Result<RowEnds> {
        let (start, stop) = (self.read, self.read + count);
        let mut rows = Vec::new();
        while self.read < stop {
            if self.end > self.read {
                self.read = self.end.min(stop);
                rows.push(((self.count - 2) as u32, (self.read - start) as u32));
            } else if !self.next_row()? {
                return self.fail(format!("the last offset is {}, but there are more edges", self.end));
            }
        }
        Ok(RowEnds(rows))
    }

    /// Checks the remaining offsets when all edges are read.
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
