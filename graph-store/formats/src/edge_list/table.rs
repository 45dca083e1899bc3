//! Edges in a table of columns: Parquet and Arrow files, and text whose ids are names.

use std::path::Path;

use morphgl_graph_store::{Error, MAX_NODES, Position, Result};

use super::{EdgeListOptions, Ids, finish_kept, note_rounded};
use crate::Ingest;
use crate::compact::{self, Unnumbered};
use crate::ingest::nodes::Keys;
use crate::names::Names;
use crate::tabular::{Batch, TableFile, Values};
use crate::text::choose;

/// Reads the edges of the table `source` as the options say.
pub(super) fn edges(ingest: &mut Ingest<'_>, source: &Path, format: &EdgeListOptions) -> Result<()> {
    let mut file = TableFile::open(source, ingest.progress())?;
    if format.columns.names.is_some() && file.is_text() {
        // `--columns` is for files without a header: the first row is an edge.
        file.set_header(false);
    }
    let chosen = choose(&file.header, &format.columns).map_err(|(what, cure)| match format.ids {
        Ids::Strings if file.header.named && file.is_text() => {
            (what, "name columns by --src and --dst, or, where the first line is an edge, by --columns src,dst")
        }
        _ => (what, cure),
    });
    let wrong = |(what, cure)| Error::invalid(source, Position::File, what, cure);
    let chosen = chosen.map_err(wrong)?;
    ingest.note(chosen.note(file.header.names.len(), |place| file.header.describe(place)));
    let weight = chosen.weight.filter(|_| !ingest.options().drop_weights);
    let places: Vec<usize> = [chosen.source, chosen.target].into_iter().chain(weight).collect();
    let mut table = EdgeTable { source, file, places, first_id: format.first_id, rounded: 0 };
    match format.ids {
        Ids::Keep => table.kept(ingest, format.num_nodes)?,
        Ids::Compact => table.compact(ingest)?,
        Ids::Strings => table.named(ingest)?,
    }
    table.told(ingest);
    Ok(())
}

struct EdgeTable<'p> {
    source: &'p Path,
    file: TableFile<'p>,
    places: Vec<usize>,
    first_id: u64,
    /// Number of integer weights that f32 does not represent exactly.
    rounded: u64,
}

impl EdgeTable<'_> {
    fn weighted(&self) -> bool {
        self.places.len() == 3
    }

    fn next(&mut self) -> Result<Option<Batch>> {
        self.file.next(&self.places)
    }

    fn told(&self, ingest: &mut Ingest<'_>) {
        if self.rounded > 0 {
            note_rounded(ingest, self.rounded);
        }
    }

    fn wrong(&self, batch: &Batch, row: usize, what: String, cure: &str) -> Error {
        Error::invalid(self.source, batch.position(row), what, cure)
    }

    /// The ids of a column minus `first`; an error for ids below `first` or with more than `most` left.
    fn ids(&self, batch: &Batch, column: usize, (first, most): (u64, u64)) -> Result<Vec<u64>> {
        let values = &batch.columns[column];
        if let Values::Ints(ids, None) = values
            && ids.iter().all(|&id| id >= 0 && id as u64 >= first && id as u64 - first <= most)
        {
            return Ok(ids.iter().map(|&id| id as u64 - first).collect());
        }
        let id = |row: usize| {
            let wrong = |what: String, cure| Err(self.wrong(batch, row, what, cure));
            match values.int(row) {
                Ok(Some(id)) if id >= 0 && id as u64 >= first && id as u64 - first <= most => Ok(id as u64 - first),
                Ok(Some(id)) if id >= 0 && id as u64 >= first => {
                    let cure = match most < MAX_NODES - 1 {
                        true => "give a larger number of nodes, or number them anew without gaps by --ids compact",
                        false => "number the nodes anew without gaps by --ids compact",
                    };
                    wrong(format!("the node id {id} does not fit"), cure)
                }
                Ok(Some(id)) => wrong(format!("the node id {id} is below the first one, {first}"), "correct it"),
                Ok(None) => wrong("a node id is missing".into(), "correct or remove the row"),
                Err(text) => wrong(format!("{text:?} is no node id"), "import ids that are names with --ids strings"),
            }
        };
        (0..batch.rows).map(id).collect()
    }

    fn weights(&mut self, batch: &Batch) -> Result<Vec<f32>> {
        if !self.weighted() {
            return Ok(Vec::new());
        }
        let values = &batch.columns[2];
        let mut weights = Vec::with_capacity(batch.rows);
        for row in 0..batch.rows {
            match values.real(row) {
                Ok(weight) if weight.is_finite() && weight >= 0.0 => weights.push(weight),
                Ok(weight) => {
                    let what = format!("the weight {weight} is not a finite number of at least 0");
                    return Err(self.wrong(batch, row, what, "correct it, or import with --drop-weights"));
                }
                Err(text) => return Err(self.wrong(batch, row, format!("{text:?} is no weight"), "correct it")),
            }
        }
        let rounded = |row: &usize| {
            weights[*row] >= 16_777_216.0 && values.int(*row).ok().flatten().is_some_and(|w| weights[*row] as i64 != w)
        };
        self.rounded += (0..batch.rows).filter(rounded).count() as u64;
        Ok(weights)
    }

    fn kept(&mut self, ingest: &mut Ingest<'_>, num_nodes: Option<u64>) -> Result<()> {
        let (first, weighted) = (self.first_id, self.weighted());
        ingest.least_nodes = ingest.kept_nodes(first);
        let mut edges = ingest.edges(self.source, num_nodes, weighted)?;
        let most = num_nodes.unwrap_or(MAX_NODES).saturating_sub(1);
        let narrow = |ids: Vec<u64>| -> Vec<u32> { ids.into_iter().map(|id| id as u32).collect() };
        let mut lowest = u32::MAX;
        while let Some(batch) = self.next()? {
            let [src, dst] = [0, 1].map(|column| self.ids(&batch, column, (first, most)).map(narrow));
            let (src, dst, weights) = (src?, dst?, self.weights(&batch)?);
            lowest = src.iter().chain(&dst).fold(lowest, |low, &id| low.min(id));
            edges.push(&src, &dst, weighted.then_some(&weights))?;
        }
        finish_kept(edges, num_nodes, (first, lowest))
    }

    fn compact(&mut self, ingest: &mut Ingest<'_>) -> Result<()> {
        let mut edges = Unnumbered::create(ingest, self.weighted())?;
        let mut sorter = compact::id_sorter(ingest);
        while let Some(batch) = self.next()? {
            let [src, dst] = [0, 1].map(|column| self.ids(&batch, column, (0, u64::MAX)));
            let (src, dst, weights) = (src?, dst?, self.weights(&batch)?);
            for keys in [&src, &dst] {
                let mut keys = keys.clone();
                keys.sort_unstable();
                keys.dedup();
                sorter.push(&keys)?;
            }
            edges.write([&src, &dst], &weights)?;
        }
        compact::finish(ingest, self.source, edges, sorter)
    }

    fn named(&mut self, ingest: &mut Ingest<'_>) -> Result<()> {
        let mut names = Names::default();
        for keys in ingest.node_keys() {
            let Keys::Names(texts) = keys else { continue };
            for name in texts.iter() {
                names.number(name).ok_or_else(|| too_many(self.source))?;
            }
        }
        let mut edges = Unnumbered::create(ingest, self.weighted())?;
        while let Some(batch) = self.next()? {
            let mut ids = [Vec::with_capacity(batch.rows), Vec::with_capacity(batch.rows)];
            for (ids, column) in ids.iter_mut().zip(&batch.columns) {
                for row in 0..batch.rows {
                    let name = column.text(row);
                    let name = name.trim_ascii();
                    if name.is_empty() {
                        return Err(self.wrong(
                            &batch,
                            row,
                            "a node id is missing".into(),
                            "correct or remove the row",
                        ));
                    }
                    ids.push(u64::from(names.number(name).ok_or_else(|| too_many(self.source))?));
                }
            }
            let weights = self.weights(&batch)?;
            edges.write([&ids[0], &ids[1]], &weights)?;
        }
        let node_of = names.finish(ingest)?;
        edges.number(ingest, self.source, node_of.len() as u64, |number| node_of[number as usize])
    }
}

fn too_many(source: &Path) -> Error {
    let what = format!("more than the {MAX_NODES} nodes that ids of 32 bits allow");
    Error::invalid(source, Position::File, what, "cut the graph into smaller ones")
}
