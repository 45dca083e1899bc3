//! The stream of edges into a dataset.

use std::path::Path;

use morphgl_graph_store::Result;
use morphgl_ingest::{CscBuilder, DuplicateWeights, EdgeOptions};

use super::unlisted;
use crate::Ingest;
use crate::files::invalid;
use crate::tabular::lists::{counted, were};

/// Takes edges in any order, sorts them within the memory budget and writes the graph.
///
/// Row `v` of the dataset lists the sources of the edges into `v` in ascending order; edges between the same nodes
/// stay in the order they were pushed in, the reverse of an edge right after it.
#[derive(Debug)]
pub struct EdgeSink<'s, 'a> {
    pub(crate) ingest: &'s mut Ingest<'a>,
    pub(crate) csc: CscBuilder,
    num_nodes: Option<u64>,
}

impl<'a> Ingest<'a> {
    /// Opens the stream of edges, once. `source` is the file that errors name; `num_nodes` is the highest id plus one when
    /// `None`; with `weighted`, every push has weights.
    ///
    /// # Errors
    ///
    /// More nodes than ids of 32 bits allow, or a dataset far larger than its source.
    pub fn edges<'s>(&'s mut self, source: &Path, num_nodes: Option<u64>, weighted: bool) -> Result<EdgeSink<'s, 'a>> {
        let options = self.options();
        if let Some(num_nodes) = num_nodes {
            self.check_size(num_nodes)?;
        }
        // The ids that are left out are sorted meanwhile, and rows of features are read by every thread.
        let unlisted = if self.drops_unknown_nodes() { options.memory / unlisted::SHARE } else { 0 };
        let others = unlisted + if self.numbers_edges { options.memory / 2 } else { 0 };
        let edges = EdgeOptions {
            num_nodes,
            weighted,
            numbered: self.numbers_edges,
            drop_weights: options.drop_weights,
            symmetrise: options.symmetrise,
            reverse: options.reverse,
            drop_self_loops: options.drop_self_loops,
            drop_duplicates: options.drop_duplicates,
            duplicate_weights: options.duplicate_weights,
            add_self_loops: options.add_self_loops,
            memory: options.memory - others,
        };
        let csc = CscBuilder::new(source, self.dir().join("edges.spill"), edges)?;
        Ok(EdgeSink { ingest: self, csc, num_nodes })
    }
}

impl EdgeSink<'_, '_> {
    /// Appends edges `sources[i]` → `targets[i]`; see [`CscBuilder::push`].
    ///
    /// # Errors
    ///
    /// A node that does not exist, a weight that is negative or not finite, an IO error.
    ///
    /// # Panics
    ///
    /// When the slices differ in length, or weights are present or missing other than the stream was opened.
    pub fn push(&mut self, sources: &[u32], targets: &[u32], weights: Option<&[f32]>) -> Result<()> {
        self.csc.push(sources, targets, weights)
    }

    /// Number of edges pushed so far.
    pub fn num_edges(&self) -> u64 {
        self.csc.num_edges()
    }

    /// Sorts and writes the graph; returns its number of nodes.
    ///
    /// # Errors
    ///
    /// No edge and no number of nodes; an IO error.
    pub fn finish(self) -> Result<u64> {
        let Self { ingest, csc, num_nodes } = self;
        let known = csc.highest().map_or(0, |highest| u64::from(highest) + 1).max(ingest.min_nodes);
        let Some(num_nodes) = num_nodes.or((known > 0).then_some(known)) else {
            return invalid(csc.source(), "there is no edge", "check that this is the right file and format");
        };
        if num_nodes == 0 {
            return invalid(csc.source(), "there is no edge", "check that this is the right file and format");
        }
        ingest.check_size(num_nodes)?;
        let num_edges = csc.num_edges();
        ingest.pushed_edges = num_edges;
        if num_edges == 0 {
            ingest.note("there is no edge");
        }
        if let Some(announced) =
            ingest.announced_edges.filter(|&announced| announced != num_edges + ingest.left_out_edges)
        {
            ingest.note(format!(
                "{}, but the header says {announced}: the file may be cut short",
                counted(num_edges, "edge")
            ));
        }
        let progress = ingest.progress();
        progress.stage("sort", Some(csc.pending()));
        let dropped = csc.finish(num_nodes, &mut ingest.writer, |edges| progress.advance(edges))?;
        if dropped.self_loops > 0 {
            ingest.note(format!("{} dropped", were(dropped.self_loops, "self-loop")));
        }
        if dropped.duplicates > 0 {
            let reverse = if ingest.options().symmetrise { ", both directions counted" } else { "" };
            let adds = ingest.options().duplicate_weights == DuplicateWeights::Add;
            let how = if adds { "merged, their weights added" } else { "dropped" };
            let rows = if ingest.numbers_edges { ": the first keeps its features" } else { "" };
            ingest.note(format!("{} {how}{reverse}{rows}", were(dropped.duplicates, "duplicate edge")));
        }
        ingest.num_nodes = Some(num_nodes);
        Ok(num_nodes)
    }
}
