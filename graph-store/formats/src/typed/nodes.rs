//! Reads the tables of nodes.

use std::io::Read;
use std::path::{Path, PathBuf};

use morphgl_graph_store::{Error, NpyWriter, Position, Result};

use super::ids::{Ids, Inserted};
use super::{
    Features, Members, NodeRows, NodeTable, Space, Split, Table, TypeOf, TypedGraph, Values, is_array, labels_of,
    quoted, targets_of, times_of,
};
use crate::files::invalid;
use crate::ingest::feature_rows::FeatureCells;
use crate::ingest::features::feature_dim;
use crate::ingest::nodes::labels::{Labelled, Labels};
use crate::ingest::nodes::{NO_SPLIT, Targets, split_of};
use crate::npy::{open_array, open_raw};
use crate::tabular::{Batch, lists};
use crate::text::open_any_text;
use crate::{Column, Ingest, Silent};

/// The nodes of all types.
pub(super) struct Nodes {
    /// In the order of the graph's node types.
    pub(super) types: Vec<TypeData>,
    pub(super) spaces: Vec<Space>,
}

/// The nodes of a type.
#[derive(Default)]
pub(super) struct TypeData {
    pub(super) count: u64,
    pub(super) features: Option<FeatureRows>,
    pub(super) targets: Option<(PathBuf, Targets)>,
    pub(super) times: Option<Vec<i64>>,
    pub(super) labels: Option<(PathBuf, Vec<i32>)>,
    /// Split of each node: 0 train, 1 valid, 2 test, or [`NO_SPLIT`].
    pub(super) splits: Option<(PathBuf, Vec<u8>)>,
}

/// Features of the nodes of a type.
pub(super) enum FeatureRows {
    /// A `.npy` matrix, or one of so many columns without a header.
    Array(PathBuf, Option<u64>),
    /// Rows in a temporary file of the unfinished dataset.
    Spool(Box<Spool>),
}

/// Feature rows as f32.
pub(super) struct Spool {
    pub(super) source: PathBuf,
    pub(super) path: PathBuf,
    pub(super) dim: usize,
    pub(super) names: Option<Vec<String>>,
    pub(super) out: NpyWriter<f32>,
}

/// Reads all tables of nodes; types that columns name are added to the graph's.
pub(super) fn read(ingest: &mut Ingest<'_>, graph: &mut TypedGraph) -> Result<Nodes> {
    let members = |of: &Option<usize>| of.map_or(Members::Mixed(Vec::new()), Members::Of);
    let spaces = graph.spaces.iter().map(|of| Space { ids: Ids::Rows(0), members: members(of) }).collect();
    let types = graph.node_types.iter().map(|_| TypeData::default()).collect();
    let mut nodes = Nodes { types, spaces };
    for table in &graph.nodes {
        let names = &mut graph.node_types;
        match (&table.rows, &table.of) {
            (NodeRows::Table(_), _) => nodes.read_table(ingest, table, names)?,
            (NodeRows::Count(count), TypeOf::Fixed(of)) => nodes.add_rows(ingest, table, *of, *count)?,
            (NodeRows::Named, _) => {}
            (NodeRows::Count(_), TypeOf::Column(_)) => unreachable!("only a table has columns"),
        }
        nodes.read_files(ingest, table, &graph.node_types)?;
    }
    match &graph.split {
        None => {}
        Some((of, Split::Files(files))) => nodes.read_splits(ingest, *of, files)?,
        Some((of, Split::Ids(path, ids))) => nodes.split_by_ids(*of, path, ids)?,
        Some((of, Split::InOrder(shares))) => nodes.split_in_order(*of, shares),
    }
    Ok(nodes)
}

/// Appends the times in a column.
pub(super) fn read_times(path: &Path, batch: &Batch, column: usize, times: &mut Vec<i64>) -> Result<()> {
    let values = batch.column(column);
    for row in 0..batch.rows {
        match values.int(row) {
            Ok(Some(time)) => times.push(time),
            other => {
                let what = match other {
                    Ok(_) => "a row without a time".to_string(),
                    Err(text) => format!("the time {} is no whole number", quoted(&text)),
                };
                let cure = "give whole numbers, such as seconds or days since 1970";
                return Err(Error::invalid(path, batch.position(row), what, cure));
            }
        }
    }
    Ok(())
}

/// Whether a text has nothing in it.
fn is_empty(path: &Path) -> Result<bool> {
    let mut text = open_any_text(path, "read", &Silent)?.reader;
    Ok(text.read(&mut [0; 1]).map_err(|e| Error::io(path, e))? == 0)
}

/// Indices of the columns of a table that are read.
struct Columns {
    id: Option<usize>,
    of: Option<usize>,
    time: Option<usize>,
    label: Option<usize>,
    split: Option<usize>,
    features: Vec<usize>,
    targets: Vec<usize>,
}

impl Columns {
    fn all(&self) -> Vec<usize> {
        let single = [self.id, self.of, self.time, self.label, self.split].into_iter().flatten();
        let mut all: Vec<usize> = single.chain(self.features.iter().chain(&self.targets).copied()).collect();
        // A table without any column that is read has rows all the same.
        if all.is_empty() {
            all.push(0);
        }
        all
    }
}

impl Nodes {
    /// The number of a type of this name, which may be new.
    fn type_number(&mut self, names: &mut Vec<String>, name: &str) -> usize {
        names.iter().position(|known| known == name).unwrap_or_else(|| {
            names.push(name.to_string());
            self.types.push(TypeData::default());
            names.len() - 1
        })
    }

    fn read_table(&mut self, ingest: &mut Ingest<'_>, table: &NodeTable, names: &mut Vec<String>) -> Result<()> {
        let NodeRows::Table(rows) = &table.rows else { unreachable!("the caller matched a table") };
        let path = &rows.path;
        let mut file = rows.open(ingest.progress())?;
        let mut index = |column: &Column| rows.index(&mut file, column);
        let value = |values: &Option<Values>| match values {
            Some(Values::Column(column)) => Some(column.clone()),
            _ => None,
        };
        let mut optional = |column: Option<&Column>| column.map(&mut index).transpose();
        let of = if let TypeOf::Column(column) = &table.of { Some(column) } else { None };
        let mut columns = Columns {
            id: optional(table.id.as_ref())?,
            of: optional(of)?,
            time: optional(value(&table.time).as_ref())?,
            label: optional(value(&table.label).as_ref())?,
            split: optional(table.split.as_ref())?,
            features: Vec::new(),
            targets: Vec::new(),
        };
        for (matrix, role) in [(&table.targets, "targets"), (&table.features, "features")] {
            let Features::Columns(selected) = matrix else { continue };
            if rows.header.is_none() && selected.iter().any(|column| matches!(column, Column::Name(_))) {
                file.header.named = true;
            }
            let single = [columns.id, columns.of, columns.time, columns.label, columns.split].into_iter().flatten();
            let taken: Vec<usize> = single.chain(columns.targets.iter().copied()).collect();
            let selected = file.select(selected, &taken, role)?;
            if role == "targets" { columns.targets = selected } else { columns.features = selected }
        }
        let are_named = file.header.named || rows.names.is_some();
        let names_of = |columns: &[usize]| {
            let names = columns.iter().map(|&column| file.names[column].trim().to_string()).collect();
            Some(names).filter(|_: &Vec<String>| are_named)
        };
        let (names_of_features, names_of_targets) = (names_of(&columns.features), names_of(&columns.targets));
        let mut targets = (!columns.targets.is_empty()).then(|| Targets::of_type(names_of_targets));
        let all = columns.all();
        let (mut labels, mut features) = (columns.label.map(|_| Labels::new(Labelled::TYPED)), Vec::new());
        while let Some(batch) = file.next(&all)? {
            let of_rows = self.types_of(path, &batch, table, columns.of, names)?;
            self.read_ids(path, &batch, table, columns.id, &of_rows)?;
            if let Some(column) = columns.time {
                let mut times = Vec::new();
                read_times(path, &batch, column, &mut times)?;
                of_rows
                    .iter()
                    .zip(times)
                    .for_each(|(&of, time)| self.types[of].times.get_or_insert_default().push(time));
            }
            if let (Some(labels), Some(column)) = (&mut labels, columns.label) {
                labels.read(path, &batch, batch.column(column))?;
            }
            if let Some(targets) = &mut targets {
                targets.read(path, &batch, &columns.targets)?;
            }
            if let (Some(column), TypeOf::Fixed(of)) = (columns.split, &table.of) {
                let (_, splits) = self.types[*of].splits.get_or_insert_with(|| (path.clone(), Vec::new()));
                for row in 0..batch.rows {
                    let split = split_of(&batch.column(column).text(row));
                    splits.push(split.map_err(|(what, cure)| Error::invalid(path, batch.position(row), what, cure))?);
                }
            }
            if !columns.features.is_empty() {
                features.clear();
                let cells =
                    FeatureCells { columns: &columns.features, are_named: names_of_features.is_some(), of: "node" };
                let dim = cells.read(&file, &batch, &mut features)?;
                let columns = names_of_features.as_ref();
                match table.of {
                    TypeOf::Fixed(of) => {
                        self.add_features(ingest, path, &batch, (of, &names[of]), columns, (dim, &features))?;
                    }
                    TypeOf::Column(_) => {
                        for (row, &of) in features.chunks_exact(dim.max(1)).zip(&of_rows) {
                            self.add_features(ingest, path, &batch, (of, &names[of]), columns, (dim, row))?;
                        }
                    }
                }
            }
        }
        if let (Some(labels), TypeOf::Fixed(of)) = (labels, &table.of) {
            self.types[*of].labels = Some((path.clone(), labels.finish(ingest)?));
        }
        if let (Some(targets), TypeOf::Fixed(of)) = (targets, &table.of) {
            self.types[*of].targets = Some((path.clone(), targets));
        }
        Ok(())
    }

    /// The type of each row: that of the table, or the first label of a column.
    fn types_of(
        &mut self,
        path: &Path,
        batch: &Batch,
        table: &NodeTable,
        column: Option<usize>,
        names: &mut Vec<String>,
    ) -> Result<Vec<usize>> {
        let Some(column) = column else {
            let TypeOf::Fixed(of) = table.of else { unreachable!("a type that a column names has its column") };
            return Ok(vec![of; batch.rows]);
        };
        let mut types = Vec::with_capacity(batch.rows);
        for row in 0..batch.rows {
            let text = batch.column(column).text(row);
            let label = text.split(|&b| b == b';').next().unwrap_or_default().trim_ascii();
            if label.is_empty() {
                let what = "a node without a label, which is its type";
                return Err(Error::invalid(path, batch.position(row), what, "give every node a label"));
            }
            types.push(self.type_number(names, &String::from_utf8_lossy(label)));
        }
        Ok(types)
    }

    /// Adds the nodes of some rows.
    fn read_ids(
        &mut self,
        path: &Path,
        batch: &Batch,
        table: &NodeTable,
        column: Option<usize>,
        types: &[usize],
    ) -> Result<()> {
        let space = &mut self.spaces[table.space];
        for (row, &of) in types.iter().enumerate() {
            let local = self.types[of].count as u32;
            self.types[of].count += 1;
            let fault = |what: String, cure: &str| Err(Error::invalid(path, batch.position(row), what, cure));
            match column {
                None => {
                    let Ids::Rows(count) = &mut space.ids else { unreachable!("rows without ids are all of a space") };
                    *count += 1;
                    super::check_count(*count, path)?;
                }
                Some(column) => match space.ids.insert(batch.column(column), row, path)? {
                    Some(Inserted::New) => {}
                    Some(Inserted::Known) => {
                        let text = batch.column(column).text(row);
                        let what = format!("the id {} stands there twice", quoted(&String::from_utf8_lossy(&text)));
                        return fault(what, "give every node an id of its own");
                    }
                    None => return fault("a node without an id".into(), "give every node an id of its own"),
                },
            }
            if let Members::Mixed(members) = &mut space.members {
                members.push((of as u32, local));
            }
        }
        Ok(())
    }

    /// Appends rows of `dim` features.
    fn add_features(
        &mut self,
        ingest: &Ingest<'_>,
        source: &Path,
        batch: &Batch,
        (of, type_name): (usize, &str),
        names: Option<&Vec<String>>,
        (dim, rows): (usize, &[f32]),
    ) -> Result<()> {
        let features = &mut self.types[of].features;
        if features.is_none() {
            let path = ingest.dir().join(format!("features.{of}.rows.npy"));
            let (out, source) = (NpyWriter::create(&path)?, source.to_path_buf());
            let spool = Spool { source, path, dim, names: names.cloned(), out };
            *features = Some(FeatureRows::Spool(Box::new(spool)));
        }
        let Some(FeatureRows::Spool(spool)) = features else { unreachable!("rows of a table are spooled") };
        if spool.dim != dim || spool.names.as_ref() != names {
            let columns = |names: Option<&Vec<String>>, dim: usize| match names {
                Some(names) => lists::list(&names.iter().map(String::as_str).collect::<Vec<_>>()),
                None => lists::counted(dim as u64, "column"),
            };
            let (first, here) = (columns(spool.names.as_ref(), spool.dim), columns(names, dim));
            let what = format!("nodes of type {type_name:?} have the features {here}, and before {first}");
            return Err(Error::invalid(source, batch.position(0), what, "give all nodes of a type the same features"));
        }
        spool.out.write(rows)
    }

    /// Adds nodes that are numbered from 0.
    fn add_rows(&mut self, ingest: &Ingest<'_>, table: &NodeTable, of: usize, count: Option<u64>) -> Result<()> {
        let count = match (&table.features, count) {
            (_, Some(count)) => count,
            (Features::File(path), None) if is_array(path)? => open_array(path)?.shape.first().copied().unwrap_or(0),
            (Features::File(path), None) => {
                let mut file = Table::of(path).open(ingest.progress())?;
                let mut rows = 0;
                while let Some(batch) = file.next(&[0])? {
                    rows += batch.rows as u64;
                }
                rows
            }
            (Features::Raw(path, dim), None) => open_raw(path, Some(*dim))?.shape[0],
            _ => unreachable!("a table without rows has a count or a file of features"),
        };
        ingest.check_size(count)?;
        self.types[of].count = count;
        self.spaces[table.space].ids = Ids::Rows(count);
        Ok(())
    }

    /// Reads the files beside a table of one type.
    fn read_files(&mut self, ingest: &mut Ingest<'_>, table: &NodeTable, names: &[String]) -> Result<()> {
        let TypeOf::Fixed(of) = table.of else { return Ok(()) };
        let count = self.types[of].count;
        let check = |path: &Path, rows: u64| {
            if rows == count {
                return Ok(());
            }
            let what = format!("{rows} rows for the {count} nodes of type {:?}", names[of]);
            invalid(path, what, "give every node its row")
        };
        if let Features::File(path) = &table.features {
            let rows = if is_array(path)? {
                let array = open_array(path)?;
                feature_dim(&array)?;
                let rows = array.shape[0];
                self.types[of].features = Some(FeatureRows::Array(path.clone(), None));
                rows
            } else {
                self.spool_file(ingest, path, of)?
            };
            check(path, rows)?;
        }
        if let Features::Raw(path, dim) = &table.features {
            check(path, open_raw(path, Some(*dim))?.shape[0])?;
            self.types[of].features = Some(FeatureRows::Array(path.clone(), Some(*dim)));
        }
        if let Features::File(path) = &table.targets {
            let targets = targets_of(ingest, path)?;
            check(path, targets.num_rows() as u64)?;
            self.types[of].targets = Some((path.clone(), targets));
        }
        if let Some(Values::File(path, column)) = &table.label {
            let labels = labels_of(ingest, path, column)?;
            check(path, labels.len() as u64)?;
            self.types[of].labels = Some((path.clone(), labels));
        }
        if let Some(Values::Raw(path)) = &table.label {
            let labels = open_raw(path, None)?.labels()?;
            check(path, labels.len() as u64)?;
            self.types[of].labels = Some((path.clone(), labels));
        }
        if let Some(Values::File(path, column)) = &table.time {
            let times = times_of(ingest, path, column)?;
            check(path, times.len() as u64)?;
            self.types[of].times = Some(times);
        }
        Ok(())
    }

    /// Copies a table of features alone; its number of rows.
    fn spool_file(&mut self, ingest: &Ingest<'_>, path: &Path, of: usize) -> Result<u64> {
        let mut file = Table::of(path).open(ingest.progress())?;
        let columns: Vec<usize> = (0..file.header.names.len()).collect();
        let names: Vec<String> = file.names.iter().map(|name| name.trim().to_string()).collect();
        let names = Some(names).filter(|_| file.header.named);
        let cells = FeatureCells { columns: &columns, are_named: names.is_some(), of: "node" };
        let (mut features, mut rows) = (Vec::new(), 0);
        while let Some(batch) = file.next(&columns)? {
            features.clear();
            let dim = cells.read(&file, &batch, &mut features)?;
            self.add_features(ingest, path, &batch, (of, ""), names.as_ref(), (dim, &features))?;
            rows += batch.rows as u64;
        }
        Ok(rows)
    }

    /// Takes the ids of a type's training, validation and test nodes, which are numbers from 0.
    fn split_by_ids(&mut self, of: usize, path: &Path, ids: &[Vec<i64>; 3]) -> Result<()> {
        let mut splits = vec![NO_SPLIT; self.types[of].count as usize];
        for ((part, ids), name) in (0..).zip(ids).zip(["train", "valid", "test"]) {
            for (at, &id) in (0..).zip(ids) {
                let node = usize::try_from(id).ok().and_then(|node| splits.get_mut(node));
                let what = match node {
                    Some(split) if *split == NO_SPLIT => {
                        *split = part;
                        continue;
                    }
                    Some(_) => format!("{name}: the node {id} is listed before, in this split or another one"),
                    None => format!("{name}: there is no node {id}"),
                };
                return Err(Error::invalid(path, Position::Element(at), what, "list each node once, by its number"));
            }
        }
        self.types[of].splits = Some((path.to_path_buf(), splits));
        Ok(())
    }

    /// Splits the nodes of a type that have a label, in their order, into these shares and the others.
    fn split_in_order(&mut self, of: usize, shares: &[f64; 2]) {
        let Some((path, labels)) = &self.types[of].labels else { return };
        let count = labels.iter().filter(|&&label| label >= 0).count();
        let [train, valid] = shares.map(|share| (count as f64 * share) as usize);
        let mut before = 0;
        let splits = labels.iter().map(|&label| match label {
            ..0 => NO_SPLIT,
            _ => {
                before += 1;
                u8::from(before > train) + u8::from(before > train + valid)
            }
        });
        self.types[of].splits = Some((path.clone(), splits.collect()));
    }

    /// Reads files of the ids of a type's training, validation and test nodes.
    fn read_splits(&mut self, ingest: &Ingest<'_>, of: usize, files: &[Option<PathBuf>; 3]) -> Result<()> {
        let Some(space) = self.spaces.iter().find(|space| matches!(space.members, Members::Of(own) if own == of))
        else {
            unreachable!("only a type with ids of its own has files of splits");
        };
        let mut splits = vec![NO_SPLIT; self.types[of].count as usize];
        for (part, path) in (0..).zip(files) {
            let Some(path) = path else { continue };
            let mut place = |node: Option<u32>, text: String, at: Position| {
                let Some(node) = node else {
                    let what = format!("there is no node {}", quoted(&text));
                    return Err(Error::invalid(path, at, what, "give ids as the nodes of this type have them"));
                };
                if std::mem::replace(&mut splits[node as usize], part) != NO_SPLIT {
                    let what = format!("the node {} is listed before, in this split or another one", quoted(&text));
                    return Err(Error::invalid(path, at, what, "list each node once"));
                }
                Ok(())
            };
            if is_array(path)? {
                let ids = crate::tabular::Values::Ints(open_array(path)?.all_ints()?, None);
                let crate::tabular::Values::Ints(numbers, _) = &ids else { unreachable!("made of whole numbers") };
                for (row, id) in numbers.iter().enumerate() {
                    place(space.ids.find(&ids, row), id.to_string(), Position::Element(row as u64))?;
                }
                continue;
            }
            if is_empty(path)? {
                continue;
            }
            let table = Table::of(path);
            let mut file = table.open(ingest.progress())?;
            // The only column may be ids that are text, without a name.
            file.header.named &= file.is_text && crate::is_id_column(&file.header.names[0]);
            while let Some(batch) = file.next(&[0])? {
                let column = batch.column(0);
                for row in 0..batch.rows {
                    let text = String::from_utf8_lossy(&column.text(row)).into_owned();
                    place(space.ids.find(column, row), text, batch.position(row))?;
                }
            }
        }
        let path = files.iter().flatten().next().cloned().unwrap_or_default();
        self.types[of].splits = Some((path, splits));
        Ok(())
    }
}
