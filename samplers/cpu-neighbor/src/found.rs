//! The nodes a mini-batch has found, and where their in-neighbours stand.

use morphgl_graph_store::{Topology, prefetch, prefetch_early};
use morphgl_sampler_core::Relabel;
use rayon::prelude::*;

use crate::expand::Span;

/// Nodes a thread locates at a time, and how far ahead it asks for their offsets.
const TASK: usize = 1 << 12;
const AHEAD: usize = 16;

/// The nodes found so far, by local id.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) relabel: Relabel,
    // Invariant: span `i` is that of node `i`, for the first `spans.len()` nodes.
    spans: Vec<Span>,
    /// The seeds, while they become the first local ids.
    seeds: Vec<u32>,
}

impl Found {
    /// For mini-batches of `topology`, whose degrees are kept beside the local ids where the graph is small enough.
    pub(crate) fn new(topology: &Topology) -> Self {
        let relabel = Relabel::for_graph(topology.num_nodes(), |node| topology.degree(node) as u32);
        Self { relabel, spans: Vec::new(), seeds: Vec::new() }
    }

    /// Starts a mini-batch; `buffer` becomes the list of its nodes.
    pub(crate) fn start(&mut self, buffer: Vec<u32>, seeds: &[u32], topology: &Topology) {
        self.relabel.start(buffer);
        self.seeds.clear();
        self.seeds.extend_from_slice(seeds);
        self.relabel.locals(&mut self.seeds);
        self.spans.clear();
        self.ask(topology, 0);
        self.locate(topology, self.len());
    }

    /// Number of nodes found.
    pub(crate) fn len(&self) -> usize {
        self.relabel.nodes().len()
    }

    /// Spans of the nodes located.
    pub(crate) fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Asks for the offsets of the nodes from `first` on.
    pub(crate) fn ask(&self, topology: &Topology, first: usize) {
        let indptr: &[u64] = topology.indptr();
        self.relabel.nodes()[first..].iter().for_each(|&node| prefetch_early(indptr, node as usize));
    }

    /// Finds the spans of the first `until` nodes, which were asked for a while ago.
    pub(crate) fn locate(&mut self, topology: &Topology, until: usize) {
        let new = &self.relabel.nodes()[self.spans.len()..until];
        self.spans.extend(new.iter().map(|&node| span(topology.indptr(), node)));
    }

    /// Finds the spans of all nodes, on the threads of the current pool.
    pub(crate) fn par_locate(&mut self, topology: &Topology) {
        let indptr: &[u64] = topology.indptr();
        let known = self.spans.len();
        self.spans.resize(self.len(), Span::default());
        let nodes = self.relabel.nodes()[known..].par_chunks(TASK);
        nodes.zip(self.spans[known..].par_chunks_mut(TASK)).for_each(|(nodes, spans)| {
            for (i, out) in spans.iter_mut().enumerate() {
                if let Some(&later) = nodes.get(i + AHEAD) {
                    prefetch(indptr, later as usize);
                }
                *out = span(indptr, nodes[i]);
            }
        });
    }

    /// The local ids, and the spans apart from them: threads read these while another one finds new nodes.
    pub(crate) fn parts(&mut self) -> (&mut Relabel, &[Span]) {
        (&mut self.relabel, &self.spans)
    }

    /// Fills `degrees` with the in-degrees of all nodes.
    pub(crate) fn degrees(&self, degrees: &mut Vec<f32>) {
        degrees.clear();
        match self.relabel.values() {
            Some(values) => degrees.extend(values.iter().map(|&degree| degree as f32)),
            None => degrees.extend(self.spans.iter().map(|span| span.degree as f32)),
        }
    }

    /// Whether the degrees are known without the spans.
    pub(crate) fn knows_degrees(&self) -> bool {
        self.relabel.values().is_some()
    }
}

#[inline(always)]
fn span(indptr: &[u64], node: u32) -> Span {
    let (start, end) = (indptr[node as usize], indptr[node as usize + 1]);
    Span { start, degree: (end - start) as u32, node }
}
