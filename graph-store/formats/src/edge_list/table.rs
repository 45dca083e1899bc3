//! Edges in a table of columns: Parquet and Arrow files, and text whose ids are names.

use std::path::Path;

use morphgl_graph_store::{Error, MAX_NODES, Result};

use super::{EdgeListOptions, Ids, finish_kept, note_rounded};
use crate::Ingest;
use crate::compact::{self, EdgeSpool};
use crate::files::invalid;
use crate::ingest::nodes::Keys;
use crate::names::Names;
use crate::tabular::{Batch, TableFile, Values};
use crate::text::{EdgeColumns, choose};

/// Reads the edges of the table `source`.
pub(super) fn edges(ingest: &mut Ingest<'_>, source: &Path, format: &EdgeListOptions) -> Result<()> {
    let mut file = TableFile::open(source, ingest.progress())?;
    if format.columns.names.is_some() && file.is_text {
        // `--columns` is for files without a header: the first row is an edge.
        file.header.named = false;
    }
    let (mut columns, ignored) = choose(&file.header, &format.columns).or_else(|(what, cure)| {
        let cure = if format.ids == Ids::Strings && file.header.named && file.is_text {
            "name columns by --src and --dst, or, where the first line is an edge, by --columns src,dst"
        } else {
            cure
        };
        invalid(source, what, cure)
    })?;
    ingest.note(columns.note(file.header.names.len(), &ignored, |column| file.header.describe(column)));
    columns.weight = columns.weight.filter(|_| !ingest.options().drop_weights);
    let mut table = EdgeTable { source, file, columns, first_id: format.first_id, rounded: 0 };
    match format.ids {
        Ids::Keep => table.keep(ingest, format.num_nodes)?,
        Ids::Compact => table.compact(ingest)?,
        Ids::Strings => table.number_names(ingest)?,
    }
    note_rounded(ingest, table.rounded);
    Ok(())
}

struct EdgeTable<'p> {
    source: &'p Path,
    file: TableFile<'p>,
    columns: EdgeColumns,
    first_id: u64,
    /// Number of integer weights that f32 does not represent exactly.
    rounded: u64,
}

impl EdgeTable<'_> {
    fn weighted(&self) -> bool {
        self.columns.weight.is_some()
    }

    fn next(&mut self) -> Result<Option<Batch>> {
        let EdgeColumns { source, target, weight } = self.columns;
        self.file.next(&[source, target].into_iter().chain(weight).collect::<Vec<_>>())
    }

    fn error(&self, batch: &Batch, row: usize, what: String, cure: &str) -> Error {
        Error::invalid(self.source, batch.position(row), what, cure)
    }

    /// The ids of sources and targets minus `first`; an error for ids below `first` or more than `max` above it.
    fn ids(&self, batch: &Batch, first: u64, max: u64) -> Result<[Vec<u64>; 2]> {
        Ok([
            self.column_ids(batch, self.columns.source, first, max)?,
            self.column_ids(batch, self.columns.target, first, max)?,
        ])
    }

    fn column_ids(&self, batch: &Batch, column: usize, first: u64, max: u64) -> Result<Vec<u64>> {
        let values = batch.column(column);
        let kept = |id: i64| u64::try_from(id).ok()?.checked_sub(first).filter(|&id| id <= max);
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
                    None => (format!("the node id {id} is below the first one, {first}"), "correct it"),
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
                Err(text) => return Err(self.error(batch, row, format!("{text:?} is no weight"), "correct it")),
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
        let mut edges = ingest.edges(self.source, num_nodes, weighted)?;
        let max = num_nodes.unwrap_or(MAX_NODES).saturating_sub(1);
        let mut lowest = u32::MAX;
        while let Some(batch) = self.next()? {
            let ids = self.ids(&batch, first, max)?;
            let [src, dst] = ids.map(|ids| ids.into_iter().map(|id| id as u32).collect::<Vec<_>>());
            let weights = self.weights(&batch)?;
            lowest = src.iter().chain(&dst).fold(lowest, |low, &id| low.min(id));
            edges.push(&src, &dst, weighted.then_some(&weights))?;
        }
        finish_kept(edges, num_nodes, (first, lowest))
    }

    fn compact(&mut self, ingest: &mut Ingest<'_>) -> Result<()> {
        let mut edges = EdgeSpool::create(ingest, self.weighted())?;
        let mut sorter = compact::id_sorter(ingest);
        while let Some(batch) = self.next()? {
            let [src, dst] = self.ids(&batch, 0, u64::MAX)?;
            edges.write([&src, &dst], &self.weights(&batch)?)?;
            compact::push_ids(&mut sorter, src)?;
            compact::push_ids(&mut sorter, dst)?;
        }
        compact::finish(ingest, self.source, edges, sorter)
    }

    fn number_names(&mut self, ingest: &mut Ingest<'_>) -> Result<()> {
        let mut names = Names::default();
        for keys in ingest.node_keys() {
            let Keys::Names(texts) = keys else { continue };
            for name in texts.iter() {
                names.number(name, self.source)?;
            }
        }
        let mut edges = EdgeSpool::create(ingest, self.weighted())?;
        while let Some(batch) = self.next()? {
            let mut ids = [Vec::with_capacity(batch.rows), Vec::with_capacity(batch.rows)];
            for (ids, column) in ids.iter_mut().zip([self.columns.source, self.columns.target]) {
                for row in 0..batch.rows {
                    let text = batch.column(column).text(row);
                    let name = text.trim_ascii();
                    if name.is_empty() {
                        return Err(self.error(&batch, row, NO_ID.into(), REMOVE_ROW));
                    }
                    ids.push(u64::from(names.number(name, self.source)?));
                }
            }
            edges.write([&ids[0], &ids[1]], &self.weights(&batch)?)?;
        }
        let node_of = names.finish(ingest)?;
        edges.replay(ingest, self.source, node_of.len() as u64, |number| node_of[number as usize])
    }
}

const NO_ID: &str = "a node id is missing";
const REMOVE_ROW: &str = "correct or remove the row";
