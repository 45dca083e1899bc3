//! Real-valued targets: columns of a table of nodes, or of an array.

use std::path::Path;

use morphgl_graph_store::{Error, Position, Result};

use super::RowNodes;
use crate::elements::Kind;
use crate::files::invalid;
use crate::ingest::SPLITS;
use crate::ingest::features::BATCH_VALUES;
use crate::npy::ArrayReader;
use crate::tabular::{Batch, Values, lists};
use crate::text::{Header, NO_COMMAS, has_comma};
use crate::{Column, Ingest};

/// Option that selects columns of targets.
pub(super) const OPTION: &str = "--target-columns";
/// Maximum number of targets of a node.
const MAX_DIM: usize = 1 << 20;
/// Cure for infinite targets.
const FINITE: &str = "correct it; NaN or nothing stands for an unknown target";

/// Targets, row by row.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    /// Values per row; 0 before the first row.
    dim: usize,
    values: Vec<f32>,
    /// Names of the columns, where these have names.
    names: Option<Vec<String>>,
    /// What the error for a value that is no number tells the user to do.
    cure: &'static str,
}

impl Targets {
    /// No rows yet, of columns with these names.
    pub(super) fn named(names: Option<Vec<String>>) -> Self {
        let cure = "correct it, or say by --target-columns which columns are targets, and by --id-column which are ids";
        Self { names, cure, ..Self::default() }
    }

    /// As [`Targets::named`], of a type of nodes.
    pub(crate) fn of_type(names: Option<Vec<String>>) -> Self {
        Self { names, cure: "correct it, or list other columns as targets", ..Self::default() }
    }

    /// The same with these names of columns.
    pub(crate) fn called(self, names: Option<Vec<String>>) -> Self {
        Self { names, ..self }
    }

    /// As [`Targets::named`], of edges.
    pub(in crate::ingest) fn of_edges(names: Option<Vec<String>>) -> Self {
        let cure = "correct it, or say by --edge-target-columns which columns are targets";
        Self { names, cure, ..Self::default() }
    }

    /// Values per row, the values row after row, and the names of the columns, where there are as many.
    pub(crate) fn into_parts(self) -> (usize, Vec<f32>, Option<Vec<String>>) {
        (self.dim, self.values, self.names.filter(|names| names.len() == self.dim))
    }

    /// Appends the targets of a batch: its columns `columns`; errors name `path`.
    pub(crate) fn read(&mut self, path: &Path, batch: &Batch, columns: &[usize]) -> Result<()> {
        let wrong = |row, what: String, cure: &str| Err(Error::invalid(path, batch.position(row), what, cure));
        let columns: Vec<&Values> = columns.iter().map(|&column| batch.column(column)).collect();
        let width = |column: &&Values| if let Values::Vectors(dim, _) = column { *dim } else { 1 };
        let dim = columns.iter().map(width).sum::<usize>();
        if self.dim != 0 && self.dim != dim {
            return wrong(0, format!("lists of {} and of {dim} targets", self.dim), "give every node as many");
        }
        self.dim = dim;
        for row in 0..batch.rows {
            let start = self.values.len();
            for column in &columns {
                match column {
                    Values::Vectors(dim, values) => self.values.extend_from_slice(&values[row * dim..][..*dim]),
                    column => match column.real(row) {
                        Ok(value) => self.values.push(value),
                        Err(text) => {
                            let cure = match has_comma(text.as_bytes()) {
                                true => NO_COMMAS,
                                false => self.cure,
                            };
                            return wrong(row, format!("the target {text:?} is no number"), cure);
                        }
                    },
                }
            }
            if let Some(value) = self.values[start..].iter().find(|value| value.is_infinite()) {
                return wrong(row, format!("the target {value} is not finite as f32"), FINITE);
            }
        }
        Ok(())
    }

    /// The targets of an array `[nodes]` or `[nodes, K]`: all, or the columns that an option names.
    pub(crate) fn of_array(array: &mut ArrayReader<'_>, columns: Option<&[Column]>) -> Result<Self> {
        if matches!(array.ty.kind, Kind::Object | Kind::Other) {
            let cure = "save them as numbers, with astype('float32'); NaN stands for an unknown one";
            return invalid(&array.path, "targets that are no numbers but objects or text", cure);
        }
        let (rows, width) = match array.shape[..] {
            [rows] => (rows as usize, 1),
            [rows, width] if width <= MAX_DIM as u64 => (rows as usize, width as usize),
            _ => {
                let what = format!("targets of shape {:?}, expected [nodes] or [nodes, K]", array.shape);
                return invalid(&array.path, what, "reshape them, or keep some of them");
            }
        };
        let selected = match columns {
            None => (0..width).collect(),
            Some(columns) => {
                let header = Header { names: vec![String::new(); width], named: false };
                let selected = lists::select(&header, columns, &[], OPTION);
                selected.or_else(|(what, cure)| invalid(&array.path, what, cure))?
            }
        };
        let mut all = Vec::new();
        array.floats(u64::MAX, &mut all)?;
        let at = |row: usize, column: usize| if array.fortran { column * rows + row } else { row * width + column };
        if let Some(i) = all.iter().position(|value| value.is_infinite()) {
            let (row, column) = if array.fortran { (i % rows, i / rows) } else { (i / width, i % width) };
            let what = format!("the target of row {row}, column {column} is {}, not finite as f32", all[i]);
            return Err(Error::invalid(&array.path, Position::Element(i as u64), what, FINITE));
        }
        let in_order = !array.fortran && selected.iter().copied().eq(0..width);
        let values = match in_order {
            true => all,
            false => (0..rows)
                .flat_map(|row| selected.iter().map(move |&column| (row, column)))
                .map(|(row, column)| all[at(row, column)])
                .collect(),
        };
        Ok(Self { dim: selected.len(), values, ..Self::default() })
    }

    pub(crate) fn num_rows(&self) -> usize {
        self.values.len().checked_div(self.dim).unwrap_or(0)
    }

    /// Appends a row of values.
    pub(crate) fn push(&mut self, row: &[f32]) {
        self.dim = row.len();
        self.values.extend_from_slice(row);
    }
}

impl Ingest<'_> {
    /// Takes the targets of the nodes, or of the rows of the task, in their order.
    pub(crate) fn targets(&mut self, source: &Path, targets: Targets) -> Result<()> {
        let num_rows = targets.num_rows();
        self.write_targets(source, targets, &RowNodes::InOrder, num_rows as u64)
    }

    /// Takes the targets of consecutive nodes from `first` on; the others have unknown ones.
    pub(crate) fn targets_from(&mut self, source: &Path, targets: Targets, first: u32, num_nodes: u64) -> Result<()> {
        let nodes = RowNodes::Listed((first..).take(targets.num_rows()).collect());
        self.write_targets(source, targets, &nodes, num_nodes)
    }

    /// Takes the targets of rows, which belong to `nodes`; nodes without a row have unknown ones.
    pub(super) fn write_targets(
        &mut self,
        source: &Path,
        targets: Targets,
        nodes: &RowNodes,
        num_nodes: u64,
    ) -> Result<()> {
        self.refuse_second("targets", source)?;
        let Targets { dim, values, mut names, .. } = targets;
        if dim == 0 && num_nodes > 0 {
            return invalid(source, "targets of no columns", "leave the file out, or give it columns");
        }
        let num_rows = values.len() / dim.max(1);
        let row_of = nodes.by_node(0..num_rows as u32, u32::MAX, num_nodes);
        let unknown = vec![f32::NAN; dim];
        let mut stream = self.writer.stream::<f32>("targets")?;
        let (mut known, mut known_nodes) = (vec![0u64; dim], 0);
        let mut block = Vec::new();
        for rows in row_of.chunks((BATCH_VALUES / dim.max(1)).max(1)) {
            block.clear();
            for &row in rows {
                let row = if row == u32::MAX { &unknown } else { &values[row as usize * dim..][..dim] };
                known.iter_mut().zip(row).for_each(|(count, value)| *count += u64::from(!value.is_nan()));
                known_nodes += u64::from(row.iter().any(|value| !value.is_nan()));
                block.extend_from_slice(row);
            }
            stream.write(&block)?;
        }
        let meta = stream.finish(Some(dim.max(1)))?;
        self.add_rows("targets", source, num_nodes, meta);
        self.note_unknown_targets(&known, known_nodes, num_nodes, names.as_deref());
        // A column of lists has more targets than names.
        if let Some(names) = names.take_if(|names| names.len() == dim) {
            self.provenance("target_names", names);
        }
        Ok(())
    }

    /// Notes nodes without targets, single values that are unknown, and columns without any.
    fn note_unknown_targets(&mut self, known: &[u64], known_nodes: u64, num_nodes: u64, names: Option<&[String]>) {
        let of = self.examples().0;
        if known_nodes < num_nodes {
            self.note(format!("{} of {num_nodes} {of}s have no known target", num_nodes - known_nodes));
        }
        let unknown = known_nodes * known.len() as u64 - known.iter().sum::<u64>();
        if unknown > 0 {
            let values = lists::counted(unknown, "target");
            self.note(format!("{values} of {of}s with others {} unknown", if unknown == 1 { "is" } else { "are" }));
        }
        let empty: Vec<String> = (0..known.len())
            .filter(|&column| known[column] == 0 && num_nodes > 0)
            .map(|column| names.and_then(|names| names.get(column)).cloned().unwrap_or((column + 1).to_string()))
            .collect();
        if !empty.is_empty() {
            let empty: Vec<&str> = empty.iter().map(String::as_str).collect();
            self.note(format!("targets that no {of} has: {}", lists::list(&empty)));
        }
    }

    /// Whether each node has a known target; empty without targets.
    pub(crate) fn has_known_targets(&self) -> Result<Vec<bool>> {
        if !self.has("targets") {
            return Ok(Vec::new());
        }
        let values = self.array::<f32>("targets")?;
        let dim = (values.len() / (self.examples().1 as usize).max(1)).max(1);
        Ok(values.chunks_exact(dim).map(|row| row.iter().any(|value| !value.is_nan())).collect())
    }

    /// Notes the nodes of each split that have no known target.
    pub(crate) fn note_targets_of_splits(&mut self) -> Result<()> {
        let is_known = self.has_known_targets()?;
        if is_known.is_empty() || !self.has_splits() {
            return Ok(());
        }
        for (split, name) in SPLITS.into_iter().zip(["training", "validation", "test"]) {
            let nodes = self.array::<u32>(split)?;
            let unknown = nodes.iter().filter(|&&v| !is_known[v as usize]).count();
            if unknown > 0 {
                self.note(format!("{unknown} of {} {name} {}s have no known target", nodes.len(), self.examples().0));
            }
        }
        Ok(())
    }
}
