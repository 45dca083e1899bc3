//! Random walks from many nodes side by side.
//!
//! A step is two random reads, of a node's offsets and of one in-neighbour. The walks of a group of nodes take each step
//! together: one pass draws and prefetches the in-neighbours, the next reads them and prefetches their offsets.

use morphgl_graph_store::Topology;
use morphgl_platform::{SimdLevel, prefetch, simd_dispatch};
use morphgl_registry::WalkSettings;
use morphgl_sampler_core::{Excluded, NeighborCheck, RETRIES, Row, Stream, bounded};

use super::visits::Counter;

/// Walks of a group: enough to hide memory latency, few enough that their state stays in the first-level cache.
const GROUP: usize = 256;
/// The address of a walk that has ended.
const ENDED: u64 = u64::MAX;
/// The node visited by a step that was not taken; a graph has fewer nodes.
const NOT_TAKEN: u32 = u32::MAX;
/// Retry blocks of each step.
const RETRY_BLOCKS: u32 = RETRIES / 4;

/// The graph that is walked, the check of neighbours in a mapped file, and the edges that are left out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Walked<'a> {
    pub(crate) topology: &'a Topology,
    pub(crate) check: Option<&'a NeighborCheck<'a>>,
    pub(crate) excluded: Option<&'a Excluded>,
}

/// Settings of the walks from each node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steps {
    walks: usize,
    length: usize,
    neighbors: usize,
    /// A walk ends before a step whose second word is below this.
    restart: u64,
}

impl Steps {
    pub(crate) fn new(settings: &WalkSettings) -> Self {
        Self {
            walks: settings.walks as usize,
            length: settings.length as usize,
            neighbors: settings.neighbors as usize,
            restart: (settings.restart * 2f64.powi(32)).round() as u64,
        }
    }
}

/// The most visited neighbours of some nodes, and the buffers of one thread.
#[derive(Debug, Default)]
pub(crate) struct Walks {
    /// Where each node's neighbours end in `neighbors`.
    pub(crate) ends: Vec<usize>,
    /// The neighbours, node after node.
    pub(crate) neighbors: Vec<u32>,
    /// Number of visits to each of `neighbors`.
    pub(crate) visits: Vec<f32>,
    /// Random words of each step: walk after walk, node after node.
    words: Vec<[u32; 4]>,
    /// The node of each walk, and where its next one is read.
    at: Vec<u32>,
    addresses: Vec<u64>,
    /// The node visited by each step, in the order of `words`.
    visited: Vec<u32>,
    counter: Counter,
}

simd_dispatch! {
    /// The words of a node's steps.
    fn draw(row: &Row, words: &mut [[u32; 4]]);
    avx512: blocks(row, words),
    avx2: blocks(row, words),
    portable: blocks(row, words),
}

#[inline(always)]
fn blocks(row: &Row, words: &mut [[u32; 4]]) {
    for (block, words) in words.chunks_mut(8).enumerate() {
        let drawn: [[u32; 4]; 8] = row.blocks(Stream::Walk, 8 * block as u32);
        words.copy_from_slice(&drawn[..words.len()]);
    }
}

impl Walks {
    /// No nodes.
    pub(crate) fn clear(&mut self) {
        self.ends.clear();
        self.neighbors.clear();
        self.visits.clear();
    }

    /// Walks from `nodes`; seed, mini-batch and hop of the draws are those of `row`.
    pub(crate) fn run(&mut self, graph: Walked<'_>, steps: Steps, row: &Row, nodes: &[u32]) {
        self.clear();
        for nodes in nodes.chunks((GROUP / steps.walks).max(1)) {
            self.walk(graph, steps, row, nodes);
            for (&node, visited) in nodes.iter().zip(self.visited.chunks(steps.walks * steps.length)) {
                for (neighbor, visits) in self.counter.most_visited(visited, [node, NOT_TAKEN], steps.neighbors) {
                    self.neighbors.push(neighbor);
                    self.visits.push(visits);
                }
                self.ends.push(self.neighbors.len());
            }
        }
    }

    /// Sets the nodes `visited` by all steps of the walks from `nodes`.
    fn walk(&mut self, graph: Walked<'_>, steps: Steps, row: &Row, nodes: &[u32]) {
        let Self { words, at, addresses, visited, .. } = self;
        let Walked { topology, check, excluded } = graph;
        let (indptr, indices): (&[u64], &[u32]) = (topology.indptr(), topology.indices());
        let (level, steps_of_node) = (SimdLevel::current(), steps.walks * steps.length);
        nodes.iter().for_each(|&node| prefetch(indptr, node as usize));
        words.resize(nodes.len() * steps_of_node, [0; 4]);
        for (&node, words) in nodes.iter().zip(words.chunks_mut(steps_of_node)) {
            draw(level, &Row { node: topology.draw_key(node), ..*row }, words);
        }
        visited.clear();
        visited.resize(words.len(), NOT_TAKEN);
        at.clear();
        at.extend(nodes.iter().flat_map(|&node| std::iter::repeat_n(node, steps.walks)));
        addresses.clear();
        addresses.resize(at.len(), 0);
        for step in 0..steps.length {
            for (walk, (at, address)) in at.iter().zip(&mut *addresses).enumerate() {
                if *address == ENDED {
                    continue;
                }
                let [word, end, ..] = words[walk * steps.length + step];
                let (start, stop) = (indptr[*at as usize], indptr[*at as usize + 1]);
                let left = excluded.and_then(|excluded| excluded.get(*at));
                let degree = left.map_or((stop - start) as u32, |left| left.degree);
                if degree == 0 || (step > 0 && u64::from(end) < steps.restart) {
                    *address = ENDED;
                    continue;
                }
                let number = (walk % steps.walks * steps.length + step) as u32;
                let retry = |r: u32| {
                    let row = Row { node: topology.draw_key(nodes[walk / steps.walks]), ..*row };
                    row.block(Stream::WalkRetry, RETRY_BLOCKS * number + r / 4)[r as usize % 4]
                };
                let position = bounded(degree, word, retry);
                *address = start + u64::from(left.map_or(position, |left| left.position(position)));
                prefetch(indices, *address as usize);
            }
            for (walk, (at, address)) in at.iter_mut().zip(&*addresses).enumerate() {
                if *address != ENDED {
                    let neighbor = indices[*address as usize];
                    *at = check.map_or(neighbor, |check| check.node(neighbor));
                    visited[walk * steps.length + step] = *at;
                    prefetch(indptr, *at as usize);
                }
            }
        }
    }
}
