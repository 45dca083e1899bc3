//! Edges in a table of columns: Parquet and Arrow files, and text whose ids are names.

use std::path::Path;

use morphgl_graph_store::{Error, MAX_NODES, Result};

use super::{Columns, EdgeListOptions, Ids, finish_kept, first_row, note_rounded, note_undirected, two_kinds};
use crate::Ingest;
use crate::compact::{self, EdgeSpool};
use crate::files::invalid;
use crate::ingest::feature_rows::{EdgeFeatureSpool, FeatureCells};
use crate::ingest::nodes::Keys;
use crate::ingest::types::{Apart, TwoTypes};
use crate::ingest::unlisted::{Listed, Unlisted};
use crate::names::Names;
use crate::tabular::lists::{self, EDGE_FEATURES, NAMED, counted, listed};
use crate::tabular::{Batch, TableFile, Values, comments_note};
use crate::text::{Chosen, EdgeColumns, Header, NEIGHBORS, NO_COMMAS, Pairs, choose, has_comma, named_cure};

/// Reads the edges of the table `source`; `sizes` are the numbers of sources and targets that a header announces.
pub(super) fn edges<'p>(
    ingest: &mut Ingest<'p>,
    source: &'p Path,
    format: &EdgeListOptions,
    sizes: Option<[u64; 2]>,
) -> Result<()> {
    let text_ids = format.ids == Ids::Strings;
    let mut file = TableFile::with_ids(source, text_ids, ingest.progress())?;
    if text_ids && file.is_text && file.num_comments > 0 {
        ingest.note(comments_note(source, file.num_comments));
    }
    if file.header.names.iter().any(|name| file.is_text && name.contains('\t')) {
        let what = format!("the first line has tabs and other separators: {}", file.header.list());
        return invalid(source, what, named_cure(NEIGHBORS, source));
    }
    if format.columns.names.is_some() && file.is_text {
        // `--columns` is for files without a header: the first row is an edge.
        file.header.named = false;
    }
    let select =
        |header: &Header, taken: &[usize]| lists::select(header, &format.columns.features, taken, EDGE_FEATURES);
    let chosen = choose(&file.header, &format.columns, &select);
    let Chosen { mut columns, ignored, two_kinds, features, .. } = chosen.or_else(|fault| {
        let (what, cure) = if file.is_text { first_row::explain(fault, source, &format.columns) } else { fault };
        invalid(source, what, named_cure(cure, source))
    })?;
    ingest.note(columns.note(file.header.names.len(), &ignored, |column| file.header.describe(column)));
    if !features.is_empty() {
        let named = listed(&file.header, &features);
        ingest.note(format!("features of edges: {}, {named}", counted(features.len() as u64, "column")));
    }
    note_undirected(ingest, source, &ignored)?;
    ingest.numbers_edges = !features.is_empty();
    columns.weight = columns.weight.filter(|_| !ingest.options().drop_weights);
    let first_id = format.first_id.unwrap_or(0);
    let weight_named = file.header.named || format.columns.weight.is_some();
    let mut table = EdgeTable {
        source,
        file,
        columns,
        features,
        feature_rows: None,
        two_kinds,
        first_id,
        offset: 0,
        min_nodes: 0,
        weight_named,
        rounded: 0,
    };
    if format.ids != Ids::Strings {
        let sizes = sizes.filter(|_| format.ids == Ids::Keep);
        table.set_offset(ingest, format, sizes)?;
        ingest.pair_ids.offset = table.offset;
        if let Some([sources, targets]) = sizes {
            table.min_nodes = if table.offset > 0 { table.offset.saturating_add(targets) } else { sources };
        }
    }
    match format.ids {
        Ids::Keep => table.keep(ingest, format.num_nodes)?,
        Ids::Compact => table.compact(ingest)?,
        Ids::Strings => table.number_names(ingest, &format.columns)?,
    }
    note_rounded(ingest, table.rounded);
    table.finish_features(ingest, &format.columns)
}

struct EdgeTable<'p> {
    source: &'p Path,
    file: TableFile<'p>,
    columns: EdgeColumns,
    /// Columns of features.
    features: Vec<usize>,
    /// Features of the edges that were pushed; `None` until there are some.
    feature_rows: Option<EdgeFeatureSpool>,
    /// Names of the columns of ids that seem to be of two kinds of nodes.
    two_kinds: Option<[String; 2]>,
    first_id: u64,
    /// Number added to the ids of targets, so that they follow those of the sources; 0 for one kind of nodes.
    offset: u64,
    /// Number of nodes that the header announces.
    min_nodes: u64,
    /// Whether the file names the weights' column.
    weight_named: bool,
    /// Number of integer weights that f32 does not represent exactly.
    rounded: u64,
}

impl<'p> EdgeTable<'p> {
    fn weighted(&self) -> bool {
        self.columns.weight.is_some()
    }

    fn next(&mut self) -> Result<Option<Batch>> {
        let EdgeColumns { source, target, weight } = self.columns;
        let all = [source, target].into_iter().chain(weight).chain(self.features.iter().copied());
        self.file.next(&all.collect::<Vec<_>>())
    }

    /// Reads the features of the edges of a batch but for those that are left out, whose rows ascend.
    fn read_features(&mut self, ingest: &Ingest<'_>, batch: &Batch, left_out: &[usize]) -> Result<()> {
        if self.features.is_empty() {
            return Ok(());
        }
        let cells = FeatureCells { columns: &self.features, are_named: self.file.header.named, of: "edge" };
        let mut rows = Vec::new();
        let dim = cells.read(&self.file, batch, &mut rows)?;
        let mut spool = match self.feature_rows.take() {
            Some(spool) => spool,
            None => EdgeFeatureSpool::create(ingest, dim)?,
        };
        // Rows between those that are left out.
        let mut start = 0;
        for end in left_out.iter().copied().chain([batch.rows]) {
            spool.write(&rows[start * dim..end * dim])?;
            start = end + 1;
        }
        self.feature_rows = Some(spool);
        Ok(())
    }

    /// Stores the features once the edges are written.
    fn finish_features(self, ingest: &mut Ingest<'_>, columns: &Columns) -> Result<()> {
        let rows = match self.feature_rows {
            Some(rows) => rows,
            None if self.features.is_empty() => return Ok(()),
            None => EdgeFeatureSpool::create(ingest, self.features.len())?,
        };
        let names = match &columns.names {
            Some(names) => Some(names),
            None => self.file.header.named.then_some(&self.file.names),
        };
        if let Some(names) = names {
            let of = self.features.iter().map(|&column| names[column].trim()).collect::<Vec<_>>();
            ingest.provenance("edge_feature_names", of);
        }
        rows.store(ingest, self.source)
    }

    /// Finds what is added to the ids of targets, by a pass over the table of its own; refuses ids that seem to be of two kinds of
    /// nodes unless the options decide.
    fn set_offset(&mut self, ingest: &mut Ingest<'p>, format: &EdgeListOptions, sizes: Option<[u64; 2]>) -> Result<()> {
        let bipartite = ingest.options().bipartite;
        if bipartite != Some(true) && (bipartite.is_some() || self.two_kinds.is_none()) {
            return Ok(());
        }
        let named = self.file.header.named;
        let file = std::mem::replace(&mut self.file, TableFile::open(self.source, ingest.progress())?);
        self.file.header.named = named;
        let mut ranges = [None; 2];
        while let Some(batch) = self.file.next(&[self.columns.source, self.columns.target])? {
            let ids = self.ids(&batch, 0, u64::MAX)?;
            ranges = [0, 1].map(|column| two_kinds::wider(ranges[column], two_kinds::range(&ids[column])));
        }
        self.file = file;
        if bipartite == Some(true) {
            let first = if format.ids == Ids::Keep { self.first_id } else { 0 };
            let announced = sizes.map_or(0, |[sources, _]| sources);
            self.offset = two_kinds::offset(self.source, ranges[0], first)?.max(announced);
            ingest.note(two_kinds::note(&self.file.header.describe(self.columns.target), self.offset));
            let names = self.column_names(&format.columns);
            ingest.two_types = Some(two_kinds::types(names, self.offset, format.ids));
        } else if let Some(names) = &self.two_kinds {
            two_kinds::refuse_shared(self.source, names, ranges)?;
        }
        Ok(())
    }

    fn error(&self, batch: &Batch, row: usize, what: String, cure: &str) -> Error {
        Error::invalid(self.source, batch.position(row), what, cure)
    }

    /// The ids of sources and targets minus `first`; an error for ids below `first` or more than `max` above it.
    fn ids(&self, batch: &Batch, first: u64, max: u64) -> Result<[Vec<u64>; 2]> {
        Ok([
            self.column_ids(batch, self.columns.source, first, 0, max)?,
            self.column_ids(batch, self.columns.target, first, self.offset, max)?,
        ])
    }

    fn column_ids(&self, batch: &Batch, column: usize, first: u64, offset: u64, max: u64) -> Result<Vec<u64>> {
        let values = batch.column(column);
        let kept = |id: i64| {
            let id = u64::try_from(id).ok()?.checked_sub(first)?.checked_add(offset);
            id.filter(|&id| id <= max)
        };
        if let Values::Ints(ids, None) = values
            && let Some(ids) = ids.iter().map(|&id| kept(id)).collect::<Option<_>>()
        {
            return Ok(ids);
        }
        let id = |row: usize| {
            let (what, cure) = match values.int(row) {
                Ok(Some(id)) => match kept(id) {
                    Some(id) => return Ok(id),
                    None if u64::try_from(id).is_ok_and(|id| id >= first) => {
                        let cure = match max < MAX_NODES - 1 {
                            true => "give a larger number of nodes, or number them anew without gaps by --ids compact",
                            false => "number the nodes anew without gaps by --ids compact",
                        };
                        (format!("the node id {id} does not fit"), cure)
                    }
                    None => (
                        format!("the node id {id} is below the first one, {first}"),
                        "correct it, or count ids from 0 by --first-id 0",
                    ),
                },
                Ok(None) => (NO_ID.into(), REMOVE_ROW),
                Err(text) => (format!("{text:?} is no node id"), "import ids that are names with --ids strings"),
            };
            Err(self.error(batch, row, what, cure))
        };
        (0..batch.rows).map(id).collect()
    }

    fn weights(&mut self, batch: &Batch) -> Result<Vec<f32>> {
        let Some(column) = self.columns.weight else { return Ok(Vec::new()) };
        let values = batch.column(column);
        let mut weights = Vec::with_capacity(batch.rows);
        for row in 0..batch.rows {
            match values.real(row) {
                Ok(weight) if weight.is_finite() && weight >= 0.0 => weights.push(weight),
                Ok(weight) => {
                    let what = format!("the weight {weight} is not a finite number of at least 0");
                    return Err(self.error(batch, row, what, "correct it, or import with --drop-weights"));
                }
                Err(text) => {
                    let what = format!("{text:?} is no weight");
                    // A column that is a weight by its place alone may be a neighbour.
                    let cure = match self.weight_named {
                        _ if has_comma(text.as_bytes()) => NO_COMMAS.to_string(),
                        true => "correct it, or import with --drop-weights".to_string(),
                        false => named_cure(NEIGHBORS, self.source),
                    };
                    return Err(self.error(batch, row, what, &cure));
                }
            }
        }
        // From 2^24 on f32 does not represent every whole number.
        let rounded = |row: &usize| {
            weights[*row] >= 16_777_216.0 && values.int(*row).ok().flatten().is_some_and(|w| weights[*row] as i64 != w)
        };
        self.rounded += (0..batch.rows).filter(rounded).count() as u64;
        Ok(weights)
    }

    fn keep(&mut self, ingest: &mut Ingest<'_>, num_nodes: Option<u64>) -> Result<()> {
        let (first, weighted) = (self.first_id, self.weighted());
        ingest.keep_ids(first);
        ingest.min_nodes = ingest.min_nodes.max(self.min_nodes);
        let (listed, mut unlisted) = (Listed::of(ingest), Unlisted::new(ingest));
        let mut edges = ingest.edges(self.source, num_nodes, weighted)?;
        let max = num_nodes.unwrap_or(MAX_NODES).saturating_sub(1);
        let mut lowest = u32::MAX;
        while let Some(batch) = self.next()? {
            let Pairs { sources, targets, weights, .. } =
                self.pairs(edges.ingest, &batch, [first, max], &listed, &mut unlisted)?;
            let [src, dst] = [sources, targets].map(|ids| ids.into_iter().map(|id| id as u32).collect::<Vec<_>>());
            lowest = src.iter().chain(&dst).fold(lowest, |low, &id| low.min(id));
            edges.push(&src, &dst, weighted.then_some(&weights))?;
        }
        unlisted.finish(edges.ingest)?;
        finish_kept(edges, num_nodes, (first, lowest))
    }

    /// The edges of a batch, with the ids of [`EdgeTable::ids`]; those of unlisted nodes are left out. Their features are read.
    fn pairs(
        &mut self,
        ingest: &Ingest<'_>,
        batch: &Batch,
        [first, max]: [u64; 2],
        listed: &Option<Listed>,
        unlisted: &mut Unlisted,
    ) -> Result<Pairs<u64>> {
        let [sources, targets] = self.ids(batch, first, max)?;
        let mut pairs = Pairs { sources, targets, weights: self.weights(batch)?, rounded: 0 };
        let left_out = listed.as_ref().map(|listed| listed.filter(&mut pairs, first));
        self.read_features(ingest, batch, left_out.as_ref().map_or(&[], |left_out| &left_out.edges))?;
        unlisted.push(left_out)?;
        Ok(pairs)
    }

    fn compact(&mut self, ingest: &mut Ingest<'_>) -> Result<()> {
        let mut edges = EdgeSpool::create(ingest, self.weighted())?;
        let mut sorter = compact::id_sorter(ingest);
        let (listed, mut unlisted) = (Listed::of(ingest), Unlisted::new(ingest));
        while let Some(batch) = self.next()? {
            let Pairs { sources, targets, weights, .. } =
                self.pairs(ingest, &batch, [0, u64::MAX], &listed, &mut unlisted)?;
            edges.write([&sources, &targets], &weights)?;
            compact::push_ids(&mut sorter, sources)?;
            compact::push_ids(&mut sorter, targets)?;
        }
        unlisted.finish(ingest)?;
        compact::finish(ingest, self.source, edges, sorter)
    }

    fn number_names(&mut self, ingest: &mut Ingest<'_>, columns: &Columns) -> Result<()> {
        let prefixes = (ingest.options().bipartite == Some(true)).then(|| self.prefixes(columns));
        let mut names = Names::default();
        for keys in ingest.node_keys() {
            let Keys::Names(texts) = keys else { continue };
            for name in texts.iter() {
                if let Some([source, target]) =
                    prefixes.as_ref().filter(|p| !p.iter().any(|p| name.starts_with(p.as_bytes())))
                {
                    let what = format!("the node files name {:?}, without its kind", String::from_utf8_lossy(name));
                    return invalid(self.source, what, format!("write {source}NAME or {target}NAME there"));
                }
                names.number(name, self.source)?;
            }
        }
        ingest.pair_ids.prefixes.clone_from(&prefixes);
        if let Some([source, target]) = &prefixes {
            let names = [source, target].map(|prefix| prefix.trim_end_matches(':').to_string());
            ingest.two_types = Some(TwoTypes { names, apart: Apart::Names });
            ingest.note(format!("two kinds of nodes: their names begin with {source} or {target}"));
        }
        // Per name, in columns that seem to be of two kinds of nodes: whether it occurred as a source, and as a target.
        let mut ends: Vec<[bool; 2]> = Vec::new();
        let watched = self.two_kinds.as_ref().filter(|_| ingest.options().bipartite.is_none());
        let watched = watched.cloned();
        let mut edges = EdgeSpool::create(ingest, self.weighted())?;
        let mut prefixed = Vec::new();
        // Names from this number on are those that the node table does not list, where their edges are left out.
        let num_listed = ingest.drops_unknown_nodes().then_some(names.len() as u64);
        let mut left_out = 0;
        while let Some(batch) = self.next()? {
            let mut ids = [Vec::with_capacity(batch.rows), Vec::with_capacity(batch.rows)];
            for (end, column) in [self.columns.source, self.columns.target].into_iter().enumerate() {
                for row in 0..batch.rows {
                    let text = batch.column(column).text(row);
                    let mut name = text.trim_ascii();
                    if name.is_empty() {
                        return Err(self.error(&batch, row, NO_ID.into(), REMOVE_ROW));
                    }
                    if let Some(prefixes) = &prefixes {
                        prefixed.clear();
                        prefixed.extend_from_slice(prefixes[end].as_bytes());
                        prefixed.extend_from_slice(name);
                        name = &prefixed;
                    }
                    let number = names.number(name, self.source)?;
                    ids[end].push(u64::from(number));
                    if let Some([left, right]) = &watched {
                        ends.resize(ends.len().max(number as usize + 1), [false; 2]);
                        ends[number as usize][end] = true;
                        if ends[number as usize] == [true; 2] {
                            let name = String::from_utf8_lossy(name);
                            let what = format!(
                                "{name:?} is in the columns {left:?} and {right:?}, which seem to be of two kinds of nodes"
                            );
                            return Err(self.error(&batch, row, what, two_kinds::APART));
                        }
                    }
                }
            }
            let [sources, targets] = ids;
            let mut pairs = Pairs { sources, targets, weights: self.weights(&batch)?, rounded: 0 };
            let mut of_unlisted = Vec::new();
            if let Some(num_listed) = num_listed {
                pairs.retain(|number| number < num_listed, |edge, _| of_unlisted.push(edge));
            }
            left_out += of_unlisted.len() as u64;
            self.read_features(ingest, &batch, &of_unlisted)?;
            edges.write([&pairs.sources, &pairs.targets], &pairs.weights)?;
        }
        if let Some(num_listed) = num_listed {
            let (count, named) = names.truncate(num_listed as usize, NAMED);
            ingest.note_unlisted(left_out, count, named);
        }
        let node_of = names.finish(ingest)?;
        edges.replay(ingest, self.source, node_of.len() as u64, |number| node_of[number as usize])
    }

    /// Names of the columns of sources and of targets, where columns have names.
    fn column_names(&self, columns: &Columns) -> Option<[String; 2]> {
        let header = &self.file.header;
        let names = columns.names.as_ref().or(header.named.then_some(&header.names))?;
        Some([self.columns.source, self.columns.target].map(|column| names[column].clone()))
    }

    /// What the names of sources and of targets begin with, where these are nodes of two kinds: the types that their columns name.
    fn prefixes(&self, columns: &Columns) -> [String; 2] {
        two_kinds::types(self.column_names(columns), 0, Ids::Strings).names.map(|name| name + ":")
    }
}

const NO_ID: &str = "a node id is missing";
const REMOVE_ROW: &str = "correct or remove the row";
