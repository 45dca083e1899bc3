//! The nodes a mini-batch has found, and where their in-neighbours stand.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use morphgl_graph_store::Topology;
use morphgl_platform::{prefetch, prefetch_early};
use morphgl_sampler_core::{Relabel, make_room};
use rayon::prelude::*;

use crate::expand::Span;

/// Nodes a thread locates at a time, and how far ahead it asks for their offsets.
const TASK: usize = 1 << 12;
const AHEAD: usize = 16;

/// The nodes found so far, by local id.
#[derive(Debug)]
pub(crate) struct Found {
    relabel: Relabel,
    // Invariant: span `i` is that of node `i`, for the first `spans.len()` nodes.
    spans: Vec<Span>,
    // Invariant: where the table of local ids holds offsets, degree `i` is that of node `i`, for all nodes but the last
    // `offsets.len()` ones, whose offsets and next nodes' offsets are these; else both are empty.
    degrees: Vec<f32>,
    offsets: Vec<[u32; 2]>,
    /// The seeds, while they become the first local ids.
    seeds: Vec<u32>,
    /// Of a mini-batch before, of this worker or of another.
    expected: Arc<Expected>,
    /// Whether the offsets beside the local ids are whole, and not only their lower halves.
    offsets_fit: bool,
}

/// How many nodes and spans a mini-batch has, about: lists that have room for them from the start are never copied, nor
/// twice as long as they have to be.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    nodes: AtomicUsize,
    spans: AtomicUsize,
}

impl Found {
    /// For mini-batches of `topology`, whose offsets are kept beside the local ids where the graph has few enough nodes.
    pub(crate) fn new(topology: &Topology, expected: Arc<Expected>) -> Self {
        // The lower halves suffice for degrees, which are below 2^32.
        let relabel = Relabel::for_graph(topology.num_nodes(), |node| topology.indptr()[node as usize] as u32);
        let offsets_fit = u32::try_from(topology.num_edges()).is_ok();
        let (spans, degrees, offsets, seeds) = Default::default();
        Self { relabel, spans, degrees, offsets, seeds, expected, offsets_fit }
    }

    /// Starts a mini-batch; `nodes` and `degrees` become the lists of its nodes and their degrees, their content is dropped.
    pub(crate) fn start(&mut self, mut nodes: Vec<u32>, degrees: Vec<f32>, seeds: &[u32], topology: &Topology) {
        let expected = self.expected.nodes.load(Ordering::Relaxed);
        make_room(&mut nodes, expected);
        self.relabel.start(nodes);
        self.degrees = degrees;
        make_room(&mut self.degrees, expected);
        self.degrees.clear();
        make_room(&mut self.spans, self.expected.spans.load(Ordering::Relaxed));
        self.spans.clear();
        // Of a mini-batch before that panicked.
        self.offsets.clear();
        let mut named = std::mem::take(&mut self.seeds);
        named.clear();
        named.extend_from_slice(seeds);
        self.name(named.len(), &mut named, topology, true);
        self.locate(topology);
        self.seeds = named;
    }

    /// Number of nodes found.
    pub(crate) fn len(&self) -> usize {
        self.relabel.nodes().len()
    }

    /// Spans of the nodes located.
    pub(crate) fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Replaces the first `count` of `nodes` by local ids; the others are to come next. Where spans of nodes found are wanted,
    /// those found by the call before are there then.
    pub(crate) fn name(&mut self, count: usize, nodes: &mut [u32], topology: &Topology, wanted: bool) {
        let known = self.len();
        self.relabel.locals_of_first(count, nodes, &mut self.offsets);
        self.settle(wanted);
        if wanted && !self.knows_spans() {
            let indptr: &[u64] = topology.indptr();
            self.relabel.nodes()[known..].iter().for_each(|&node| prefetch_early(indptr, node as usize));
            self.locate_until(topology, known);
        }
    }

    /// Finds the spans of all nodes found, of which the last ones were asked for a while ago.
    pub(crate) fn locate(&mut self, topology: &Topology) {
        self.locate_until(topology, self.len());
    }

    fn locate_until(&mut self, topology: &Topology, until: usize) {
        let located = self.spans.len();
        self.spans.extend(self.relabel.nodes()[located..until].iter().map(|&node| span(topology.indptr(), node)));
    }

    /// The local ids with the list that takes what the table tells of new nodes, and the spans apart from them: threads
    /// read these while another one finds new nodes. [`Found::par_locate`] has to follow.
    pub(crate) fn parts(&mut self) -> (&mut Relabel, &mut Vec<[u32; 2]>, &[Span]) {
        (&mut self.relabel, &mut self.offsets, &self.spans)
    }

    /// Takes what the table told of new nodes, and where spans are wanted, finds those of all nodes on the threads of the
    /// current pool.
    pub(crate) fn par_locate(&mut self, topology: &Topology, wanted: bool) {
        self.settle(wanted);
        if !wanted || self.knows_spans() {
            return;
        }
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

    /// Makes degrees, and where they are wanted spans, of what the table told of new nodes.
    fn settle(&mut self, wanted: bool) {
        self.degrees.extend(self.offsets.iter().map(|[start, end]| end.wrapping_sub(*start) as f32));
        if wanted && self.knows_spans() {
            let nodes = &self.relabel.nodes()[self.spans.len()..];
            let span =
                |(&node, &[start, end]): (&u32, &[u32; 2])| Span { start: start.into(), degree: end - start, node };
            self.spans.extend(nodes.iter().zip(&self.offsets).map(span));
        }
        self.offsets.clear();
    }

    /// Whether the table of local ids tells the spans.
    fn knows_spans(&self) -> bool {
        self.relabel.holds_values() && self.offsets_fit
    }

    /// Whether the degrees are known without the spans.
    pub(crate) fn knows_degrees(&self) -> bool {
        self.relabel.holds_values()
    }

    /// Ends the mini-batch; gives its nodes and their in-degrees.
    pub(crate) fn finish(&mut self) -> (Vec<u32>, Vec<f32>) {
        let mut degrees = std::mem::take(&mut self.degrees);
        self.expected.nodes.store(self.len(), Ordering::Relaxed);
        self.expected.spans.store(self.spans.len(), Ordering::Relaxed);
        if !self.knows_degrees() {
            degrees.extend(self.spans.iter().map(|span| span.degree as f32));
        }
        (self.relabel.finish(), degrees)
    }
}

#[inline(always)]
fn span(indptr: &[u64], node: u32) -> Span {
    let (start, end) = (indptr[node as usize], indptr[node as usize + 1]);
    Span { start, degree: (end - start) as u32, node }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A graph whose offsets do not fit beside the local ids, and one that does not even keep degrees there, give the same.
    #[test]
    fn spans_and_degrees_do_not_depend_on_what_the_table_holds() {
        let topology = Topology::new(vec![0u64, 2, 2, 5, 6], vec![1u32, 3, 0, 1, 3, 2], None).expect("a graph");
        let mut fit = Found::new(&topology, Arc::default());
        let mut halves = Found { offsets_fit: false, ..Found::new(&topology, Arc::default()) };
        let mut none = Found { relabel: Relabel::default(), ..Found::new(&topology, Arc::default()) };
        let [fit, halves, none] = [&mut fit, &mut halves, &mut none].map(|found| {
            found.start(Vec::new(), Vec::new(), &[3, 0, 2], &topology);
            let (relabel, offsets, _) = found.parts();
            relabel.locals_of_first(2, &mut [1, 3], offsets);
            found.par_locate(&topology, true);
            let spans = found.spans().iter().map(|span| (span.start, span.degree, span.node)).collect::<Vec<_>>();
            (spans, found.finish())
        });
        assert_eq!(fit.0, [(5, 1, 3), (0, 2, 0), (2, 3, 2), (2, 0, 1)]);
        assert_eq!(fit.1, (vec![3, 0, 2, 1], vec![1.0, 2.0, 3.0, 0.0]));
        assert_eq!((&halves, &none), (&fit, &fit));
    }

    /// A mini-batch that panics, here over a neighbour beyond the graph, leaves nothing to the next one.
    #[test]
    fn a_mini_batch_after_a_panic_is_as_any_other() {
        let topology = Topology::new(vec![0u64, 2, 2, 5, 6], vec![1u32, 3, 0, 1, 3, 2], None).expect("a graph");
        let mut found = Found::new(&topology, Arc::default());
        found.start(Vec::new(), Vec::new(), &[3, 0], &topology);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            found.name(3, &mut [1, 2, 4], &topology, true);
        }));
        assert!(outcome.is_err(), "the graph has no node 4");
        found.start(Vec::new(), Vec::new(), &[2, 1], &topology);
        found.name(2, &mut [3, 2], &topology, true);
        assert_eq!(found.spans().iter().map(|span| span.node).collect::<Vec<_>>(), [2, 1, 3]);
        assert_eq!(found.finish(), (vec![2, 1, 3], vec![3.0, 0.0, 1.0]));
    }
}
