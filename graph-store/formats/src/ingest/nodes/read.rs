//! Reading the files of nodes.

use std::path::{Path, PathBuf};

use morphgl_graph_store::{Error, NpyWriter, Result};

use super::columns::{FileRole, ID, TableColumns, choose, note_columns};
use super::{Features, Keys, NO_SPLIT, NodeTable};
use crate::Ingest;
use crate::elements::Kind;
use crate::files::{invalid, magic};
use crate::npy::open_array;
use crate::tabular::{Batch, TableFile, Texts, Values, comments_note, is_missing};

/// Reads all files that the options name.
pub(super) fn all(ingest: &mut Ingest<'_>, named: bool) -> Result<Vec<NodeTable>> {
    let files = &ingest.options().nodes;
    let splits = (0..).zip(&files.splits).map(|(part, path)| (FileRole::Split(part), path));
    let files =
        [(FileRole::Table, &files.table), (FileRole::Features, &files.features), (FileRole::Labels, &files.labels)];
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
    let mut table = NodeTable { path: path.into(), rows, keys: None, labels: None, splits: None, features: None };
    match role {
        FileRole::Table => {
            let cure = "give it as --features or --labels, or write a table with named columns";
            return invalid(path, "an array has no named columns", cure);
        }
        FileRole::Features => table.features = Some(Features::Array(path.into())),
        FileRole::Labels => table.labels = Some(array.labels_of(&columns.label)?),
        FileRole::Split(part) if array.ty.kind == Kind::Bool => {
            let mask = array.mask_of(&columns.split)?;
            table.splits = Some(mask.into_iter().map(|flag| if flag { part } else { NO_SPLIT }).collect());
        }
        FileRole::Split(_) if named => {
            let cure = "write the nodes as text, one name a line, or as a mask of booleans";
            return invalid(path, "numbers, where nodes are known by names", cure);
        }
        FileRole::Split(part) => {
            array.expect_vector()?;
            table.keys = Some(Keys::Numbers(array.all_ids()?));
            table.splits = Some(vec![part; rows]);
        }
    }
    Ok(table)
}

fn text(ingest: &mut Ingest<'_>, path: &Path, role: FileRole, named: bool) -> Result<NodeTable> {
    let mut file = TableFile::with_ids(path, named, ingest.progress())?;
    if named && file.num_comments > 0 {
        ingest.note(comments_note(path, file.num_comments));
    }
    // A list of names, one a line, has no header.
    if named
        && !matches!(role, FileRole::Table | FileRole::Labels)
        && file.header.find(ID).is_none()
        && file.header.names.len() == 1
    {
        file.header.named = false;
    }
    let columns = choose(&file, role, ingest)?;
    note_columns(ingest, &file, &columns);
    let indices = columns.all();
    let mut reader = TableReader::new(ingest, path, role, columns, named);
    while let Some(batch) = file.next(&indices)? {
        reader.read(&batch)?;
    }
    reader.finish(ingest)
}

/// Collects ids, labels, splits and features from the batches of a table.
struct TableReader<'p> {
    path: &'p Path,
    role: FileRole,
    columns: TableColumns,
    rows: usize,
    keys: Keys,
    labels: Vec<i32>,
    /// Rows whose label is a number spelled otherwise than by its digits (`007`, `3.0`), and its text; in case labels are names.
    spellings: Vec<(usize, Vec<u8>)>,
    /// All labels as text, from the first one on that is not a number.
    classes: Option<Texts>,
    splits: Vec<u8>,
    /// Temporary file of the features.
    spool: PathBuf,
    /// The writer of the features, and the number of values in a row.
    out: Option<(NpyWriter<f32>, usize)>,
}

impl<'p> TableReader<'p> {
    fn new(ingest: &Ingest<'_>, path: &'p Path, role: FileRole, columns: TableColumns, named: bool) -> Self {
        Self {
            path,
            role,
            columns,
            rows: 0,
            keys: if named { Keys::Names(Texts::default()) } else { Keys::Numbers(Vec::new()) },
            labels: vec![],
            spellings: vec![],
            classes: None,
            splits: vec![],
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
            self.read_labels(batch, batch.column(column))?;
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
        if !self.columns.features.is_empty() {
            self.read_features(batch)?;
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
                        let cure = "correct it; nodes that are known by names are imported with --ids strings";
                        return Err(self.error(batch, row, format!("{text:?} is no node id"), cure));
                    }
                },
            }
        }
        Ok(())
    }

    fn read_labels(&mut self, batch: &Batch, column: &Values) -> Result<()> {
        for row in 0..batch.rows {
            if let Some(classes) = &mut self.classes {
                classes.push(column.text(row).trim_ascii());
                continue;
            }
            match column.int(row) {
                Ok(label) => {
                    let Ok(label) = i32::try_from(label.unwrap_or(-1)) else {
                        let what = format!("the label {} is no class", label.unwrap_or(-1));
                        return Err(self.error(batch, row, what, "correct it; -1 or nothing stands for none"));
                    };
                    if let Values::Texts(texts) = column {
                        let text = texts.get(row).trim_ascii();
                        let plain = text.iter().all(u8::is_ascii_digit) && (text.len() == 1 || !text.starts_with(b"0"));
                        if label >= 0 && !plain {
                            self.spellings.push((self.labels.len(), text.to_vec()));
                        }
                    }
                    self.labels.push(label);
                }
                // The first label that is not a number: all labels are class names, those before it too.
                Err(name) => {
                    let (mut classes, mut spellings) = (Texts::default(), self.spellings.drain(..).peekable());
                    for (row, label) in self.labels.drain(..).enumerate() {
                        match spellings.next_if(|(at, _)| *at == row) {
                            Some((_, text)) => classes.push(&text),
                            None => classes.push(if label < 0 { String::new() } else { label.to_string() }.as_bytes()),
                        }
                    }
                    classes.push(name.as_bytes());
                    self.classes = Some(classes);
                }
            }
        }
        Ok(())
    }

    fn read_splits(&mut self, batch: &Batch, column: &Values) -> Result<()> {
        for row in 0..batch.rows {
            let text = String::from_utf8_lossy(&column.text(row)).trim().to_lowercase();
            self.splits.push(match text.as_str() {
                "train" | "training" => 0,
                "valid" | "val" | "validation" | "dev" => 1,
                "test" | "testing" => 2,
                "none" | "unlabeled" | "-" => NO_SPLIT,
                other if is_missing(other.as_bytes()) || other == "nan" => NO_SPLIT,
                _ => {
                    let what = format!("{text:?} is no split");
                    return Err(self.error(batch, row, what, "write train, valid, test or nothing"));
                }
            });
        }
        Ok(())
    }

    fn read_masks(&mut self, batch: &Batch, masks: &[(u8, &Values)]) -> Result<()> {
        for row in 0..batch.rows {
            let mut split = NO_SPLIT;
            for &(part, column) in masks {
                let text = column.text(row).trim_ascii().to_ascii_lowercase();
                let set = match text.as_slice() {
                    b"1" | b"true" | b"t" | b"yes" | b"1.0" => true,
                    b"0" | b"false" | b"f" | b"no" | b"0.0" | b"" => false,
                    _ => {
                        let what = format!("{:?} is neither true nor false", String::from_utf8_lossy(&text));
                        return Err(self.error(batch, row, what, "write 1 or 0"));
                    }
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
                        let cure = "correct it, or say by --feature-columns which columns are features";
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

    fn finish(self, ingest: &mut Ingest<'_>) -> Result<NodeTable> {
        let features = match self.out {
            Some((out, dim)) => {
                out.finish(Some(dim))?;
                Some(Features::Rows(self.spool, dim))
            }
            None => None,
        };
        let labels = self.columns.label.map(|_| match &self.classes {
            Some(classes) => numbered(ingest, classes),
            None => self.labels,
        });
        Ok(NodeTable {
            path: self.path.into(),
            rows: self.rows,
            keys: self.columns.id.map(|_| self.keys),
            labels,
            splits: (!self.splits.is_empty()).then_some(self.splits),
            features,
        })
    }
}

/// Numbers the classes in the order of their names, and adds the names to the provenance.
fn numbered(ingest: &mut Ingest<'_>, classes: &Texts) -> Vec<i32> {
    let mut names: Vec<&[u8]> = classes.iter().filter(|name| !is_missing(name)).collect();
    names.sort_unstable();
    names.dedup();
    let texts: Vec<String> = names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    let few = texts.iter().take(4).enumerate().map(|(i, name)| format!("{name} = {i}")).collect::<Vec<_>>().join(", ");
    let more = if texts.len() > 4 { ", …" } else { "" };
    ingest.note(format!("the labels are names, numbered in their order: {few}{more}"));
    ingest.provenance("class_names", texts);
    let class = |name: &[u8]| names.binary_search(&name).map_or(-1, |i| i as i32);
    classes.iter().map(class).collect()
}
