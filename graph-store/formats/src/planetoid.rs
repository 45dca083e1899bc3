//! Planetoid: the eight pickles of Cora, Citeseer and Pubmed, with their public split.

use std::fs;
use std::path::{Path, PathBuf};

use morphgl_graph_store::{Dtype, Error, Position, Result};

use crate::files::{DOWNLOAD, invalid};
use crate::pickle::{self, Pickle};
use crate::sparse::SparseRows;
use crate::{Ingest, Options, Progress};

/// Nodes after the training nodes that the public split validates on.
const VALID_NODES: usize = 500;

/// Imports the Planetoid set whose files begin with `source`, such as `data/ind.cora`, into a dataset at `target`.
///
/// The graph becomes undirected, without self-loops and duplicates, whatever the options say, as the published lists are
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
    let files = Files { prefix: source };
    let options = Options { symmetrise: true, drop_self_loops: true, drop_duplicates: true, ..options.clone() };
    progress.stage("read pickles", Some(7));
    let read = |ending: &str| {
        let bytes = files.read(ending);
        progress.advance(1);
        bytes
    };
    let (train_labels, all_labels, test_labels) = (read("y")?, read("ally")?, read("ty")?);
    let train_labels = files.labels("y", &train_labels)?;
    let all_labels = files.labels("ally", &all_labels)?;
    let test_labels = files.labels("ty", &test_labels)?;
    let (all, test) = (files.matrix("allx", &read("allx")?)?, files.matrix("tx", &read("tx")?)?);
    let graph_path = files.path("graph");
    let graph_bytes = read("graph")?;
    let graph = pickle::read(&graph_path, &graph_bytes)?;
    let test_index = files.test_index(&read("test.index")?)?;
    let layout = Layout::new(&files, &all, &test, &all_labels, &test_labels, &test_index)?;
    if train_labels.len() + VALID_NODES > all.num_rows {
        let what = format!("{} training and {VALID_NODES} validation nodes of {}", train_labels.len(), all.num_rows);
        return files.misfit("y", what);
    }

    let name = source.extension().unwrap_or_default().to_string_lossy().into_owned();
    let options = Options { name: options.name.clone().or(Some(name).filter(|n| !n.is_empty())), ..options };
    let mut ingest = Ingest::new(source, target, &options, progress)?;
    push_edges(&mut ingest, &graph, layout.num_nodes)?;
    let mut sink = ingest.features(&files.path("allx"), all.num_cols, Dtype::F32)?;
    sink.push_rows(layout.num_nodes, |node, out| match layout.row(node) {
        Row::All(row) => all.dense_row(row, out),
        Row::Test(row) => test.dense_row(row, out),
        Row::Gap => out.fill(0.0),
    })?;
    sink.finish()?;
    let labels: Vec<i32> = (0..layout.num_nodes)
        .map(|v| match layout.row(v) {
            Row::All(row) => all_labels[row],
            Row::Test(row) => test_labels[row],
            Row::Gap => -1,
        })
        .collect();
    ingest.labels(&files.path("ally"), &labels, None)?;
    let nodes: Vec<u32> = (0..(train_labels.len() + VALID_NODES) as u32).collect();
    let (train, valid) = nodes.split_at(train_labels.len());
    let mut test_nodes = test_index;
    test_nodes.sort_unstable();
    ingest.splits(&files.path("test.index"), train, valid, &test_nodes)?;
    ingest.provenance("format", "planetoid");
    ingest.provenance("gaps", layout.gaps());
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

/// The file and row of the features and label of each node.
struct Layout {
    num_nodes: usize,
    /// Nodes of `.allx`: the first ones.
    first: usize,
    /// Row of `.tx` for the nodes after those; `None` in a gap.
    test_rows: Vec<Option<usize>>,
}

enum Row {
    All(usize),
    Test(usize),
    Gap,
}

impl Layout {
    fn new(
        files: &Files<'_>,
        all: &SparseRows,
        test: &SparseRows,
        all_labels: &[i32],
        test_labels: &[i32],
        test_index: &[u32],
    ) -> Result<Self> {
        let first = all.num_rows;
        if first != all_labels.len() {
            let what = format!("{} label rows for {first} feature rows in .allx", all_labels.len());
            return files.misfit("ally", what);
        }
        let (rows, labels, nodes) = (test.num_rows, test_labels.len(), test_index.len());
        if rows != labels || rows != nodes {
            return files.misfit("tx", format!("{rows} feature rows, {labels} label rows, {nodes} test nodes"));
        }
        if all.num_cols != test.num_cols {
            return files.misfit("tx", format!("{} features, but .allx has {}", test.num_cols, all.num_cols));
        }
        let misplaced = |what: String| files.misfit("test.index", what);
        let end = test_index.iter().max().map_or(first, |&v| v as usize + 1);
        // The published gaps are a few nodes; a number far outside would only make a huge empty dataset.
        if end > first + 2 * rows {
            return misplaced(format!("test node {} of about {} nodes", end - 1, first + rows));
        }
        if let Some(&begin) = test_index.iter().min().filter(|&&v| v as usize != first) {
            return misplaced(format!("the test nodes begin at {begin}, those of .allx end at {first}"));
        }
        let mut test_rows = vec![None; end - first];
        for (row, &v) in test_index.iter().enumerate() {
            if test_rows[v as usize - first].replace(row).is_some() {
                return misplaced(format!("test node {v} is listed twice"));
            }
        }
        Ok(Self { num_nodes: first + test_rows.len(), first, test_rows })
    }

    fn row(&self, node: usize) -> Row {
        match node.checked_sub(self.first) {
            None => Row::All(node),
            Some(i) => self.test_rows[i].map_or(Row::Gap, Row::Test),
        }
    }

    fn gaps(&self) -> usize {
        self.test_rows.iter().filter(|row| row.is_none()).count()
    }
}

/// The files of a set, by ending.
struct Files<'a> {
    prefix: &'a Path,
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
        fs::read(&path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                let cure = "name the files' common beginning, such as data/ind.cora";
                Error::invalid(&path, Position::File, "there is no such file", cure)
            }
            _ => Error::io(&path, e),
        })
    }

    fn matrix(&self, ending: &str, bytes: &[u8]) -> Result<SparseRows> {
        let path = self.path(ending);
        let pickle = pickle::read(&path, bytes)?;
        pickle.csr(pickle.root, "the feature matrix")
    }

    /// Class of each row of a one-hot matrix; -1 for a row of zeros.
    fn labels(&self, ending: &str, bytes: &[u8]) -> Result<Vec<i32>> {
        let path = self.path(ending);
        let pickle = pickle::read(&path, bytes)?;
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

    fn test_index(&self, bytes: &[u8]) -> Result<Vec<u32>> {
        let path = self.path("test.index");
        let text = String::from_utf8_lossy(bytes);
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
