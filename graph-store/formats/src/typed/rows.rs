//! The rows of a table of edges, in batches: of a table, an array, or triples of RDF.

use std::path::PathBuf;

use morphgl_graph_store::{Error, Position, Result};

use super::nodes::read_times;
use super::triples::Triples;
use super::{ArrayForm, EdgeRows, EdgeTable, Features, TypeOf, Values, quoted};
use crate::files::invalid;
use crate::ingest::feature_rows::FeatureCells;
use crate::npy::{ArrayReader, open_array};
use crate::tabular::{Batch, TableFile};
use crate::{Column, Ingest};

/// Number of edges of an array that are read at a time.
const ROWS: u64 = 1 << 16;

/// Reader of the rows of a table of edges.
pub(super) struct EdgeReader<'p> {
    rows: Rows<'p>,
    path: PathBuf,
    /// Indices of the columns of the ends, and of the type.
    pub(super) ends: [usize; 2],
    pub(super) of: Option<usize>,
    weight: Option<usize>,
    time: Option<usize>,
    /// Columns of features.
    features: Vec<usize>,
    /// Arrays of weights and times beside one of edges.
    weights: Option<ArrayReader<'static>>,
    times: Option<ArrayReader<'static>>,
}

enum Rows<'p> {
    /// A table, and the columns that are read.
    Table(TableFile<'p>, Vec<usize>),
    Array(EdgeArray),
    Triples(Triples),
}

/// An array of pairs.
struct EdgeArray {
    /// The reader of both ends, or of the sources.
    first: ArrayReader<'static>,
    /// The reader of the targets, of an array whose rows are sources and targets.
    second: Option<ArrayReader<'static>>,
    num_edges: u64,
    /// Edges that were read.
    done: u64,
}

impl EdgeArray {
    fn open(path: &std::path::Path, form: ArrayForm) -> Result<Self> {
        let first = open_array(path)?;
        let (by_rows, num_edges) = match (&first.shape[..], form) {
            (&[2, num_edges], ArrayForm::Either | ArrayForm::Rows) => (true, num_edges),
            (&[num_edges, 2], ArrayForm::Either | ArrayForm::Pairs) => (false, num_edges),
            (shape, form) => {
                let (expected, cure) = match form {
                    ArrayForm::Either => {
                        ("[2, edges] or [edges, 2]", "save sources and targets as the two rows of an array")
                    }
                    ArrayForm::Rows => ("[2, edges]", "save sources and targets as the two rows of an array"),
                    ArrayForm::Pairs => ("[edges, 2]", "save sources and targets as the two columns of an array"),
                };
                return invalid(path, format!("edges of shape {shape:?}, expected {expected}"), cure);
            }
        };
        // In Fortran order, the columns of the shape are consecutive.
        let second = (by_rows != first.fortran).then(|| open_array(path)).transpose()?;
        let mut array = Self { first, second, num_edges, done: 0 };
        if let Some(second) = &mut array.second {
            second.skip(num_edges)?;
        }
        Ok(array)
    }

    fn next(&mut self) -> Result<Option<Batch>> {
        let (count, first) = (ROWS.min(self.num_edges - self.done), self.done);
        if count == 0 {
            return Ok(None);
        }
        self.done += count;
        let (mut sources, mut targets) = (Vec::new(), Vec::new());
        match &mut self.second {
            Some(second) => {
                self.first.ints(count, &mut sources)?;
                second.ints(count, &mut targets)?;
            }
            None => {
                let mut pairs = Vec::new();
                self.first.ints(2 * count, &mut pairs)?;
                (sources, targets) = pairs.chunks_exact(2).map(|pair| (pair[0], pair[1])).unzip();
            }
        }
        Ok(Some(Batch::of_ints(vec![sources, targets], first)))
    }
}

impl<'p> EdgeReader<'p> {
    pub(super) fn open(table: &EdgeTable, ingest: &Ingest<'p>) -> Result<Self> {
        let path = table.path().to_path_buf();
        let (ends, mut of, mut weight, mut time, mut weights, mut times);
        (of, weight, time, weights, times) = (None, None, None, None, None);
        let mut features = Vec::new();
        let rows = match &table.rows {
            EdgeRows::Table(rows) => {
                let mut file = rows.open(ingest.progress())?;
                let mut index = |column: &Column| rows.index(&mut file, column);
                ends = [index(&table.source.column)?, index(&table.target.column)?];
                if let TypeOf::Column(column) = &table.of {
                    of = Some(index(column)?);
                }
                let mut value = |values: &Option<Values>| match values {
                    None => Ok(None),
                    Some(Values::Column(column)) => index(column).map(Some),
                    Some(Values::File(path, _) | Values::Raw(path)) => {
                        let what = "values of edges in a file of their own";
                        invalid(path, what, "add them to the table of the edges as a column, and name that")
                    }
                };
                (weight, time) = (value(&table.weight)?, value(&table.time)?);
                let single: Vec<usize> = ends.into_iter().chain(of).chain(weight).chain(time).collect();
                if let Features::Columns(selected) = &table.features {
                    if rows.header.is_none() && selected.iter().any(|column| matches!(column, Column::Name(_))) {
                        file.header.named = true;
                    }
                    features = file.select(selected, &single, "features")?;
                }
                let all = single.into_iter().chain(features.iter().copied()).collect();
                Rows::Table(file, all)
            }
            EdgeRows::Array(path, form) => {
                ends = [0, 1];
                let array = EdgeArray::open(path, *form)?;
                let open = |values: &Option<Values>| match values {
                    None => Ok(None),
                    Some(Values::Column(column)) => {
                        let what = format!("an array of edges has no column {column}");
                        invalid(path, what, "give the values as an array of their own: { file = \"FILE.npy\" }")
                    }
                    Some(Values::File(path, _) | Values::Raw(path)) => {
                        let values = open_array(path)?;
                        values.expect_vector()?;
                        if values.shape[0] != array.num_edges {
                            let what = format!("{} values for {} edges", values.shape[0], array.num_edges);
                            return invalid(path, what, "give every edge its value");
                        }
                        Ok(Some(values))
                    }
                };
                (weights, times) = (open(&table.weight)?, open(&table.time)?);
                Rows::Array(array)
            }
            EdgeRows::Triples(path, syntax) => {
                (ends, of) = ([0, 2], Some(1));
                Rows::Triples(Triples::open(path, *syntax, ingest)?)
            }
        };
        Ok(Self { rows, path, ends, of, weight, time, features, weights, times })
    }

    /// The next rows; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Batch>> {
        match &mut self.rows {
            Rows::Table(file, columns) => file.next(columns),
            Rows::Array(array) => array.next(),
            Rows::Triples(triples) => triples.next(),
        }
    }

    /// Triples that are no edges, of those read so far.
    pub(super) fn left_out(&self) -> u64 {
        if let Rows::Triples(triples) = &self.rows { triples.literals } else { 0 }
    }

    /// The weights of the rows; `None` where they have none.
    pub(super) fn weights(&mut self, batch: &Batch) -> Result<Option<Vec<f32>>> {
        let mut weights = Vec::with_capacity(batch.rows);
        match (&mut self.weights, self.weight) {
            (Some(array), _) => array.floats(batch.rows as u64, &mut weights)?,
            (None, Some(column)) => {
                for row in 0..batch.rows {
                    weights.push(batch.column(column).real(row).map_err(|text| {
                        let what = format!("the weight {} is no number", quoted(&text));
                        Error::invalid(&self.path, batch.position(row), what, WEIGHTS)
                    })?);
                }
            }
            (None, None) => return Ok(None),
        }
        if let Some(row) = weights.iter().position(|weight| !(weight.is_finite() && *weight >= 0.0)) {
            let at = match self.weights {
                Some(_) => Position::Element(batch.first + row as u64),
                None => batch.position(row),
            };
            let what = match weights[row] {
                weight if weight.is_nan() => "an edge without a weight".to_string(),
                weight => format!("the weight {weight} is not a finite number of at least 0"),
            };
            return Err(Error::invalid(&self.path, at, what, WEIGHTS));
        }
        Ok(Some(weights))
    }

    /// The times of the rows; `None` where they have none.
    pub(super) fn times(&mut self, batch: &Batch) -> Result<Option<Vec<i64>>> {
        let mut times = Vec::with_capacity(batch.rows);
        match (&mut self.times, self.time) {
            (Some(array), _) => array.ints(batch.rows as u64, &mut times)?,
            (None, Some(column)) => read_times(&self.path, batch, column, &mut times)?,
            (None, None) => return Ok(None),
        }
        Ok(Some(times))
    }
}

impl EdgeReader<'_> {
    /// Appends the features of the rows to `out`, row after row; returns their number per edge, 0 where none are in columns.
    pub(super) fn features(&self, batch: &Batch, out: &mut Vec<f32>) -> Result<usize> {
        match &self.rows {
            Rows::Table(file, _) if !self.features.is_empty() => {
                let cells = FeatureCells { columns: &self.features, are_named: file.header.named, of: "edge" };
                cells.read(file, batch, out)
            }
            _ => Ok(0),
        }
    }
}

/// Cure for what is no weight.
const WEIGHTS: &str = "correct it, or import with --drop-weights";
