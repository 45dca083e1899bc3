//! Reading the files of nodes.

use std::path::{Path, PathBuf};

use morphgl_graph_store::{Error, NpyWriter, Result};

use super::columns::{FileRole, ID, MASKS, TableColumns, choose, note_columns};
use super::labels::{Labelled, Labels};
use super::targets::{self, Targets};
use super::{Features, FirstColumn, Keys, NO_SPLIT, NodeTable};
use crate::Ingest;
use crate::files::{Fault, file_name, invalid, magic};
use crate::npy::open_array;
use crate::splits::{self, Form, SplitNodes};
use crate::tabular::{Batch, TableFile, Texts, Values, boolean, comments_note, is_missing, lists};
use crate::text::{NO_COMMAS, has_comma};

/// Reads all files that the options name.
pub(super) fn all(ingest: &mut Ingest<'_>, named: bool) -> Result<Vec<NodeTable>> {
    let files = &ingest.options().nodes;
    let splits = (0..).zip(&files.splits).map(|(part, path)| (FileRole::Split(part), path));
    let files = [
        (FileRole::Table, &files.table),
        (FileRole::Features, &files.features),
        (FileRole::Labels, &files.labels),
        (FileRole::Targets, &files.targets),
    ];
    let mut tables = Vec::new();
    for (role, path) in files.into_iter().chain(splits) {
        let Some(path) = path else { continue };
        let is_array = magic(path)?.starts_with(b"\x93NUMPY");
        let table = if is_array { array(ingest, path, role, named) } else { text(ingest, path, role, named) };
        tables.push(table?);
    }
    Ok(tables)
}

fn array(ingest: &Ingest<'_>, path: &Path, role: FileRole, named: bool) -> Result<NodeTable> {
    let mut array = open_array(path)?;
    let rows = array.shape.first().copied().unwrap_or(0) as usize;
    let columns = &ingest.options().nodes.columns;
    let mut table = NodeTable {
        path: path.into(),
        rows,
        keys: None,
        lists_nodes: !matches!(role, FileRole::Split(_)),
        first_column: None,
        labels: None,
        splits: None,
        features: None,
        targets: None,
        lone_ids: vec![],
    };
    match role {
        FileRole::Table => {
            let cure = "give it as --features, --labels or --targets, or write a table with named columns";
            return invalid(path, "an array has no named columns", cure);
        }
        FileRole::Features => table.features = Some(Features::Array(path.into())),
        FileRole::Labels => table.labels = Some(array.labels_of(&columns.label)?),
        FileRole::Targets => table.targets = Some(Targets::of_array(&mut array, columns.targets.as_deref())?),
        FileRole::Split(part) => match splits::read(&mut array, &columns.split, Form::Either, None)? {
            SplitNodes::Mask(mask) => table.splits = Some(of_mask(&mask, part)),
            SplitNodes::Ids(_) if named => {
                let cure = "write the nodes as text, one name per line, or as a mask of booleans";
                return invalid(path, "numbers, where nodes are known by names", cure);
            }
            SplitNodes::Ids(ids) => {
                table.lone_ids.extend(ids.iter().filter(|_| ids.len() <= 2));
                table.keys = Some(Keys::Numbers(ids));
                table.splits = Some(vec![part; rows]);
            }
        },
    }
    Ok(table)
}

fn text(ingest: &mut Ingest<'_>, path: &Path, role: FileRole, named: bool) -> Result<NodeTable> {
    let mut file = TableFile::with_ids(path, named, ingest.progress())?;
    if named && file.num_comments > 0 {
        ingest.note(comments_note(path, file.num_comments));
    }
    // A list of names, one per line, has no header.
    if named
        && !matches!(role, FileRole::Table | FileRole::Labels | FileRole::Targets)
        && file.header.find(ID).is_none()
        && MASKS.iter().all(|names| file.header.find(names).is_none())
        && file.header.names.len() == 1
    {
        file.header.named = false;
    }
    // Columns that pandas numbered stand beside columns with names.
    let is_name = |name: &String| ID.contains(&name.as_str()) || name == "label";
    file.header.named |= file.header.names.len() > 1 && file.header.names.iter().any(is_name);
    let columns = choose(&file, role, ingest)?;
    if !columns.is_lone {
        note_columns(ingest, &file, &columns);
    }
    let indices = columns.all();
    let mut reader = TableReader::new(ingest, path, role, columns, named);
    while let Some(batch) = file.next(&indices)? {
        reader.read(&batch)?;
    }
    reader.finish(ingest)
}

/// Collects ids, labels, splits, features and targets from the batches of a table.
struct TableReader<'p> {
    path: &'p Path,
    role: FileRole,
    columns: TableColumns,
    rows: usize,
    keys: Keys,
    /// Whole numbers in the first column of features or targets, which may be ids that nothing names.
    first_column: Option<Vec<u64>>,
    labels: Labels,
    targets: Targets,
    splits: Vec<u8>,
    /// Numbers in the only column of a split's file, which has no name and is no mask by its values.
    lone_ids: Vec<u64>,
    /// Temporary file of the features.
    spool: PathBuf,
    /// The writer of the features, and the number of values in a row.
    out: Option<(NpyWriter<f32>, usize)>,
}

impl<'p> TableReader<'p> {
    fn new(ingest: &Ingest<'_>, path: &'p Path, role: FileRole, columns: TableColumns, named: bool) -> Self {
        let selected = &ingest.options().nodes.columns;
        let by_default = match role {
            FileRole::Features => selected.features.is_none(),
            FileRole::Targets => selected.targets.is_none(),
            _ => false,
        };
        Self {
            first_column: (by_default && columns.id.is_none()).then(Vec::new),
            targets: Targets::named(columns.target_names.clone()),
            path,
            role,
            columns,
            rows: 0,
            keys: if named { Keys::Names(Texts::default()) } else { Keys::Numbers(Vec::new()) },
            labels: Labels::new(Labelled::NODES),
            splits: vec![],
            lone_ids: vec![],
            spool: ingest.dir().join(format!("{role:?}.rows.npy")),
            out: None,
        }
    }

    fn error(&self, batch: &Batch, row: usize, what: String, cure: &str) -> Error {
        Error::invalid(self.path, batch.position(row), what, cure)
    }

    fn read(&mut self, batch: &Batch) -> Result<()> {
        if let Some(column) = self.columns.id {
            self.read_ids(batch, batch.column(column))?;
        }
        if let Some(column) = self.columns.label {
            self.labels.read(self.path, batch, batch.column(column))?;
        }
        if let Some(column) = self.columns.split {
            self.read_splits(batch, batch.column(column))?;
        }
        let masks = (0..).zip(self.columns.masks).filter_map(|(part, mask)| Some((part, batch.column(mask?))));
        let masks: Vec<(u8, &Values)> = masks.collect();
        if !masks.is_empty() {
            self.read_masks(batch, &masks)?;
        } else if let FileRole::Split(part) = self.role {
            self.splits.resize(self.rows + batch.rows, part);
        }
        self.read_first_column(batch);
        if !self.columns.features.is_empty() {
            self.read_features(batch)?;
        }
        if !self.columns.targets.is_empty() {
            self.targets.read(self.path, batch, &self.columns.targets)?;
        }
        self.rows += batch.rows;
        Ok(())
    }

    fn read_ids(&mut self, batch: &Batch, column: &Values) -> Result<()> {
        for row in 0..batch.rows {
            match &mut self.keys {
                Keys::Names(names) => names.push(column.text(row).trim_ascii()),
                Keys::Numbers(ids) => match column.int(row).map(|id| id.and_then(|id| u64::try_from(id).ok())) {
                    Ok(Some(id)) => ids.push(id),
                    _ => {
                        let text = String::from_utf8_lossy(&column.text(row)).into_owned();
                        let cure = match self.role {
                            FileRole::Split(_) if boolean(text.as_bytes()).is_some() => {
                                "write a mask as 1 and 0, or name its column train_mask, val_mask or test_mask"
                            }
                            _ => "correct it; nodes that are known by names are imported with --ids strings",
                        };
                        return Err(self.error(batch, row, format!("{text:?} is no node id"), cure));
                    }
                },
            }
        }
        Ok(())
    }

    fn read_splits(&mut self, batch: &Batch, column: &Values) -> Result<()> {
        for row in 0..batch.rows {
            match split_of(&column.text(row)) {
                Ok(split) => self.splits.push(split),
                Err((what, cure)) => return Err(self.error(batch, row, what, cure)),
            }
        }
        Ok(())
    }

    fn read_masks(&mut self, batch: &Batch, masks: &[(u8, &Values)]) -> Result<()> {
        for row in 0..batch.rows {
            let mut split = NO_SPLIT;
            for &(part, column) in masks {
                let text = column.text(row);
                let Some(set) = flag(&text) else {
                    let what = format!("{:?} is neither true nor false", String::from_utf8_lossy(&text));
                    return Err(self.error(batch, row, what, "write 1 or 0"));
                };
                if set && std::mem::replace(&mut split, part) != NO_SPLIT {
                    let what = "a node of two splits".into();
                    return Err(self.error(batch, row, what, "leave it in one of them"));
                }
            }
            self.splits.push(split);
        }
        Ok(())
    }

    /// The columns that are features or targets by default, in a file that has nothing else.
    fn values(&self) -> &[usize] {
        if self.role == FileRole::Targets { &self.columns.targets } else { &self.columns.features }
    }

    /// Keeps the first column of features or targets while it may be one of ids.
    fn read_first_column(&mut self, batch: &Batch) {
        let Some(&first) = self.values().first() else { return };
        let column = batch.column(first);
        if let Some(numbers) = &mut self.first_column {
            let number = |row| column.int(row).ok().flatten().and_then(|number| u64::try_from(number).ok());
            numbers.extend((0..batch.rows).map_while(number));
            self.first_column.take_if(|numbers| numbers.len() < self.rows + batch.rows);
        }
    }

    fn read_features(&mut self, batch: &Batch) -> Result<()> {
        let columns: Vec<&Values> = self.columns.features.iter().map(|&column| batch.column(column)).collect();
        let width = |column: &&Values| if let Values::Vectors(dim, _) = column { *dim } else { 1 };
        let dim = columns.iter().map(width).sum::<usize>();
        let mut rows = Vec::with_capacity(batch.rows * dim);
        for row in 0..batch.rows {
            for column in &columns {
                match column {
                    Values::Vectors(dim, values) => rows.extend_from_slice(&values[row * dim..][..*dim]),
                    column => rows.push(column.real(row).map_err(|text| {
                        let cure = match has_comma(text.as_bytes()) {
                            true => NO_COMMAS,
                            false => {
                                "correct it, or say by --feature-columns which columns are features, and by --id-column which are ids"
                            }
                        };
                        self.error(batch, row, format!("the feature {text:?} is no number"), cure)
                    })?),
                }
            }
        }
        if self.out.is_none() {
            self.out = Some((NpyWriter::create(&self.spool)?, dim));
        }
        match &mut self.out {
            Some((out, first_dim)) if *first_dim == dim => out.write(&rows),
            out => {
                let what =
                    format!("lists of {} and of {dim} values", out.as_ref().map_or(0, |(_, first_dim)| *first_dim));
                Err(self.error(batch, 0, what, "give every node as many features"))
            }
        }
    }

    /// Makes a mask of a list of ids that is one by its values: zeros and ones, which would repeat nodes.
    fn find_mask(&mut self) {
        let FileRole::Split(part) = self.role else { return };
        let numbers: Option<Vec<u64>> = match &self.keys {
            Keys::Numbers(ids) => ids.iter().all(|&id| id <= 1).then(|| ids.clone()),
            Keys::Names(names) => {
                let number = |name: &[u8]| [&b"0"[..], b"1"].iter().position(|number| *number == name);
                names.iter().map(|name| number(name).map(|number| number as u64)).collect()
            }
        };
        let Some(numbers) = numbers.filter(|_| self.columns.is_lone) else { return };
        if splits::is_mask(numbers.iter().copied()) {
            self.columns.id = None;
            self.splits = of_mask(&numbers.iter().map(|&number| number == 1).collect::<Vec<_>>(), part);
        } else {
            self.lone_ids = numbers;
        }
    }

    fn finish(mut self, ingest: &mut Ingest<'_>) -> Result<NodeTable> {
        self.find_mask();
        if self.columns.is_lone {
            let what = if self.columns.id.is_some() { "ids of nodes" } else { "a mask of all nodes" };
            ingest.note(format!("{}: {what}", file_name(self.path)));
        }
        let values = self.values().to_vec();
        let features = match self.out {
            Some((out, dim)) => {
                out.finish(Some(dim))?;
                // A column of lists has more features than names.
                let columns = self.columns.feature_columns.filter(|columns| columns.names.len() == dim);
                Some(Features::Rows { rows: self.spool, dim, columns })
            }
            None => None,
        };
        let labels = self.columns.label.map(|_| self.labels.finish(ingest)).transpose()?;
        let (noun, option) = match self.role {
            FileRole::Targets => ("target", targets::OPTION),
            _ => ("feature", "--feature-columns"),
        };
        let first_column = self.first_column.filter(|_| !values.is_empty()).map(|numbers| FirstColumn {
            numbers,
            noun,
            as_ids: format!("--id-column {}", values[0] + 1),
            as_values: format!("{option} {}", lists::numbers(&values)),
        });
        Ok(NodeTable {
            first_column,
            path: self.path.into(),
            rows: self.rows,
            keys: self.columns.id.map(|_| self.keys),
            lists_nodes: !matches!(self.role, FileRole::Split(_)),
            labels,
            splits: (!self.splits.is_empty()).then_some(self.splits),
            features,
            targets: (!self.columns.targets.is_empty()).then_some(self.targets),
            lone_ids: self.lone_ids,
        })
    }
}

/// The split that a field names.
pub(crate) fn split_of(field: &[u8]) -> std::result::Result<u8, Fault> {
    let text = String::from_utf8_lossy(field).trim().to_lowercase();
    match text.as_str() {
        "train" | "training" => Ok(0),
        "valid" | "val" | "validation" | "dev" => Ok(1),
        "test" | "testing" => Ok(2),
        "none" | "unlabeled" | "-" => Ok(NO_SPLIT),
        other if is_missing(other.as_bytes()) || other == "nan" => Ok(NO_SPLIT),
        _ => Err((format!("{text:?} is no split"), "write train, valid, test or nothing")),
    }
}

/// The split of each node of a mask.
fn of_mask(flags: &[bool], part: u8) -> Vec<u8> {
    flags.iter().map(|&flag| if flag { part } else { NO_SPLIT }).collect()
}

/// The value of a field of a mask; nothing is false.
fn flag(text: &[u8]) -> Option<bool> {
    match text.trim_ascii().to_ascii_lowercase().as_slice() {
        b"1" | b"true" | b"t" | b"yes" | b"1.0" => Some(true),
        b"0" | b"false" | b"f" | b"no" | b"0.0" | b"" => Some(false),
        _ => None,
    }
}
