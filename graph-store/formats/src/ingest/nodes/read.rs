//! Reading the files of nodes.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use morphgl_graph_store::{Error, NpyWriter, Position, Result};

use super::columns::{Chosen, Given, ID, choose, note_columns};
use super::{Features, Keys, NO_SPLIT, NodeTable};
use crate::Ingest;
use crate::elements::Kind;
use crate::table::open_array;
use crate::tabular::{Batch, TableFile, Texts, Values, is_missing};

/// Reads all files that the options name.
pub(super) fn all(ingest: &mut Ingest<'_>, named: bool) -> Result<Vec<NodeTable>> {
    let files = &ingest.options().nodes;
    let splits = (0..).zip(&files.splits).map(|(part, path)| (Given::Split(part), path));
    let files = [(Given::Table, &files.table), (Given::Features, &files.features), (Given::Labels, &files.labels)];
    let mut tables = Vec::new();
    for (given, path) in files.into_iter().chain(splits) {
        let Some(path) = path else { continue };
        let table = if is_array(path)? { array(ingest, path, given, named) } else { text(ingest, path, given, named) };
        tables.push(table?);
    }
    Ok(tables)
}

/// Whether the file is a numpy array.
fn is_array(path: &Path) -> Result<bool> {
    let mut head = [0; 6];
    let read = File::open(path).and_then(|mut file| file.read(&mut head)).map_err(|e| Error::io(path, e))?;
    Ok(head[..read] == *b"\x93NUMPY")
}

fn empty(path: &Path, rows: usize) -> NodeTable {
    NodeTable { path: path.into(), rows, keys: None, labels: None, splits: None, features: None }
}

fn array(ingest: &Ingest<'_>, path: &Path, given: Given, named: bool) -> Result<NodeTable> {
    let mut array = open_array(path)?;
    let rows = array.shape.first().copied().unwrap_or(0) as usize;
    let columns = &ingest.options().nodes.columns;
    let mut table = empty(path, rows);
    match given {
        Given::Table => {
            let cure = "give it as --features or --labels, or write a table with named columns";
            return Err(Error::invalid(path, Position::File, "an array has no named columns", cure));
        }
        Given::Features => table.features = Some(Features::Array(path.into())),
        Given::Labels => {
            let column = array.expect_column(&columns.label, "--label-column")?;
            table.labels = Some(array.labels_of(column)?);
        }
        Given::Split(part) if array.ty.kind == Kind::Bool => {
            let column = array.expect_column(&columns.split, "--split-column")?;
            let flags = array.ints_of(column)?;
            table.splits = Some(flags.into_iter().map(|flag| if flag != 0 { part } else { NO_SPLIT }).collect());
        }
        Given::Split(part) => {
            if named {
                let cure = "write the nodes as text, one name a line, or as a mask of booleans";
                return Err(Error::invalid(path, Position::File, "numbers, where nodes are known by names", cure));
            }
            array.expect_vector()?;
            table.keys = Some(Keys::Numbers(array.all_ids()?));
            table.splits = Some(vec![part; rows]);
        }
    }
    Ok(table)
}

fn text(ingest: &mut Ingest<'_>, path: &Path, given: Given, named: bool) -> Result<NodeTable> {
    let mut file = TableFile::open(path, ingest.progress())?;
    // A list of names, one a line, has no header.
    if named
        && given != Given::Table
        && file.header.named
        && file.header.known(ID).is_none()
        && file.header.names.len() == 1
    {
        file.set_header(matches!(given, Given::Labels));
    }
    let chosen = choose(&file, given, ingest)?;
    note_columns(ingest, &file, &chosen);
    let places = chosen.all();
    let mut reader = Reader::new(ingest, path, given, &chosen, named);
    while let Some(batch) = file.next(&places)? {
        reader.take(&batch, &chosen)?;
    }
    reader.finish(ingest, &chosen)
}

/// Collects ids, labels, splits and features from the batches of a table.
struct Reader<'p> {
    path: &'p Path,
    given: Given,
    rows: usize,
    keys: Option<Keys>,
    labels: Vec<i32>,
    /// Rows whose label is a number spelled otherwise than by its digits (`007`, `3.0`), and how; in case labels are names.
    spelled: Vec<(usize, Vec<u8>)>,
    /// All labels as text, from the first one on that is not a number.
    classes: Option<Texts>,
    splits: Vec<u8>,
    spool: Option<std::path::PathBuf>,
    out: Option<NpyWriter<f32>>,
    dim: usize,
}

impl<'p> Reader<'p> {
    fn new(ingest: &Ingest<'_>, path: &'p Path, given: Given, chosen: &Chosen, named: bool) -> Self {
        let keys = chosen.id.map(|_| if named { Keys::Names(Texts::default()) } else { Keys::Numbers(Vec::new()) });
        let spool = (!chosen.features.is_empty()).then(|| ingest.dir().join(format!("{given:?}.rows.npy")));
        Self {
            path,
            given,
            rows: 0,
            keys,
            labels: vec![],
            spelled: vec![],
            classes: None,
            splits: vec![],
            spool,
            out: None,
            dim: 0,
        }
    }

    fn wrong(&self, batch: &Batch, row: usize, what: String, cure: &str) -> Error {
        Error::invalid(self.path, batch.position(row), what, cure)
    }

    fn take(&mut self, batch: &Batch, chosen: &Chosen) -> Result<()> {
        let mut columns = batch.columns.iter();
        if chosen.id.is_some() {
            self.take_ids(batch, columns.next().expect("the ids were asked for"))?;
        }
        if chosen.label.is_some() {
            self.take_labels(batch, columns.next().expect("the labels were asked for"))?;
        }
        if chosen.split.is_some() {
            self.take_splits(batch, columns.next().expect("the splits were asked for"))?;
        }
        let masks: Vec<(u8, &Values)> = (0..)
            .zip(chosen.masks)
            .filter(|(_, mask)| mask.is_some())
            .map(|(part, _)| (part, columns.next().expect("the masks were asked for")))
            .collect();
        if !masks.is_empty() {
            self.take_masks(batch, &masks)?;
        } else if let Given::Split(part) = self.given {
            self.splits.resize(self.rows + batch.rows, part);
        }
        self.take_features(batch, &columns.collect::<Vec<_>>())?;
        self.rows += batch.rows;
        Ok(())
    }

    fn take_ids(&mut self, batch: &Batch, column: &Values) -> Result<()> {
        for row in 0..batch.rows {
            match self.keys.as_mut().expect("a table with ids keeps them") {
                Keys::Names(names) => names.push(column.text(row).trim_ascii()),
                Keys::Numbers(ids) => match column.int(row).map(|id| id.and_then(|id| u64::try_from(id).ok())) {
                    Ok(Some(id)) => ids.push(id),
                    _ => {
                        let text = String::from_utf8_lossy(&column.text(row)).into_owned();
                        let cure = "correct it; nodes that are known by names are imported with --ids strings";
                        return Err(self.wrong(batch, row, format!("{text:?} is no node id"), cure));
                    }
                },
            }
        }
        Ok(())
    }

    fn take_labels(&mut self, batch: &Batch, column: &Values) -> Result<()> {
        for row in 0..batch.rows {
            if let Some(classes) = &mut self.classes {
                classes.push(column.text(row).trim_ascii());
                continue;
            }
            match column.int(row) {
                Ok(label) => {
                    let Ok(label) = i32::try_from(label.unwrap_or(-1)) else {
                        let what = format!("the label {} is no class", label.unwrap_or(-1));
                        return Err(self.wrong(batch, row, what, "correct it; -1 or nothing stands for none"));
                    };
                    if let Values::Texts(texts) = column {
                        let text = texts.get(row).trim_ascii();
                        let plain = text.iter().all(u8::is_ascii_digit) && (text.len() == 1 || !text.starts_with(b"0"));
                        if label >= 0 && !plain {
                            self.spelled.push((self.labels.len(), text.to_vec()));
                        }
                    }
                    self.labels.push(label);
                }
                // The first label that is not a number: all labels are class names, those before it too.
                Err(name) => {
                    let (mut classes, mut spelled) = (Texts::default(), self.spelled.drain(..).peekable());
                    for (row, label) in self.labels.drain(..).enumerate() {
                        match spelled.next_if(|(at, _)| *at == row) {
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

    fn take_splits(&mut self, batch: &Batch, column: &Values) -> Result<()> {
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
                    return Err(self.wrong(batch, row, what, "write train, valid, test or nothing"));
                }
            });
        }
        Ok(())
    }

    fn take_masks(&mut self, batch: &Batch, masks: &[(u8, &Values)]) -> Result<()> {
        for row in 0..batch.rows {
            let mut found = NO_SPLIT;
            for &(part, column) in masks {
                let text = column.text(row).trim_ascii().to_ascii_lowercase();
                let set = match text.as_slice() {
                    b"1" | b"true" | b"t" | b"yes" | b"1.0" => true,
                    b"0" | b"false" | b"f" | b"no" | b"0.0" | b"" => false,
                    _ => {
                        let what = format!("{:?} is neither true nor false", String::from_utf8_lossy(&text));
                        return Err(self.wrong(batch, row, what, "write 1 or 0"));
                    }
                };
                if set && std::mem::replace(&mut found, part) != NO_SPLIT {
                    let what = "a node of two splits".into();
                    return Err(self.wrong(batch, row, what, "leave it in one of them"));
                }
            }
            self.splits.push(found);
        }
        Ok(())
    }

    fn take_features(&mut self, batch: &Batch, columns: &[&Values]) -> Result<()> {
        let Some(spool) = &self.spool else { return Ok(()) };
        let width = |column: &&Values| if let Values::Vectors(dim, _) = column { *dim } else { 1 };
        let dim = columns.iter().map(width).sum::<usize>();
        if self.out.is_none() {
            (self.out, self.dim) = (Some(NpyWriter::create(spool)?), dim);
        }
        let mut rows = Vec::with_capacity(batch.rows * dim);
        for row in 0..batch.rows {
            for column in columns {
                match column {
                    Values::Vectors(dim, values) => rows.extend_from_slice(&values[row * dim..][..*dim]),
                    column => rows.push(column.real(row).map_err(|text| {
                        let cure = "correct it, or say by --feature-columns which columns are features";
                        self.wrong(batch, row, format!("the feature {text:?} is no number"), cure)
                    })?),
                }
            }
        }
        if dim != self.dim {
            let what = format!("lists of {} and of {dim} values", self.dim);
            return Err(self.wrong(batch, 0, what, "give every node as many features"));
        }
        self.out.as_mut().expect("it was opened").write(&rows)
    }

    fn finish(mut self, ingest: &mut Ingest<'_>, chosen: &Chosen) -> Result<NodeTable> {
        let mut table = empty(self.path, self.rows);
        if let Some(out) = self.out.take() {
            out.finish(Some(self.dim))?;
            table.features = self.spool.take().map(|spool| Features::Rows(spool, self.dim));
        }
        if chosen.label.is_some() {
            table.labels = Some(match &self.classes {
                Some(classes) => numbered(ingest, classes),
                None => std::mem::take(&mut self.labels),
            });
        }
        table.splits = (!self.splits.is_empty()).then_some(self.splits);
        table.keys = self.keys;
        Ok(table)
    }
}

/// Numbers named classes in the order of their names, and writes the names to the provenance.
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
