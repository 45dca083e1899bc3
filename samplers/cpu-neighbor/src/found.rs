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
    /// Whether the values beside the local ids are the offsets, and not only their lower halves.
    offsets_fit: bool,
}

impl Found {
    /// For mini-batches of `topology`, whose offsets are kept beside the local ids where the graph has few enough nodes.
    pub(crate) fn new(topology: &Topology) -> Self {
        // The lower halves suffice for degrees, which are below 2^32.
        let relabel = Relabel::for_graph(topology.num_nodes(), |node| topology.indptr()[node as usize] as u32);
        let offsets_fit = u32::try_from(topology.num_edges()).is_ok();
        Self { relabel, spans: Vec::new(), seeds: Vec::new(), offsets_fit }
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

    /// The offsets of the nodes found, where they are known from the table of local ids.
    fn offsets(&self) -> Option<&[[u32; 2]]> {
        self.relabel.values().filter(|_| self.offsets_fit)
    }

    /// Asks for the offsets of the nodes from `first` on, where they are not known.
    pub(crate) fn ask(&self, topology: &Topology, first: usize) {
        if self.offsets().is_some() {
            return;
        }
        let indptr: &[u64] = topology.indptr();
        self.relabel.nodes()[first..].iter().for_each(|&node| prefetch_early(indptr, node as usize));
    }

    /// Finds the spans of the first `until` nodes, which were asked for a while ago.
    pub(crate) fn locate(&mut self, topology: &Topology, until: usize) {
        let new = self.spans.len()..until;
        let nodes = &self.relabel.nodes()[new.clone()];
        match self.relabel.values().filter(|_| self.offsets_fit) {
            Some(offsets) => {
                let span =
                    |(&node, &[start, end]): (&u32, &[u32; 2])| Span { start: start.into(), degree: end - start, node };
                self.spans.extend(nodes.iter().zip(&offsets[new]).map(span));
            }
            None => self.spans.extend(nodes.iter().map(|&node| span(topology.indptr(), node))),
        }
    }

    /// Finds the spans of all nodes, on the threads of the current pool.
    pub(crate) fn par_locate(&mut self, topology: &Topology) {
        if self.offsets().is_some() {
            return self.locate(topology, self.len());
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

    /// The local ids, and the spans apart from them: threads read these while another one finds new nodes.
    pub(crate) fn parts(&mut self) -> (&mut Relabel, &[Span]) {
        (&mut self.relabel, &self.spans)
    }

    /// Fills `degrees` with the in-degrees of all nodes.
    pub(crate) fn degrees(&self, degrees: &mut Vec<f32>) {
        degrees.clear();
        match self.relabel.values() {
            Some(offsets) => degrees.extend(offsets.iter().map(|[start, end]| end.wrapping_sub(*start) as f32)),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A graph whose offsets do not fit beside the local ids, and one that does not even keep degrees there, give the same.
    #[test]
    fn spans_and_degrees_do_not_depend_on_what_the_table_holds() {
        let topology = Topology::new(vec![0u64, 2, 2, 5, 6], vec![1u32, 3, 0, 1, 3, 2], None).expect("a graph");
        let mut fit = Found::new(&topology);
        let mut halves = Found { offsets_fit: false, ..Found::new(&topology) };
        let mut none = Found { relabel: Relabel::default(), ..Found::new(&topology) };
        let [fit, halves, none] = [&mut fit, &mut halves, &mut none].map(|found| {
            found.start(Vec::new(), &[3, 0, 2], &topology);
            found.relabel.locals(&mut [1, 3]);
            found.par_locate(&topology);
            let mut degrees = Vec::new();
            found.degrees(&mut degrees);
            let spans = found.spans().iter().map(|span| (span.start, span.degree, span.node)).collect::<Vec<_>>();
            (spans, degrees)
        });
        assert_eq!(fit.0, [(5, 1, 3), (0, 2, 0), (2, 3, 2), (2, 0, 1)]);
        assert_eq!(fit.1, [1.0, 2.0, 3.0, 0.0]);
        assert_eq!((&halves, &none), (&fit, &fit));
    }
}
