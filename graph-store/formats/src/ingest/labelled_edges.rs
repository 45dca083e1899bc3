//! Edges whose class, labels or values are to be predicted: columns of the edges' file, or of files of pairs.

use std::path::{Path, PathBuf};

use morphgl_graph_store::{EdgeSplits, Result};
use morphgl_ingest::EdgeShares;

use super::labelled_rows::LabelledRows;
use super::links;
use super::nodes::node_index::NodeIndex;
use crate::tabular::lists::counted;
use crate::{Ingest, LinkFiles};

/// Labelled edges that are read.
pub(super) struct LabelledEdges {
    ends: Vec<[u32; 2]>,
    labels: Option<Vec<i32>>,
    /// Values per edge, and the values, edge after edge.
    values: Option<(usize, Vec<f32>)>,
}

impl LabelledEdges {
    /// Whether an edge has a label or a known value.
    fn is_known(&self, edge: usize) -> bool {
        let value =
            |(dim, values): &(usize, Vec<f32>)| values[edge * dim..][..*dim].iter().any(|value| !value.is_nan());
        self.labels.as_ref().is_some_and(|labels| labels[edge] >= 0) || self.values.as_ref().is_some_and(value)
    }
}

impl Ingest<'_> {
    /// Reads the labelled edges: those to train on of a file of their own, or all of the edges' file; those to validate and test on
    /// of their files, unless they are to be drawn. They are written at once, or when they are drawn.
    pub(super) fn read_labelled_edges(&mut self, files: &LinkFiles, index: &NodeIndex) -> Result<()> {
        let source = self.source.clone();
        let drawn = self.options().edge_split.is_some();
        // The options refuse files of what is drawn.
        let given: [Option<&PathBuf>; 3] = [&files.train, &files.valid, &files.test].map(Option::as_ref);
        let mut rows = LabelledRows::default();
        let (mut ends, mut file_ends) = (Vec::<[u32; 2]>::new(), [0; 3]);
        for (split, end) in file_ends.iter_mut().enumerate() {
            if let Some(path) = given[split].or((split == 0).then_some(&source)) {
                let nodes = links::read(self, path, index, Some(&mut rows))?;
                // Edges of the source are those of the graph.
                let swaps = self.options().reverse && given[split].is_none();
                let pairs = nodes.as_chunks().0.iter();
                ends.extend(pairs.map(|&[a, b]: &[u32; 2]| if swaps { [b, a] } else { [a, b] }));
            }
            *end = ends.len();
        }
        let LabelledRows { labels, targets } = rows;
        let labels = labels.map(|labels| labels.finish(self)).transpose()?;
        let values = targets.map(|targets| {
            let (dim, values, names) = targets.into_parts();
            names.into_iter().for_each(|names| self.provenance("edge_target_names", names));
            (dim, values)
        });
        if let Some(labels) = &labels {
            self.note_unused_class(&source, labels);
        }
        let edges = LabelledEdges { ends, labels, values };
        if drawn {
            self.labelled_edges = Some(edges);
            return Ok(());
        }
        // A file has the edges of a split.
        self.write_labelled_edges(&edges, |edge| file_ends.iter().position(|end| edge < *end).unwrap_or(3))
    }

    fn note_unused_class(&mut self, source: &Path, labels: &[i32]) {
        let used = |class: i32| labels.contains(&class);
        if !used(0) && labels.iter().any(|&label| label > 0) {
            let file = crate::files::file_name(source);
            self.note(format!("{file}: no edge is of class 0; if labels count from 1, take 1 off them"));
        }
    }

    /// Writes the labelled edges that were read into the shares that the edges of the graph were drawn into.
    pub(super) fn divide_labelled_edges(&mut self, shares: &EdgeShares) -> Result<()> {
        let Some(edges) = self.labelled_edges.take() else { return Ok(()) };
        for array in &EdgeSplits::ARRAYS[1..3] {
            if let Some(drawn) = self.writer.take_back(array)? {
                std::fs::remove_file(&drawn).map_err(|e| morphgl_graph_store::Error::io(&drawn, e))?;
            }
        }
        self.write_labelled_edges(&edges, |edge| shares.of(edges.ends[edge]))
    }

    /// Writes those labelled edges that have a label or a known value, and are edges of the graph but for the splits; `split` is the
    /// split of each, 3 for none.
    fn write_labelled_edges(&mut self, edges: &LabelledEdges, split: impl Fn(usize) -> usize) -> Result<()> {
        let LabelledEdges { ends, labels, values } = edges;
        let drops_loops = self.options().drop_self_loops;
        let (mut of_split, mut unknown) = ([const { Vec::new() }; 3], 0);
        for (edge, &[a, b]) in ends.iter().enumerate() {
            if a == u32::MAX || b == u32::MAX || drops_loops && a == b {
                continue;
            }
            if !edges.is_known(edge) {
                unknown += 1;
            } else if let Some(edges) = of_split.get_mut(split(edge)) {
                edges.push(edge);
            }
        }
        if unknown > 0 {
            self.note(format!("{} without a label left out of those to predict", counted(unknown, "edge")));
        }
        for (i, edges) in of_split.iter().enumerate().filter(|(i, edges)| *i == 0 || !edges.is_empty()) {
            let [label_array, value_array] = EdgeSplits::TARGET_ARRAYS[i];
            let nodes: Vec<u32> = edges.iter().flat_map(|&edge| ends[edge]).collect();
            self.writer.array(EdgeSplits::ARRAYS[i], &nodes, Some(2))?;
            self.links.push(EdgeSplits::ARRAYS[i]);
            if let Some(labels) = labels {
                let labels: Vec<i32> = edges.iter().map(|&edge| labels[edge]).collect();
                self.writer.array(label_array, &labels, None)?;
            }
            if let Some((dim, values)) = values {
                let values: Vec<f32> =
                    edges.iter().flat_map(|&edge| &values[edge * dim..(edge + 1) * dim]).copied().collect();
                self.writer.array(value_array, &values, Some(*dim))?;
            }
        }
        let [train, valid, test] = of_split.map(|edges| edges.len() as u64);
        let train = counted(train, "labelled edge");
        self.note(format!("{train} to train on, {valid} to validate on, {test} to test on"));
        Ok(())
    }
}
