//! OGB's raw directories of sets of nodes and of links: gzipped CSV (arxiv, products, collab) and binary npz (papers100M).

mod counts;
mod links;
mod typed;

use std::fs;
use std::path::{Path, PathBuf};

use morphgl_graph_store::{Dtype, Error, Meta, Position, Result};
use morphgl_ingest::{EdgeBlock, EdgeBlockMaker};

use crate::archive::Archive;
use crate::csv_gz::{self, CsvReader, column, line_error};
use crate::files::{DAMAGED, file_name, invalid};
use crate::ingest::features::{push_array, push_edge_features};
use crate::ingest::nodes::Targets;
use crate::text::{LineError, Pairs, Scan};
use crate::{EdgeSink, Format, Ingest, Options, Progress};
use counts::{Counts, Renumber};

/// Imports `source`, the directory that holds OGB's `raw/` and `split/`, into a dataset at `target`.
///
/// Read are `raw/edge`, `node-feat`, `node-label`, `num-node-list` and `num-edge-list` (each `.csv.gz`), or, where
/// there is a `raw/data.npz`, that and `raw/node-label.npz`; and the one split in `split/`, of nodes (`train.csv.gz`, …) or of
/// pairs of links (`train.pt`, …, with numpy arrays in them). `raw/edge_weight.csv.gz` are the edges' weights.
/// Where there is a `raw/triplet-type-list.csv.gz`, the graph has several node types (ogbn-mag): `raw/num-node-dict`, `relations/S___NAME___T/edge`,
/// `node-feat/T/node-feat` and `node_year`, which is the nodes' time, `node-label/T/node-label`, and the split's lists of type T.
/// Features and labels may be missing; labels of several tasks (proteins) become targets. A set of many graphs becomes the union of its graphs, without splits, since OGB
/// splits the graphs then. Edges are stored as they are listed: OGB's loader adds the reverse edges of some sets (products
/// among them), which [`Options::symmetrise`] does. `raw/edge-feat` has features of the edges. `node_year` and `edge_year` are not
/// stored; the dataset's provenance says whether they exist.
///
/// # Errors
///
/// Missing, cut or damaged files, tables of other widths or lengths than promised, an edge to a node that does not
/// exist, a feature that is not finite, a label that is not a class number, several splits.
///
/// # Complexity
///
/// One pass over each file, two over the binary edges; memory O(nodes) for labels and splits, and
/// [`Options::memory`] for the edges.
pub fn import(source: &Path, target: &Path, options: &Options, progress: &dyn Progress) -> Result<PathBuf> {
    Format::Ogb.refuse_others(source)?;
    let raw = source.join("raw");
    if !raw.is_dir() {
        let cure = "name the directory that holds OGB's raw/ and split/; of the package ogb, \
            NodePropPredDataset(\"ogbn-arxiv\", root=\".\") downloads it as ogbn_arxiv, LinkPropPredDataset links";
        return invalid(raw, "there is no such directory", cure);
    }
    if typed::is_typed(&raw) {
        return typed::import(source, target, options, progress);
    }
    let mut ingest = Ingest::new(source, target, options, progress)?;
    let counts = if raw.join("data.npz").exists() { binary(&mut ingest, &raw)? } else { text(&mut ingest, &raw)? };
    let graphs = counts.graphs.len();
    if graphs == 1 {
        splits(&mut ingest, &source.join("split"), counts.num_nodes)?;
    }
    ingest.provenance("format", "ogb");
    ingest.provenance("graphs", graphs as u64);
    ingest.finish()
}

/// Adds the provenance of data that a dataset does not store.
fn note_unstored(ingest: &mut Ingest<'_>, [node_years, edge_years]: [bool; 2]) {
    for (name, exists) in [("node_year", node_years), ("edge_year", edge_years)] {
        ingest.provenance(name, if exists { "present, not stored" } else { "absent" });
    }
}

fn text(ingest: &mut Ingest<'_>, raw: &Path) -> Result<Counts> {
    let file = |name: &str| raw.join(format!("{name}.csv.gz"));
    let nodes = column(file("num-node-list"), ingest, csv_gz::id)?;
    let edges = column(file("num-edge-list"), ingest, csv_gz::id)?;
    let counts = Counts::new(&file("num-node-list"), &nodes, &edges)?;

    // Labels are read first: wrong counts show in them soonest.
    let label_path = file("node-label");
    if label_path.exists() {
        match CsvReader::open(&label_path, "labels", ingest)?.width()? {
            Some(tasks @ 2..) => text_targets(ingest, &label_path, tasks, counts.num_nodes)?,
            _ => {
                let labels = column(label_path.clone(), ingest, csv_gz::label)?;
                check_labels(&label_path, &labels, counts.num_nodes, |i| Position::Line(i as u64 + 1))?;
                ingest.labels(&label_path, &labels, None)?;
            }
        }
    }

    let weight_path = file("edge_weight");
    let weights = weight_path.exists().then(|| column(weight_path.clone(), ingest, csv_gz::weight)).transpose()?;
    if let Some(count) = weights.as_ref().map(|w| w.len() as u64).filter(|&count| count != counts.num_edges) {
        let cure = "the file is cut short or of another set: download it again";
        return invalid(weight_path, format!("{count} weights for {} edges", counts.num_edges), cure);
    }

    ingest.numbers_edges = file("edge-feat").exists();
    let mut table = CsvReader::open(&file("edge"), "edges", ingest)?;
    let mut sink = ingest.edges(&file("edge"), Some(counts.num_nodes), weights.is_some())?;
    let (blocks, mut renumber) = (sink.csc.block_maker(), Renumber::new(&counts));
    let (mut line, in_blocks) = (0, counts.graphs.len() == 1 && weights.is_none());
    let num_nodes = if in_blocks { counts.num_nodes } else { 0 };
    while let Some(pieces) = table.pieces(|text| edges_of(text, num_nodes, &blocks))? {
        for piece in pieces {
            match piece {
                Piece::Block(block) => {
                    line += block.num_edges();
                    if line > counts.num_edges {
                        return Err(table.fault(counts.num_edges + 1, counts.too_many()));
                    }
                    sink.csc.push_blocks([block])?;
                }
                Piece::Raw(pairs) => {
                    let first = line as usize;
                    for (&u, &v) in pairs.sources.iter().zip(&pairs.targets) {
                        line += 1;
                        if line > counts.num_edges {
                            return Err(table.fault(line, counts.too_many()));
                        }
                        renumber.edge(u, v).map_err(|what| table.fault(line, what))?;
                    }
                    let weights = weights.as_ref().map(|weights| &weights[first..line as usize]);
                    push_renumbered(&mut sink, &mut renumber, weights)?;
                }
            }
        }
    }
    expect_lines(&table, counts.num_edges, "edges")?;
    sink.finish()?;

    if file("node-feat").exists() {
        features(ingest, &file("node-feat"), ("nodes", counts.num_nodes), None)?;
    }
    if file("edge-feat").exists() {
        let array = Meta::edge_features_of(None);
        features(ingest, &file("edge-feat"), ("edges", counts.num_edges), Some(&array))?;
    }
    note_unstored(ingest, ["node_year", "edge_year"].map(|name| file(name).exists()));
    Ok(counts)
}

/// Pushes the edges that `renumber` has collected.
fn push_renumbered(sink: &mut EdgeSink<'_, '_>, renumber: &mut Renumber<'_>, weights: Option<&[f32]>) -> Result<()> {
    sink.push(&renumber.sources, &renumber.targets, weights)?;
    renumber.sources.clear();
    renumber.targets.clear();
    Ok(())
}

/// Edges of a piece of text.
enum Piece {
    /// Of the only graph, checked and sorted.
    Block(EdgeBlock),
    /// As they are listed: of one of several graphs, with weights, or with a fault in them.
    Raw(Pairs<u64>),
}

/// The edges of a piece of text: a block where their ends are below `num_nodes`.
fn edges_of(text: &[u8], num_nodes: u64, blocks: &EdgeBlockMaker) -> std::result::Result<Piece, LineError> {
    let mut scan = Scan::new(text);
    let mut raw = Pairs::<u64>::with_capacity(0);
    // A line has nine bytes or more in any file where this matters.
    let mut pairs = Pairs::<u32>::with_capacity(text.len() / 9);
    let mut add = |u: u64, v: u64| {
        if raw.sources.is_empty() && u.max(v) < num_nodes {
            pairs.push(u as u32, v as u32);
        } else {
            raw.sources.extend(pairs.sources.drain(..).map(u64::from));
            raw.targets.extend(pairs.targets.drain(..).map(u64::from));
            raw.push(u, v);
        }
        true
    };
    while !scan.is_at_end() {
        scan.plain_pairs(|b| b == b',', &mut add);
        if scan.is_at_end() {
            break;
        }
        let mut pair = [0; 2];
        csv_gz::line_text(scan.line())
            .and_then(|line| csv_gz::fields(line, &mut pair, csv_gz::id))
            .map_err(|what| line_error(scan.lines(), what))?;
        scan.next_line();
        add(pair[0], pair[1]);
    }
    Ok(if raw.sources.is_empty() { Piece::Block(blocks.block(pairs.edges(false), false)) } else { Piece::Raw(raw) })
}

/// Reads the features of all nodes, or of edges into the array `name`; `count` is what and how many they are.
fn features(ingest: &mut Ingest<'_>, path: &Path, (of, count): (&str, u64), name: Option<&str>) -> Result<()> {
    let mut table = CsvReader::open(path, "features", ingest)?;
    let Some(dim) = table.width()? else { return expect_lines(&table, count, of) };
    let mut sink = match name {
        None => ingest.features(path, dim, Dtype::F32)?,
        Some(name) => ingest.features_as(name, path, dim, Dtype::F32)?,
    };
    let mut rows = vec![];
    while table.rows(dim, &mut rows, |line, out| csv_gz::fields(line, out, csv_gz::feature))? {
        if table.lines() > count {
            break;
        }
        sink.push(&rows)?;
    }
    expect_lines(&table, count, of)?;
    sink.finish()
}

fn expect_lines(table: &CsvReader<'_>, expected: u64, what: &str) -> Result<()> {
    let lines = table.lines();
    if lines == expected {
        return Ok(());
    }
    Err(table.fault(lines.min(expected) + 1, format!("{lines} lines for {expected} {what}")))
}

/// Reads labels of several tasks, which are targets.
fn text_targets(ingest: &mut Ingest<'_>, path: &Path, tasks: usize, num_nodes: u64) -> Result<()> {
    let mut table = CsvReader::open(path, "targets", ingest)?;
    let (mut targets, mut rows) = (Targets::default(), vec![]);
    while table.rows(tasks, &mut rows, |line, out| csv_gz::fields(line, out, csv_gz::target))? {
        rows.chunks_exact(tasks).for_each(|row| targets.push(row));
    }
    check_count(path, table.lines(), num_nodes)?;
    ingest.targets(path, targets)
}

/// A class number cannot exceed the number of nodes: one that does is an id or a measurement.
fn check_labels(path: &Path, labels: &[i32], num_nodes: u64, at: impl Fn(usize) -> Position) -> Result<()> {
    check_count(path, labels.len() as u64, num_nodes)?;
    let Some(i) = labels.iter().position(|&l| i64::from(l) >= num_nodes.max(2) as i64) else { return Ok(()) };
    let what = format!("the label {} is out of range for {num_nodes} nodes", labels[i]);
    Err(Error::invalid(path, at(i), what, "classes are numbered from 0: renumber them"))
}

fn check_count(path: &Path, labels: u64, num_nodes: u64) -> Result<()> {
    if labels == num_nodes {
        return Ok(());
    }
    let cure = "the file is cut short or of another set: download it again";
    invalid(path, format!("{labels} labels for {num_nodes} nodes"), cure)
}

/// Arrays of `data.npz`.
const KNOWN: [&str; 7] =
    ["num_nodes_list", "num_edges_list", "edge_index", "edge_feat", "node_feat", "node_year", "edge_year"];

fn binary(ingest: &mut Ingest<'_>, raw: &Path) -> Result<Counts> {
    let path = raw.join("data.npz");
    let mut archive = Archive::open(&path)?;
    let mut count = |name: &str| -> Result<Vec<u64>> {
        let mut array = archive.array(name)?;
        let counts = array.all_ints()?;
        counts.iter().map(|&c| u64::try_from(c).or_else(|_| array.fail(0, format!("a count of {c}")))).collect()
    };
    let (nodes, edges) = (count("num_nodes_list")?, count("num_edges_list")?);
    let counts = Counts::new(&path, &nodes, &edges)?;
    let label_path = raw.join("node-label.npz");
    if label_path.exists() {
        let mut label_archive = Archive::open(&label_path)?;
        let mut array = label_archive.array("node_label")?;
        check_count(&array.path, array.shape.first().copied().unwrap_or(0), counts.num_nodes)?;
        if matches!(array.shape[..], [_] | [_, 1]) {
            let labels = array.labels()?;
            check_labels(&array.path, &labels, counts.num_nodes, |i| Position::Element(i as u64))?;
            ingest.labels(&label_path, &labels, None)?;
        } else {
            let targets = Targets::of_array(&mut array, None)?;
            ingest.targets(&label_path, targets)?;
        }
    }
    ingest.numbers_edges = archive.has("edge_feat");
    binary_edges(ingest, &mut archive, &counts)?;
    if archive.has("node_feat") {
        push_array(ingest, archive.array("node_feat")?, Dtype::F32)?;
    }
    if archive.has("edge_feat") {
        push_edge_features(ingest, archive.array("edge_feat")?)?;
    }
    note_unstored(ingest, ["node_year", "edge_year"].map(|name| archive.has(name)));
    let unread = archive.unknown(&KNOWN);
    if !unread.is_empty() {
        ingest.note(format!("arrays of unknown names were left out: {}", unread.join(", ")));
    }
    Ok(counts)
}

/// Streams `edge_index`, whose two rows are stored one after the other: two readers read the array at the same time.
fn binary_edges(ingest: &mut Ingest<'_>, archive: &mut Archive, counts: &Counts) -> Result<()> {
    const STEP: u64 = 1 << 18;
    let path = archive.path.clone();
    let progress = ingest.progress();
    let mut second = Archive::open(&path)?;
    let mut first = archive.array("edge_index")?;
    let mut second = second.array("edge_index")?;
    if first.shape != [2, counts.num_edges] {
        return first.fail(0, format!("edges of shape {:?}, expected [2, {}]", first.shape, counts.num_edges));
    }
    progress.stage("edges", Some(counts.num_edges));
    let interleaved = first.fortran;
    if !interleaved {
        second.skip(counts.num_edges)?;
    }
    let mut sink = ingest.edges(&path, Some(counts.num_nodes), false)?;
    let (mut sources, mut targets, mut renumber) = (vec![], vec![], Renumber::new(counts));
    let mut done = 0;
    while done < counts.num_edges {
        let n = STEP.min(counts.num_edges - done);
        sources.clear();
        targets.clear();
        if interleaved {
            first.ints(2 * n, &mut targets)?;
            sources.extend(targets.iter().step_by(2));
            targets = targets.iter().skip(1).step_by(2).copied().collect();
        } else {
            first.ints(n, &mut sources)?;
            second.ints(n, &mut targets)?;
        }
        for (i, (&u, &v)) in sources.iter().zip(&targets).enumerate() {
            let (Ok(source), Ok(target)) = (u64::try_from(u), u64::try_from(v)) else {
                return first.fail(0, format!("edge {} is {u},{v}", done + i as u64));
            };
            let at = Position::Element(done + i as u64);
            renumber.edge(source, target).map_err(|what| Error::invalid(&first.path, at, what, DAMAGED))?;
        }
        push_renumbered(&mut sink, &mut renumber, None)?;
        done += n;
        progress.advance(n);
    }
    sink.finish()?;
    Ok(())
}

/// Reads the only split, if there is one.
fn splits(ingest: &mut Ingest<'_>, dir: &Path, num_nodes: u64) -> Result<()> {
    if !dir.exists() {
        return Ok(());
    }
    let io = |e| Error::io(dir, e);
    let mut paths = vec![];
    for entry in fs::read_dir(dir).map_err(io)? {
        paths.push(entry.map_err(io)?.path());
    }
    paths.retain(|path| path.is_dir());
    paths.sort();
    let split = match &paths[..] {
        [] => return Ok(()),
        [split] => split,
        several => {
            let names: Vec<_> = several.iter().map(|path| file_name(path)).collect();
            if ingest.options().split.is_some() {
                return Ok(());
            }
            let cure = "leave one of them, or ask for a random split";
            return invalid(dir, format!("several splits: {}", names.join(", ")), cure);
        }
    };
    ingest.provenance("split", file_name(split));
    if links::is_split(split) {
        return links::read(ingest, split);
    }
    if ingest.options().split.is_some() {
        return Ok(());
    }
    let read = |part: &str| {
        column(split.join(format!("{part}.csv.gz")), ingest, |field| {
            let node = csv_gz::id(field)?;
            let node = u32::try_from(node).ok().filter(|_| node < num_nodes);
            node.ok_or_else(|| format!("node {field} does not exist, there are {num_nodes}"))
        })
    };
    let (train, valid, test) = (read("train")?, read("valid")?, read("test")?);
    ingest.splits(split, &train, &valid, &test)
}
