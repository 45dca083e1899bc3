//! Planetoid: the eight pickles of Cora, Citeseer and Pubmed, with their public split.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use morphgl_graph_store::{Dtype, Error, Position, Result};
use morphgl_platform::{open_regular, text};

use crate::files::{DOWNLOAD, RAISE_MEMORY, invalid};
use crate::pickle::{self, Pickle};
use crate::sparse::SparseRows;
use crate::{Format, Ingest, Options, Progress};

/// Nodes after the training nodes that the public split validates on.
const VALID_NODES: usize = 500;

/// Imports the Planetoid set whose files begin with `source`, such as `data/ind.cora`, into a dataset at `target`.
///
/// The graph becomes undirected, without self-loops and duplicates, for all options, as the published lists are
/// meant. Nodes in a gap of the test range (Citeseer has 15) have zero features and no label.
/// The split is the public one: the nodes of `.y` train, the next 500 validate, those of `.test.index` test.
///
/// # Errors
///
/// Missing, cut or altered files, and files that do not fit one another.
///
/// # Complexity
///
/// Time O(entries + edges + nodes × features written). The pickles, a few MB, are held in memory.
pub fn import(source: &Path, target: &Path, options: &Options, progress: &dyn Progress) -> Result<PathBuf> {
    Format::Planetoid.refuse_others(source)?;
    progress.stage("read pickles", Some(7));
    let files = Files { prefix: source, memory: options.memory, progress };
    let options = Options { symmetrise: true, drop_self_loops: true, drop_duplicates: true, ..options.clone() };
    let num_train = files.labels("y")?.len();
    let (all_labels, test_labels) = (files.labels("ally")?, files.labels("ty")?);
    let (all, test) = (files.matrix("allx")?, files.matrix("tx")?);
    let (graph_path, graph_bytes) = (files.path("graph"), files.read("graph")?);
    let graph = pickle::read(&graph_path, &graph_bytes)?;
    let mut test_nodes = files.test_nodes()?;
    let rows = node_rows(&files, [&all, &test], [all_labels.len(), test_labels.len()], &test_nodes)?;
    if num_train + VALID_NODES > all.num_rows {
        let what = format!("{num_train} training and {VALID_NODES} validation nodes of {}", all.num_rows);
        return files.misfit("y", what);
    }

    let name = source.extension().unwrap_or_default().to_string_lossy().into_owned();
    let options = Options { name: options.name.clone().or(Some(name).filter(|n| !n.is_empty())), ..options };
    let mut ingest = Ingest::new(source, target, &options, progress)?;
    push_edges(&mut ingest, &graph, rows.len())?;
    let bytes = (rows.len() as u64).saturating_mul(all.num_cols as u64).saturating_mul(4);
    ingest.refuse_large(&format!("features of {} columns", all.num_cols), bytes, "check the file")?;
    let mut sink = ingest.features(&files.path("allx"), all.num_cols, Dtype::F32)?;
    sink.push_rows(rows.len(), |node, out| match rows[node] {
        Some(row) if row < all.num_rows => all.dense_row(row, out),
        Some(row) => test.dense_row(row - all.num_rows, out),
        None => out.fill(0.0),
    })?;
    sink.finish()?;
    let labels = [all_labels, test_labels].concat();
    let labels: Vec<i32> = rows.iter().map(|row| row.map_or(-1, |row| labels[row])).collect();
    ingest.labels(&files.path("ally"), &labels, None)?;
    let nodes: Vec<u32> = (0..(num_train + VALID_NODES) as u32).collect();
    let (train, valid) = nodes.split_at(num_train);
    test_nodes.sort_unstable();
    ingest.splits(&files.path("test.index"), train, valid, &test_nodes)?;
    ingest.provenance("format", "planetoid");
    ingest.provenance("gaps", rows.iter().filter(|row| row.is_none()).count());
    ingest.finish()
}

fn push_edges(ingest: &mut Ingest<'_>, graph: &Pickle<'_>, num_nodes: usize) -> Result<()> {
    let (mut sources, mut targets) = (vec![], vec![]);
    graph.adjacency(graph.root, "the graph", |u, v| {
        for id in [u, v] {
            if id < 0 || id >= num_nodes as i64 {
                let what = format!("an edge {u} - {v} to a node that does not exist, there are {num_nodes}");
                return invalid(graph.path, what, "download the files of one set together");
            }
        }
        sources.push(v as u32);
        targets.push(u as u32);
        Ok(())
    })?;
    let mut sink = ingest.edges(graph.path, Some(num_nodes as u64), false)?;
    sink.push(&sources, &targets, None)?;
    sink.finish()?;
    Ok(())
}

/// The row of each node in `.allx` or, counted on from there, in `.tx`; `None` for a node in a gap. The nodes of `.allx` are
/// the first ones, those of `.tx` are in the order of `test_nodes`.
fn node_rows(
    files: &Files<'_>,
    [all, test]: [&SparseRows; 2],
    [all_labels, test_labels]: [usize; 2],
    test_nodes: &[u32],
) -> Result<Vec<Option<usize>>> {
    let (first, test_rows) = (all.num_rows, test.num_rows);
    if first != all_labels {
        return files.misfit("ally", format!("{all_labels} label rows for {first} feature rows in .allx"));
    }
    let num_nodes = test_nodes.len();
    if test_rows != test_labels || test_rows != num_nodes {
        let what = format!("{test_rows} feature rows, {test_labels} label rows, {num_nodes} test nodes");
        return files.misfit("tx", what);
    }
    if all.num_cols != test.num_cols {
        return files.misfit("tx", format!("{} features, but .allx has {}", test.num_cols, all.num_cols));
    }
    let misplaced = |what: String| files.misfit("test.index", what);
    let end = test_nodes.iter().max().map_or(first, |&v| v as usize + 1);
    // The published gaps are a few nodes; a number far outside would only make a huge empty dataset.
    if end > first + 2 * test_rows {
        return misplaced(format!("test node {} of about {} nodes", end - 1, first + test_rows));
    }
    if let Some(&begin) = test_nodes.iter().min().filter(|&&v| v as usize != first) {
        return misplaced(format!("the test nodes begin at {begin}, those of .allx end at {first}"));
    }
    let mut rows: Vec<Option<usize>> = (0..end).map(|node| Some(node).filter(|&node| node < first)).collect();
    for (row, &node) in (first..).zip(test_nodes) {
        if rows[node as usize].replace(row).is_some() {
            return misplaced(format!("test node {node} is listed twice"));
        }
    }
    Ok(rows)
}

/// The files of a set, by ending.
struct Files<'a> {
    prefix: &'a Path,
    /// Maximum bytes of a file, which is held whole.
    memory: u64,
    progress: &'a dyn Progress,
}

impl Files<'_> {
    fn path(&self, ending: &str) -> PathBuf {
        let mut path = self.prefix.as_os_str().to_owned();
        path.push(".");
        path.push(ending);
        path.into()
    }

    fn read(&self, ending: &str) -> Result<Vec<u8>> {
        let path = self.path(ending);
        self.progress.advance(1);
        let unreadable = |e: io::Error| match e.kind() {
            io::ErrorKind::NotFound => {
                let cure = "name the files' common beginning, such as data/ind.cora";
                Error::invalid(&path, Position::File, "there is no such file", cure)
            }
            _ => Error::io(&path, e),
        };
        let mut bytes = Vec::new();
        let file = open_regular(&path).map_err(unreadable)?;
        file.take(self.memory.saturating_add(1)).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > self.memory {
            return invalid(
                &path,
                format!("a pickle of more than {} bytes, which is held whole", self.memory),
                RAISE_MEMORY,
            );
        }
        Ok(bytes)
    }

    fn matrix(&self, ending: &str) -> Result<SparseRows> {
        let (path, bytes) = (self.path(ending), self.read(ending)?);
        let pickle = pickle::read(&path, &bytes)?;
        pickle.csr(pickle.root, "the feature matrix")
    }

    /// Class of each row of a one-hot matrix; -1 for a row of zeros.
    fn labels(&self, ending: &str) -> Result<Vec<i32>> {
        let (path, bytes) = (self.path(ending), self.read(ending)?);
        let pickle = pickle::read(&path, &bytes)?;
        let array = pickle.array(pickle.root, "the label matrix")?;
        let (&[rows, classes], false) = (array.shape.as_slice(), array.fortran) else {
            return self.misfit(ending, format!("labels of shape {:?}, expected one-hot rows in C order", array.shape));
        };
        let mut hot = vec![];
        array.ty.ints(array.bytes, &mut hot).or_else(|fault| self.misfit(ending, fault))?;
        if classes == 0 || hot.len() as u64 != rows * classes {
            return self.misfit(ending, format!("labels of shape {:?}", array.shape));
        }
        let mut labels = Vec::with_capacity(rows as usize);
        for (i, row) in hot.chunks_exact(classes as usize).enumerate() {
            let ones = row.iter().filter(|&&v| v == 1).count();
            if ones > 1 || row.iter().any(|&v| !(0..=1).contains(&v)) {
                return self.misfit(ending, format!("label row {i} is not one-hot"));
            }
            labels.push(row.iter().position(|&v| v == 1).map_or(-1, |c| c as i32));
        }
        Ok(labels)
    }

    fn test_nodes(&self) -> Result<Vec<u32>> {
        let (path, bytes) = (self.path("test.index"), self.read("test.index")?);
        let text = text(bytes).map_err(|e| Error::invalid(&path, Position::File, e.to_string(), DOWNLOAD))?;
        let parse = |(i, line): (usize, &str)| {
            line.trim().parse().map_err(|_| {
                let what = format!("{line:?} is not a node number");
                Error::invalid(&path, Position::Line(i as u64 + 1), what, DOWNLOAD)
            })
        };
        text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(parse).collect()
    }

    fn misfit<T>(&self, ending: &str, what: impl Into<String>) -> Result<T> {
        let cure = "the files do not belong together or are damaged: download them again";
        invalid(self.path(ending), what, cure)
    }
}
