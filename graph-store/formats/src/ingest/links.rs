//! Pairs of link prediction: drawn from the edges, of the source's own split, or in files beside the graph.

use std::path::Path;

use morphgl_graph_store::{ArrayMeta, EdgeSplits, Error, Position, Result, check_own};
use morphgl_ingest::{DrawnEdges, EdgeSplit, split_edges, split_edges_of_types};

use super::labelled_rows::LabelledRows;
use super::nodes::node_index::NodeIndex;
use crate::files::{Fault, invalid, magic};
use crate::npy::open_array;
use crate::tabular::TableFile;
use crate::tabular::lists::{self, EDGE_FEATURES, counted};
use crate::text::{Columns, Header, choose, named_cure};
use crate::{Ingest, LinkFiles};

/// How the edges' file names nodes: files of pairs name them alike.
#[derive(Debug, Clone, Default)]
pub(crate) struct PairIds {
    /// The columns of ids that the options name.
    pub(crate) columns: Columns,
    /// Whether ids are text.
    pub(crate) named: bool,
    /// Number added to the ids of targets, where these are a kind of their own.
    pub(crate) offset: u64,
    /// What the names of sources and of targets begin with, where these are two kinds of nodes.
    pub(crate) prefixes: Option<[String; 2]>,
}

/// Cure for a node that the graph does not have.
const UNKNOWN: &str = "remove the pair, or add the node to the graph (--num-nodes, or a row of --nodes)";

impl Ingest<'_> {
    /// Takes pairs of link prediction as numbers of nodes, [source, target] one after another, for an array of
    /// [`EdgeSplits::ARRAYS`], once the edges are finished; ignored when the options draw pairs.
    ///
    /// # Errors
    ///
    /// A node that does not exist, an IO error.
    ///
    /// # Panics
    ///
    /// When the edges are not finished.
    pub fn links(&mut self, array: &'static str, source: &Path, pairs: &[u32]) -> Result<()> {
        if self.options().edge_split.is_some() {
            self.note(format!(
                "the source's own {} were left out for random ones (--edge-split)",
                array.replace('_', " ")
            ));
            return Ok(());
        }
        if self.links.contains(&array) {
            let what = format!("{} are in the source already", array.replace('_', " "));
            return invalid(source, what, "leave out the option, and import the source's own");
        }
        let num_nodes = self.num_nodes.expect("edges are finished before pairs are added");
        if let Some(at) = pairs.iter().position(|&node| u64::from(node) >= num_nodes) {
            let what = format!("node {} does not exist, there are {num_nodes} nodes", pairs[at]);
            return Err(Error::invalid(source, Position::Element(at as u64 / 2), what, UNKNOWN));
        }
        let (train, negatives) = EdgeSplits::NEGATIVES[0];
        if array == negatives && self.links.contains(&train) {
            let train = self.array::<u32>(train)?;
            if let Err((at, what)) = check_own(bytemuck::cast_slice(&train), bytemuck::cast_slice(pairs)) {
                let cure = "give as many for each training pair, in their order and with its source";
                return Err(Error::invalid(source, Position::Element(at as u64), what, cure));
            }
        }
        self.links.push(array);
        self.writer.array(array, pairs, Some(2))
    }

    /// Adds an array of pairs that the importer has written.
    pub(crate) fn add_pairs(&mut self, array: &'static str, meta: ArrayMeta) {
        self.links.push(array);
        self.writer.add(array, meta);
    }

    /// Adds the pairs of the files that the options name.
    pub(crate) fn attach_links(&mut self, num_nodes: u64) -> Result<()> {
        let files = self.options().links.clone();
        let all = EdgeSplits::ARRAYS.into_iter().zip(files.files());
        let labelled = self.pair_ids.columns.are_labelled();
        if files == LinkFiles::default() && !labelled {
            return Ok(());
        }
        let index = NodeIndex::of(self, num_nodes)?;
        if labelled {
            self.read_labelled_edges(&files, &index)?;
        }
        for (array, path) in all {
            let Some(path) = path.filter(|_| !labelled || EdgeSplits::ARRAYS[3..].contains(&array)) else { continue };
            let pairs = read(self, path, &index, None)?;
            self.links(array, path, &pairs)?;
        }
        let negatives = [&files.train_negatives, &files.valid_negatives, &files.test_negatives];
        for (negatives, (of, _)) in negatives.into_iter().zip(EdgeSplits::NEGATIVES) {
            if let Some(path) = negatives.as_ref().filter(|_| !self.links.contains(&of)) {
                let option = of.replace('_', "-");
                return invalid(path, "negatives of no pairs", format!("name the pairs by --{option}"));
            }
        }
        Ok(())
    }

    /// Draws pairs out of the graph, if the options say so.
    pub(crate) fn draw_links(&mut self) -> Result<()> {
        let Some(split) = self.options().edge_split else { return Ok(()) };
        let progress = self.progress();
        progress.stage("draw edges", None);
        let advance = |edges| progress.advance(edges);
        let drawn = match &self.split_types[..] {
            [] => {
                let (drawn, shares) = split_edges(&mut self.writer, &split, advance)?;
                self.divide_labelled_edges(&shares)?;
                drawn
            }
            types => split_edges_of_types(&mut self.writer, &split, types, advance)?,
        };
        let EdgeSplit { train, valid, test, seed } = split;
        self.provenance("edge_split", vec![train, valid, test]);
        self.provenance("edge_split_seed", seed);
        let DrawnEdges { symmetric, valid, test, left_out, .. } = drawn;
        let what = if symmetric { "undirected edge" } else { "edge" };
        self.note(format!("{} to validate on and {test} to test on were taken out of the graph", counted(valid, what)));
        if left_out > 0 {
            self.note(format!("{} of no share of --edge-split left out", counted(left_out, what)));
        }
        Ok(())
    }

    /// Notes how many given pairs to validate and test on are edges of the graph, along which messages pass.
    pub(crate) fn note_known_links(&mut self) -> Result<()> {
        // That a labelled edge exists does not say how it is labelled.
        if self.pair_ids.columns.are_labelled() {
            return Ok(());
        }
        for (array, name) in [("valid_edges", "validation"), ("test_edges", "test")] {
            if !self.links.contains(&array) {
                continue;
            }
            let (indptr, indices) = (self.array::<u64>("indptr")?, self.array::<u32>("indices")?);
            let row = |v: u32| indptr[v as usize] as usize..indptr[v as usize + 1] as usize;
            let pairs = self.array::<u32>(array)?;
            let types = format!("{array}_types");
            let count = match self.dir().join(format!("{types}.npy")).is_file() {
                false => {
                    let known = |pair: &&[u32]| indices[row(pair[1])].binary_search(&pair[0]).is_ok();
                    pairs.chunks_exact(2).filter(known).count()
                }
                true => {
                    let (edge_types, types) = (self.array::<u16>("edge_types")?, self.array::<u16>(&types)?);
                    let known = |(pair, of): &(&[u32], &u16)| {
                        row(pair[1]).any(|edge| indices[edge] == pair[0] && edge_types[edge] == **of)
                    };
                    pairs.chunks_exact(2).zip(types.iter()).filter(known).count()
                }
            };
            if count > 0 {
                let what = "are edges of the graph, which messages pass along: their scores say little";
                self.note(format!("{count} of {} {name} pairs {what}", pairs.len() / 2));
            }
        }
        Ok(())
    }
}

/// The nodes of the pairs in a file, [source, target] one after another. Where their targets are read into `labelled`, and nodes that
/// are not listed are left out, such a node is `u32::MAX`.
pub(super) fn read(
    ingest: &Ingest<'_>,
    path: &Path,
    index: &NodeIndex,
    mut labelled: Option<&mut LabelledRows>,
) -> Result<Vec<u32>> {
    if magic(path)?.starts_with(b"\x93NUMPY") {
        if labelled.is_some() {
            let cure = "give a table with a column of labels, as the edges' own, or import arrays by the format numpy";
            return invalid(path, "an array of pairs without labels", cure);
        }
        return array(ingest, path, index);
    }
    let PairIds { columns, named, offset, prefixes } = &ingest.pair_ids;
    let columns = &if labelled.is_some() { columns.clone() } else { columns.unlabelled() };
    // Features are those of the graph's edges alone; a file of pairs may have the columns or not.
    let features = |header: &Header, taken: &[usize]| -> std::result::Result<Vec<usize>, Fault> {
        let select = |column| lists::select(header, std::slice::from_ref(column), taken, EDGE_FEATURES);
        Ok(columns.features.iter().filter_map(|column| select(column).ok()).flatten().collect())
    };
    let mut file = TableFile::with_ids(path, *named, ingest.progress())?;
    if columns.names.is_some() && file.is_text {
        file.header.named = false;
    }
    let (label, targets);
    let [source, target] = match choose(&file.header, &Columns { weight: None, ..columns.clone() }, &features) {
        Ok(chosen) => {
            (label, targets) = (chosen.label, chosen.targets);
            [chosen.columns.source, chosen.columns.target]
        }
        // The names of two columns of numbers do not matter.
        Err(_) if file.header.named && file.header.names.len() == 2 && !named && labelled.is_none() => {
            (label, targets) = (None, Vec::new());
            [0, 1]
        }
        Err((what, cure)) => return invalid(path, what, named_cure(cure, path)),
    };
    let mut nodes = Vec::new();
    let all: Vec<usize> = [source, target].into_iter().chain(label).chain(targets.iter().copied()).collect();
    let leaves_out = labelled.is_some() && ingest.drops_unknown_nodes();
    while let Some(batch) = file.next(&all)? {
        if let Some(labelled) = &mut labelled {
            labelled.read(&file, &batch, label, &targets)?;
        }
        for row in 0..batch.rows {
            for (end, column) in [source, target].into_iter().enumerate() {
                let values = batch.column(column);
                let text = values.text(row);
                let node = match (&prefixes, named) {
                    (Some(prefixes), _) => index.named(&[prefixes[end].as_bytes(), text.trim_ascii()].concat()),
                    (None, true) => index.named(text.trim_ascii()),
                    (None, false) => {
                        let id = values.int(row).ok().flatten().and_then(|id| u64::try_from(id).ok());
                        id.and_then(|id| index.node(if end == 1 { id.checked_add(*offset)? } else { id }))
                    }
                };
                let Some(node) = node.or(leaves_out.then_some(u32::MAX)) else {
                    let what = format!("there is no node {:?}", String::from_utf8_lossy(&text));
                    return Err(Error::invalid(path, batch.position(row), what, UNKNOWN));
                };
                nodes.push(node);
            }
        }
    }
    Ok(nodes)
}

/// The nodes of an array `[pairs, 2]` or `[pairs, negatives, 2]`.
fn array(ingest: &Ingest<'_>, path: &Path, index: &NodeIndex) -> Result<Vec<u32>> {
    let mut array = open_array(path)?;
    if ingest.pair_ids.named {
        return invalid(path, "numbers, where nodes are known by names", "write the pairs as text, one per line");
    }
    if !matches!(array.shape[..], [_, 2] | [_, _, 2]) || array.fortran && array.shape[0] > 1 {
        let order = if array.fortran { " in Fortran order" } else { "" };
        let what = format!("pairs of shape {:?}{order}, expected [pairs, 2]", array.shape);
        return invalid(path, what, "save numpy.ascontiguousarray of such an array: edge_index.T of a [2, pairs]");
    }
    let ids = array.all_ids()?;
    let offsets = [0, ingest.pair_ids.offset];
    let node = |(at, id): (usize, u64)| {
        let node = id.checked_add(offsets[at % 2]).and_then(|id| index.node(id));
        let unknown = || Error::invalid(path, Position::Element(at as u64), format!("there is no node {id}"), UNKNOWN);
        node.ok_or_else(unknown)
    };
    ids.into_iter().enumerate().map(node).collect()
}
