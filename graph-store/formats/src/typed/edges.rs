//! Reads the tables of edges.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use morphgl_graph_store::{Dtype, EdgeSplits, Error, Meta, NpyWriter, Result, Types};
use morphgl_ingest::{SplitType, TypedCscBuilder, TypedEdge, TypedOptions};
use rayon::prelude::*;

use super::ids::Inserted;
use super::nodes::Nodes;
use super::rows::EdgeReader;
use super::{
    EdgeRows, EdgeTable, End, Features, Members, NodeRows, Reverse, Space, Table, TypeOf, TypedGraph, is_array, quoted,
};
use crate::Ingest;
use crate::files::{file_name, invalid};
use crate::ingest::feature_rows::{EdgeFeatureSpool, FeatureCells};
use crate::ingest::features::{feature_dim, push_array_as};
use crate::names::Names;
use crate::npy::{ArrayReader, open_array};
use crate::tabular::lists::were;
use crate::tabular::{Batch, Values as Column};

/// The edge types of a graph: number of the source's type, of the name, and of the target's type.
#[derive(Default)]
pub(super) struct EdgeTypes {
    names: Names,
    list: Vec<[u32; 3]>,
    numbers: HashMap<[u32; 3], u16>,
    /// Of each table the types of its edges, and of their reverses where these are added.
    of_tables: Vec<Vec<(u16, Option<u16>)>>,
}

impl EdgeTypes {
    pub(super) fn list(&self) -> impl Iterator<Item = [u32; 3]> {
        self.list.iter().copied()
    }

    pub(super) fn name(&self, number: u32) -> String {
        String::from_utf8_lossy(self.names.name(number)).into_owned()
    }

    fn insert(&mut self, [from, to]: [usize; 2], name: &[u8], source: &Path) -> Result<u16> {
        let edge_type = [from as u32, self.names.number(name, source)?, to as u32];
        if let Some(&number) = self.numbers.get(&edge_type) {
            return Ok(number);
        }
        let number = self.list.len();
        if number >= Types::MAX_EDGE_TYPES {
            let what = format!("more than {} edge types", Types::MAX_EDGE_TYPES);
            return invalid(source, what, "merge some of them");
        }
        self.list.push(edge_type);
        self.numbers.insert(edge_type, number as u16);
        Ok(number as u16)
    }

    /// The types of the edges that pairs are drawn of: those of the tables that are marked, or all; and the types of their reverse edges,
    /// which are added, or by their names.
    pub(super) fn links(&self, graph: &TypedGraph, types: &Types) -> Result<Vec<SplitType>> {
        let marked = graph.edges.iter().any(|table| table.links);
        let tables = graph.edges.iter().zip(&self.of_tables).filter(|(table, _)| table.links || !marked);
        let mut all: Vec<(u16, Option<u16>)> = tables.flat_map(|(_, of)| of.iter().copied()).collect();
        all.sort_unstable();
        all.dedup_by_key(|(of, _)| *of);
        if all.is_empty() {
            return invalid("--edge-split", "there is no edge", "leave it out");
        }
        let mut split: Vec<SplitType> = Vec::new();
        for (of, reverse) in all {
            let (edge_type, reverse) = (usize::from(of), reverse.map(usize::from));
            let is_reverse = split.iter().any(|other| other.reverse == Some(edge_type));
            if !is_reverse {
                let reverse = reverse.or_else(|| types.reverse_of(edge_type)).filter(|&reverse| reverse != edge_type);
                split.push(SplitType { edge_type, reverse });
            }
        }
        Ok(split)
    }

    /// The type of an edge that was scanned.
    fn of(&self, [from, to]: [usize; 2], name: &[u8]) -> u16 {
        let name = self.names.find(name).expect("the names of all edge types were read");
        self.numbers[&[from as u32, name, to as u32]]
    }
}

/// Finds the types of all edges, and the nodes that edges alone name: in a pass over those tables that say it in their rows.
pub(super) fn scan(ingest: &mut Ingest<'_>, graph: &TypedGraph, nodes: &mut Nodes) -> Result<EdgeTypes> {
    let mut types = EdgeTypes::default();
    let is_open =
        |end: &End| graph.nodes.iter().any(|table| table.space == end.space && matches!(table.rows, NodeRows::Named));
    for table in &graph.edges {
        let mut found = Vec::new();
        let fixed = [&table.source, &table.target].map(|end| graph.spaces[end.space]);
        let open = [&table.source, &table.target].map(is_open);
        if let (TypeOf::Fixed(name), [Some(from), Some(to)]) = (&table.of, fixed) {
            found.push(types.insert([from, to], name.as_bytes(), table.path())?);
            if open == [false; 2] {
                types.of_tables.push(found.into_iter().map(|of| (of, None)).collect());
                continue;
            }
        }
        let mut reader = EdgeReader::open(table, ingest)?;
        while let Some(batch) = reader.next()? {
            let columns = [batch.column(reader.ends[0]), batch.column(reader.ends[1])];
            let ends = [&table.source, &table.target].into_iter().zip(columns).zip(open).filter(|(_, open)| *open);
            for row in 0..batch.rows {
                for ((end, column), _) in ends.clone() {
                    match nodes.spaces[end.space].ids.insert(column, row, table.path())? {
                        Some(Inserted::New) => nodes.add_named(end.space),
                        Some(Inserted::Known) => {}
                        None => return Err(table.fault(&batch, row, "an edge without an id at one end".into(), NAMED)),
                    }
                }
            }
            let ends = table.nodes(&batch, columns, &nodes.spaces)?;
            let mut last = None;
            for (row, &[from, to]) in ends.iter().enumerate() {
                let name = table.name(&batch, row, reader.of)?;
                let ends = [(from, &table.source), (to, &table.target)];
                let ends = ends.map(|(number, end)| nodes.spaces[end.space].node(number).0);
                if last.as_ref() != Some(&(ends, name.clone())) {
                    let of = types.insert(ends, &name, table.path())?;
                    if !found.contains(&of) {
                        found.push(of);
                    }
                    last = Some((ends, name));
                }
            }
        }
        types.of_tables.push(found.into_iter().map(|of| (of, None)).collect());
    }
    for (at, table) in graph.edges.iter().enumerate() {
        let Some(reverse) = &table.reverse else { continue };
        for i in 0..types.of_tables[at].len() {
            let of = types.of_tables[at][i].0;
            let [from, name, to] = types.list[usize::from(of)];
            let name = match reverse {
                Reverse::Prefixed => format!("rev_{}", types.name(name)).into_bytes(),
                Reverse::Named(name) => name.clone().into_bytes(),
            };
            let reverse = types.insert([to as usize, from as usize], &name, table.path())?;
            types.of_tables[at][i].1 = Some(reverse);
        }
    }
    Ok(types)
}

/// Cure for an edge without its ends.
const NAMED: &str = "give every edge the ids of its source and target";

/// Reads all edges, and writes the graph.
pub(super) fn read(
    ingest: &mut Ingest<'_>,
    source: &Path,
    graph: &TypedGraph,
    spaces: &[Space],
    edge_types: &EdgeTypes,
    types: Types,
) -> Result<()> {
    let options = ingest.options();
    let typed = TypedOptions {
        weighted: !options.drop_weights && graph.edges.iter().any(|table| table.weight.is_some()),
        timed: graph.edges.iter().any(|table| table.time.is_some()),
        numbered: graph.edges.iter().any(|table| !matches!(table.features, Features::None)),
        drop_duplicates: options.drop_duplicates,
        memory: options.memory,
    };
    let starts: Vec<u32> = (0..types.node_types().len()).map(|of| types.range(of).start).collect();
    let mut builder = TypedCscBuilder::new(source, ingest.dir().join("edges.spill"), types, typed)?;
    let mut pairs = match graph.edges.iter().any(|table| table.split.is_some()) {
        true => Some(PairArrays::new(ingest)?),
        false => None,
    };
    let mut edges = Vec::new();
    check_features(graph, edge_types)?;
    for (table, of_table) in graph.edges.iter().zip(&edge_types.of_tables) {
        let mut reverse_of = vec![None; edge_types.list.len()];
        of_table.iter().for_each(|&(of, reverse)| reverse_of[usize::from(of)] = reverse);
        let fixed = match (&table.of, [&table.source, &table.target].map(|end| &spaces[end.space].members)) {
            (TypeOf::Fixed(_), [Members::Of(_), Members::Of(_)]) => of_table.first().map(|&(of, _)| of),
            _ => None,
        };
        let mut reader = EdgeReader::open(table, ingest)?;
        let (mut features, mut rows, mut read) = (Vec::new(), None::<EdgeFeatureSpool>, 0u64);
        while let Some(batch) = reader.next()? {
            features.clear();
            let dim = reader.features(&batch, &mut features)?;
            if dim > 0 {
                let rows = match &mut rows {
                    Some(rows) => rows,
                    none => none.insert(EdgeFeatureSpool::create(ingest, dim)?),
                };
                rows.write(&features)?;
            }
            let ends = table.nodes(&batch, [batch.column(reader.ends[0]), batch.column(reader.ends[1])], spaces)?;
            let weights = if typed.weighted { reader.weights(&batch)? } else { None };
            let times = reader.times(&batch)?;
            edges.clear();
            for (row, &[from, to]) in ends.iter().enumerate() {
                let [from, to] =
                    [(from, &table.source), (to, &table.target)].map(|(number, end)| spaces[end.space].node(number));
                let edge_type = match fixed {
                    Some(of) => of,
                    None => edge_types.of([from.0, to.0], &table.name(&batch, row, reader.of)?),
                };
                let [from, to] = [from, to].map(|(of, local)| starts[of] + local);
                let weight = weights.as_ref().map_or(1.0, |weights| weights[row]);
                // Edges without a time are there at all times.
                let time = times.as_ref().map_or(i64::MIN, |times| times[row]);
                let id = (read + row as u64) as u32;
                let edge = TypedEdge { edge_type, source: from, target: to, weight, time, id };
                edges.push(edge);
                if let Some(reverse) = reverse_of[usize::from(edge_type)] {
                    // A self-loop is its own reverse where that has the same type.
                    if reverse != edge_type || from != to {
                        edges.push(TypedEdge { edge_type: reverse, source: to, target: from, ..edge });
                    }
                }
            }
            match &mut pairs {
                None => builder.push(&edges)?,
                Some(pairs) => {
                    pairs.push(table.split.unwrap_or(0), &edges)?;
                    if table.split.is_none() {
                        builder.push(&edges)?;
                    }
                }
            }
            read += batch.rows as u64;
        }
        if let Some(&(of, reverse)) = of_table.first() {
            write_features(ingest, table, [Some(of), reverse], read, rows)?;
        }
        let left_out = reader.left_out();
        if left_out > 0 {
            let what = format!("{} left out, whose objects are literals", were(left_out, "triple"));
            ingest.note(format!("{}: {what}", file_name(table.path())));
        }
    }
    let num_edges = builder.num_edges();
    if num_edges == 0 {
        ingest.note("there is no edge");
    }
    let progress = ingest.progress();
    progress.stage("sort", Some(num_edges));
    let dropped = builder.finish(&mut ingest.writer, |edges| progress.advance(edges))?;
    if dropped > 0 {
        ingest.note(format!("{} dropped", were(dropped, "duplicate edge")));
    }
    pairs.map_or(Ok(()), |pairs| pairs.finish(ingest))
}

/// Arrays of the pairs of splits that a source has, and of their edge types.
struct PairArrays([(NpyWriter<u32>, NpyWriter<u16>); 3]);

impl PairArrays {
    fn new(ingest: &Ingest<'_>) -> Result<Self> {
        let of = |split: usize| -> Result<_> {
            let pairs = ingest.writer.stream::<u32>(EdgeSplits::ARRAYS[split])?;
            Ok((pairs, ingest.writer.stream::<u16>(EdgeSplits::TYPE_ARRAYS[split])?))
        };
        Ok(Self([of(0)?, of(1)?, of(2)?]))
    }

    /// Adds edges to the pairs of a split; reverses are pairs, too, so that each end is predicted from the other.
    fn push(&mut self, split: usize, edges: &[TypedEdge]) -> Result<()> {
        let (pairs, types) = &mut self.0[split];
        pairs.write(&edges.iter().flat_map(|edge| [edge.source, edge.target]).collect::<Vec<u32>>())?;
        types.write(&edges.iter().map(|edge| edge.edge_type).collect::<Vec<u16>>())
    }

    fn finish(self, ingest: &mut Ingest<'_>) -> Result<()> {
        for (split, (pairs, types)) in self.0.into_iter().enumerate() {
            let (pairs, types) = (pairs.finish(Some(2))?, types.finish(None)?);
            ingest.add_pairs(EdgeSplits::ARRAYS[split], pairs);
            ingest.writer.add(EdgeSplits::TYPE_ARRAYS[split], types);
        }
        Ok(())
    }
}

/// Refuses features of edges whose type the table does not say alone, and of edges of one type in several tables.
fn check_features(graph: &TypedGraph, edge_types: &EdgeTypes) -> Result<()> {
    let mut first: HashMap<u16, &Path> = HashMap::new();
    let tables = || graph.edges.iter().zip(&edge_types.of_tables);
    let has_features = |table: &EdgeTable| !matches!(table.features, Features::None);
    for (table, of_table) in tables().filter(|(table, _)| has_features(table)) {
        if of_table.len() > 1 || !matches!(table.of, TypeOf::Fixed(_)) {
            let cure = "list the edges of each type in a file of their own";
            return invalid(table.path(), "features of edges of several types", cure);
        }
        for of in of_table.iter().flat_map(|&(of, reverse)| [Some(of), reverse]).flatten() {
            if let Some(other) = first.insert(of, table.path()).filter(|other| *other != table.path()) {
                return several_tables(other, table);
            }
        }
    }
    for (table, of_table) in tables().filter(|(table, _)| !has_features(table)) {
        let all = of_table.iter().flat_map(|&(of, reverse)| [Some(of), reverse]).flatten();
        if let Some(other) = all.into_iter().find_map(|of| first.get(&of)) {
            return several_tables(other, table);
        }
    }
    Ok(())
}

fn several_tables<T>(first: &Path, table: &EdgeTable) -> Result<T> {
    let what = format!("edges of a type whose features {} has", first.display());
    invalid(table.path(), what, "put all edges of the type into one file")
}

/// Writes the features of the edges of a table, of which `read` were read; `rows` are those that were in its columns.
fn write_features(
    ingest: &mut Ingest<'_>,
    table: &EdgeTable,
    types: [Option<u16>; 2],
    read: u64,
    rows: Option<EdgeFeatureSpool>,
) -> Result<()> {
    let names = types.into_iter().flatten().map(|of| Meta::edge_features_of(Some(of.into())));
    let names: Vec<String> = names.collect();
    let (mut array, spool) = match (&table.features, rows) {
        (Features::File(path), _) if is_array(path)? => (open_array(path)?, None),
        (Features::File(path), _) => spooled(ingest, path)?,
        (_, Some(rows)) => {
            let path = rows.finish()?;
            (open_array(&path)?, Some((path, table.path().to_path_buf())))
        }
        _ => return Ok(()),
    };
    // Errors name the table that the rows were read from.
    let spool = spool.map(|(spool, source)| {
        array.path = source;
        spool
    });
    feature_dim(&array)?;
    if array.shape[0] != read {
        let what = format!("{} rows for {read} edges", array.shape[0]);
        return invalid(&array.path, what, "give every edge its row");
    }
    if read > u64::from(u32::MAX) {
        let what = format!("features of {read} edges, more than the 2^32 - 1 that are read");
        return invalid(table.path(), what, "leave the features out");
    }
    push_array_as(ingest, &names[0], array, Dtype::F32)?;
    let meta = ingest.writer.array_meta(&names[0]).expect("the array was added").clone();
    // Reverse edges read the same rows.
    names[1..].iter().filter(|name| **name != names[0]).for_each(|name| ingest.writer.add(name, meta.clone()));
    spool.map_or(Ok(()), |spool| std::fs::remove_file(&spool).map_err(|e| Error::io(&spool, e)))
}

/// A temporary file, and the table that its rows are from.
type SpoolOf = Option<(PathBuf, PathBuf)>;

/// Copies a table of features of edges alone.
fn spooled(ingest: &Ingest<'_>, path: &Path) -> Result<(ArrayReader<'static>, SpoolOf)> {
    let mut file = Table::of(path).open(ingest.progress())?;
    let columns: Vec<usize> = (0..file.header.names.len()).collect();
    let cells = FeatureCells { columns: &columns, are_named: file.header.named, of: "edge" };
    let (mut features, mut rows) = (Vec::new(), None::<EdgeFeatureSpool>);
    while let Some(batch) = file.next(&columns)? {
        features.clear();
        let dim = cells.read(&file, &batch, &mut features)?;
        let rows = match &mut rows {
            Some(rows) => rows,
            none => none.insert(EdgeFeatureSpool::create(ingest, dim)?),
        };
        rows.write(&features)?;
    }
    let rows = match rows {
        Some(rows) => rows,
        None => EdgeFeatureSpool::create(ingest, columns.len())?,
    };
    let spool = rows.finish()?;
    Ok((open_array(&spool)?, Some((spool, path.to_path_buf()))))
}

impl Nodes {
    /// Counts a node that edges alone name.
    fn add_named(&mut self, space: usize) {
        let Members::Of(of) = self.spaces[space].members else { unreachable!("named nodes are all of one type") };
        self.types[of].count += 1;
    }
}

impl EdgeTable {
    pub(super) fn path(&self) -> &Path {
        match &self.rows {
            EdgeRows::Table(table) => &table.path,
            EdgeRows::Array(path, _) | EdgeRows::Triples(path, _) => path,
        }
    }

    fn fault(&self, batch: &Batch, row: usize, what: String, cure: &str) -> Error {
        Error::invalid(self.path(), batch.position(row), what, cure)
    }

    /// The name of the type of an edge.
    fn name<'b>(&'b self, batch: &'b Batch, row: usize, column: Option<usize>) -> Result<Cow<'b, [u8]>> {
        match (&self.of, column) {
            (TypeOf::Fixed(name), _) => Ok(name.as_bytes().into()),
            (TypeOf::Column(_), column) => {
                let text = batch.column(column.expect("a column of types is read")).text(row);
                let text = match text {
                    Cow::Borrowed(text) => Cow::Borrowed(text.trim_ascii()),
                    Cow::Owned(text) => Cow::Owned(text.trim_ascii().to_vec()),
                };
                match text.is_empty() {
                    true => Err(self.fault(batch, row, "an edge without a type".into(), "give every edge its type")),
                    false => Ok(text),
                }
            }
        }
    }

    /// Numbers of the ids of the ends of each edge.
    fn nodes(&self, batch: &Batch, columns: [&Column; 2], spaces: &[Space]) -> Result<Vec<[u32; 2]>> {
        let ends = [&self.source, &self.target];
        let find = |row: usize| [0, 1].map(|end| spaces[ends[end].space].ids.find(columns[end], row));
        let found: Vec<[Option<u32>; 2]> = (0..batch.rows).into_par_iter().with_min_len(1 << 10).map(find).collect();
        let mut nodes = Vec::with_capacity(batch.rows);
        for (row, ends) in found.into_iter().enumerate() {
            let [Some(source), Some(target)] = ends else {
                let end = usize::from(ends[0].is_some());
                let text = columns[end].text(row);
                let text = String::from_utf8_lossy(&text);
                let (end, which) = if end == 0 { ("source", &self.source) } else { ("target", &self.target) };
                let what = format!("the {end} {} is no node: none has this id", quoted(text.trim()));
                let cure = match spaces[which.space].ids.are_text() {
                    true => "correct the id, or add the node",
                    false => "correct the id, or add the node (ids that are numbers are compared as such)",
                };
                return Err(self.fault(batch, row, what, cure));
            };
            nodes.push([source, target]);
        }
        Ok(nodes)
    }
}
