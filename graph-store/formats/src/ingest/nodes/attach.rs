//! Assigns the rows of node files to nodes, and writes features, labels and splits.

use std::path::Path;

use morphgl_graph_store::{Dtype, Error, Load, Position, Result, read_npy};

use super::{Features, NO_SPLIT, NodeTable, Places};
use crate::Ingest;
use crate::ingest::features::{self, BATCH_VALUES};
use crate::table::open_array;

/// Which node each row of a file belongs to.
enum Rows {
    /// Row `i` belongs to node `i`.
    InOrder,
    /// Row `i` belongs to the `i`-th of these nodes; `u32::MAX` for none.
    Nodes(Vec<u32>),
}

impl Ingest<'_> {
    /// Adds the content of the node files to the graph, whose edges are written.
    pub(crate) fn attach_nodes(&mut self, num_nodes: u64) -> Result<()> {
        self.read_nodes(false)?;
        let tables = self.nodes.take().unwrap_or_default();
        if tables.is_empty() {
            return Ok(());
        }
        let places = Places::of(self, num_nodes)?;
        let mut splits = None;
        for table in tables {
            let NodeTable { path, rows, keys, labels, splits: parts, features } = table;
            let to = match &keys {
                Some(keys) => Rows::Nodes(places.nodes(&path, keys, num_nodes)?),
                None => self.rows_in_order(&path, rows, &places, num_nodes)?,
            };
            if let Some(features) = features {
                self.attach_features(&path, &features, &to, num_nodes)?;
            }
            if let Some(labels) = labels {
                self.attach_labels(&path, &labels, &to, num_nodes)?;
            }
            if let Some(parts) = parts {
                let (_, of) = splits.get_or_insert_with(|| (path.clone(), vec![Vec::new(); 3]));
                for (row, part) in parts.into_iter().enumerate().filter(|&(_, part)| part != NO_SPLIT) {
                    let node = to.node(row);
                    of[usize::from(part)].extend(node);
                }
            }
        }
        if let Some((path, mut parts)) = splits {
            parts.iter_mut().for_each(|nodes| nodes.sort_unstable());
            self.splits(&path, &parts[0], &parts[1], &parts[2])?;
        }
        Ok(())
    }

    /// Matches rows without ids to nodes: in the order of the nodes' ids where there are as many rows as nodes, else row `i`
    /// to the node with id `i`.
    fn rows_in_order(&mut self, path: &Path, rows: usize, places: &Places, num_nodes: u64) -> Result<Rows> {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if rows as u64 == num_nodes {
            if !matches!(places, Places::Same(_)) {
                self.note(format!("{file}: row i is the node of the i-th lowest id"));
            }
            return Ok(Rows::InOrder);
        }
        if places.highest().is_none_or(|highest| highest >= rows as u64) || matches!(places, Places::Same(_)) {
            let what = format!("{rows} rows, but the graph has {num_nodes} nodes");
            let cure = "give every node its row, or add a column of ids";
            return Err(Error::invalid(path, Position::File, what, cure));
        }
        let nodes: Vec<u32> = (0..rows as u64).map(|id| places.node(id).unwrap_or(u32::MAX)).collect();
        let without = nodes.iter().filter(|&&node| node == u32::MAX).count();
        self.note(format!("{file}: row i is the node of id i; {without} rows of ids without an edge were left out"));
        Ok(Rows::Nodes(nodes))
    }

    fn attach_labels(&mut self, path: &Path, labels: &[i32], to: &Rows, num_nodes: u64) -> Result<()> {
        let mut of = vec![-1; num_nodes as usize];
        for (row, &label) in labels.iter().enumerate() {
            if let Some(node) = to.node(row) {
                of[node as usize] = label;
            }
        }
        let without = of.iter().filter(|&&label| label == -1).count();
        if without > 0 {
            self.note(format!("{without} of {num_nodes} nodes have no label"));
        }
        self.labels(path, &of, None)
    }

    fn attach_features(&mut self, path: &Path, features: &Features, to: &Rows, num_nodes: u64) -> Result<()> {
        let (rows, dim) = match (features, to) {
            (Features::Array(path), Rows::InOrder) => return features::push_table(self, open_array(path)?),
            (Features::Array(path), _) => self.spool(path)?,
            (Features::Rows(rows, dim), _) => (rows.clone(), *dim),
        };
        let (values, _) = read_npy::<f32>(&rows, Load::Mmap)?;
        // The row of each node.
        let mut row_of = vec![u32::MAX; num_nodes as usize];
        for row in 0..values.len() / dim.max(1) {
            if let Some(node) = to.node(row) {
                row_of[node as usize] = row as u32;
            }
        }
        let missing = row_of.iter().filter(|&&row| row == u32::MAX).count();
        if missing > 0 {
            let node = row_of.iter().position(|&row| row == u32::MAX).unwrap_or(0);
            let what =
                format!("{missing} of {num_nodes} nodes have no features; the first one is node {node} of the dataset");
            return Err(Error::invalid(path, Position::File, what, "give every node its row"));
        }
        self.progress().stage("features", Some(num_nodes));
        let progress = self.progress();
        let mut sink = self.features(path, dim, Dtype::F32)?;
        let mut block = Vec::new();
        for rows in row_of.chunks((BATCH_VALUES / dim.max(1)).max(1)) {
            block.clear();
            rows.iter().for_each(|&row| block.extend_from_slice(&values[row as usize * dim..][..dim]));
            sink.push(&block)?;
            progress.advance(rows.len() as u64);
        }
        sink.finish()?;
        drop(values);
        std::fs::remove_file(&rows).map_err(|e| Error::io(&rows, e))
    }

    /// Copies an array as f32 into a temporary file inside the unfinished dataset, to read its rows in any order.
    fn spool(&self, path: &Path) -> Result<(std::path::PathBuf, usize)> {
        let mut array = open_array(path)?;
        let dim = features::feature_dim(&array)?;
        let to = self.dir().join("features.rows.npy");
        let mut out = morphgl_graph_store::NpyWriter::<f32>::create(&to)?;
        let mut values = Vec::new();
        while array.remaining() > 0 {
            values.clear();
            array.floats(BATCH_VALUES as u64, &mut values)?;
            out.write(&values)?;
        }
        out.finish(Some(dim))?;
        Ok((to, dim))
    }
}

impl Rows {
    fn node(&self, row: usize) -> Option<u32> {
        match self {
            Self::InOrder => Some(row as u32),
            Self::Nodes(nodes) => Some(nodes[row]).filter(|&node| node != u32::MAX),
        }
    }
}
