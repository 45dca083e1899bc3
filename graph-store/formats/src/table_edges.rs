//! Edges from plain arrays, in each of the three forms they come in.

use std::path::Path;

use morphgl_graph_store::{Error, Position, Result};

use crate::table::{Table, Tables};
use crate::{EdgeSink, Ingest, Rows};

/// Edges read at a time.
const STEP: u64 = 1 << 18;

/// Streams the edges; returns the number of nodes.
pub(crate) fn push(ingest: &mut Ingest<'_>, source: &Path, num_nodes: Option<u64>, rows: Rows) -> Result<u64> {
    // Two arrays are read side by side, and the weights with them: each from its own handle.
    let (mut one, mut two, mut three) = (Tables::open(source)?, Tables::open(source)?, Tables::open(source)?);
    let forms = [one.one_of(&["indptr"])?, one.one_of(&["edge_index"])?, one.one_of(&["src"])?];
    if forms.iter().flatten().count() > 1 {
        let what = format!(
            "the edges are given more than once, by {}",
            forms.into_iter().flatten().collect::<Vec<_>>().join(" and ")
        );
        return Err(Error::invalid(source, Position::File, what, "keep one of indptr, edge_index and src"));
    }
    let weights = match three.one_of(&["weights", "edge_weight"])?.filter(|_| !ingest.options().drop_weights) {
        Some(name) => Some(three.array(name)?),
        None => None,
    };
    match forms {
        [Some(_), ..] => {
            let (indptr, indices) = (one.array("indptr")?, two.array("indices")?);
            indptr.expect_vector()?;
            indices.expect_vector()?;
            let num_nodes = num_nodes_of(&indptr, num_nodes)?;
            drive(ingest, Some(num_nodes), indices, weights, Compressed::new(indptr, rows))
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
                return drive(ingest, num_nodes, edge_index, weights, Interleaved);
            }
            let mut targets = two.array("edge_index")?;
            targets.skip(num_edges)?;
            drive(ingest, num_nodes, edge_index, weights, Planar { targets, num_edges })
        }
        [_, _, Some(_)] => {
            let (sources, targets) = (one.array("src")?, two.array("dst")?);
            sources.expect_vector()?;
            targets.expect_vector()?;
            let num_edges = sources.shape[0];
            if targets.shape[0] != num_edges {
                return shape(&targets, &format!("[{num_edges}] as of src"));
            }
            drive(ingest, num_nodes, sources, weights, Planar { targets, num_edges })
        }
        [None, None, None] => {
            let what = "no edges: neither indptr and indices, nor edge_index, nor src and dst";
            Err(Error::invalid(source, Position::File, what, "save the edges under one of these names"))
        }
    }
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

/// One of the forms: makes sources and targets of the ids of its leading array.
trait Form {
    /// Number of edges, given the length of the leading array.
    fn num_edges(&self, len: u64) -> u64;
    /// Ids of the leading array for so many edges.
    fn ids(&self, edges: u64) -> u64;
    /// Replaces the ids by sources and fills targets.
    fn pairs(&mut self, ids: &mut Vec<u32>, targets: &mut Vec<u32>) -> Result<()>;
    /// Looks at what is left when all edges are read.
    fn end(&mut self) -> Result<()> {
        Ok(())
    }
}

fn drive(
    ingest: &mut Ingest<'_>,
    num_nodes: Option<u64>,
    mut leading: Table<'_>,
    mut weights: Option<Table<'_>>,
    mut form: impl Form,
) -> Result<u64> {
    let num_edges = form.num_edges(leading.remaining());
    if let Some(table) = &weights {
        table.expect_vector()?;
        if table.shape[0] != num_edges {
            return shape(table, &format!("[{num_edges}], one weight an edge"));
        }
    }
    let progress = ingest.progress();
    progress.stage("read", Some(num_edges));
    let path = leading.path.clone();
    let mut sink: EdgeSink<'_, '_> = ingest.edges(&path, num_nodes, weights.is_some())?;
    let (mut sources, mut targets, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for start in (0..num_edges).step_by(STEP as usize) {
        let count = STEP.min(num_edges - start);
        sources.clear();
        targets.clear();
        values.clear();
        leading.node_ids(form.ids(count), &mut sources)?;
        form.pairs(&mut sources, &mut targets)?;
        if let Some(weights) = &mut weights {
            weights.floats(count, &mut values)?;
        }
        sink.push(&sources, &targets, weights.is_some().then_some(&values))?;
        progress.advance(count);
    }
    form.end()?;
    sink.finish()
}

/// Sources in the leading array, targets in another, or further on in the same.
struct Planar<'t> {
    targets: Table<'t>,
    num_edges: u64,
}

impl Form for Planar<'_> {
    fn num_edges(&self, _len: u64) -> u64 {
        self.num_edges
    }

    fn ids(&self, edges: u64) -> u64 {
        edges
    }

    fn pairs(&mut self, ids: &mut Vec<u32>, targets: &mut Vec<u32>) -> Result<()> {
        self.targets.node_ids(ids.len() as u64, targets)
    }
}

/// Source, target, source, target.
struct Interleaved;

impl Form for Interleaved {
    fn num_edges(&self, len: u64) -> u64 {
        len / 2
    }

    fn ids(&self, edges: u64) -> u64 {
        2 * edges
    }

    fn pairs(&mut self, ids: &mut Vec<u32>, targets: &mut Vec<u32>) -> Result<()> {
        targets.extend(ids.iter().skip(1).step_by(2));
        for i in 0..targets.len() {
            ids[i] = ids[2 * i];
        }
        ids.truncate(targets.len());
        Ok(())
    }
}

/// Neighbours in the leading array, offsets of the rows in another.
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

impl<'t> Compressed<'t> {
    fn new(offsets: Table<'t>, rows: Rows) -> Self {
        Self { offsets, buffer: Vec::new(), at: 0, count: 0, end: 0, read: 0, rows }
    }

    /// Steps to the next row; false behind the last.
    fn next_row(&mut self) -> Result<bool> {
        if self.at == self.buffer.len() {
            self.buffer.clear();
            self.offsets.ints(STEP, &mut self.buffer)?;
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
}

impl Form for Compressed<'_> {
    fn num_edges(&self, len: u64) -> u64 {
        len
    }

    fn ids(&self, edges: u64) -> u64 {
        edges
    }

    fn pairs(&mut self, ids: &mut Vec<u32>, targets: &mut Vec<u32>) -> Result<()> {
        while targets.len() < ids.len() {
            if self.read == self.end {
                if !self.next_row()? {
                    return self.fail(format!("the last offset is {}, but there are more edges", self.end));
                }
                continue;
            }
            let count = (self.end - self.read).min((ids.len() - targets.len()) as u64);
            targets.extend(std::iter::repeat_n((self.count - 2) as u32, count as usize));
            self.read += count;
        }
        if self.rows == Rows::Targets {
            std::mem::swap(ids, targets);
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        while self.next_row()? {}
        if self.end != self.read {
            return self.fail(format!("the last offset is {}, but there are {} edges", self.end, self.read));
        }
        Ok(())
    }
}
