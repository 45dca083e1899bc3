//! Sampled subgraphs by node type and edge type, in the arrays of PyG's samplers.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use crossbeam::queue::ArrayQueue;
use morphgl_graph_store::Types;
use morphgl_registry::{Block, HostBatch};

use crate::buffer::{Buffer, Kind};

/// A mini-batch by types, its arrays in one allocation. A graph without types has one type of each.
#[derive(Debug, Default)]
pub(crate) struct Subgraph {
    values: Vec<i64>,
    nodes: Vec<NodePart>,
    edges: Vec<EdgePart>,
    /// Whether trees are disjoint.
    has_trees: bool,
    /// Scratch: type of each input node, and its local id among those of its type.
    types: Vec<u16>,
    local: Vec<u32>,
}

/// The nodes of a type.
#[derive(Debug, Default, Clone)]
struct NodePart {
    /// Ids of the nodes within their type, in the order of their hops.
    ids: Range<usize>,
    /// Index of the seed whose tree each node is in; empty unless trees are disjoint.
    trees: Range<usize>,
    /// Nodes that each hop found, the seeds first.
    hops: Vec<usize>,
}

/// The edges of a type.
#[derive(Debug, Default, Clone)]
struct EdgePart {
    /// Local ids of the sources, then of the targets, then the graph's number of each edge: three arrays of equal length.
    start: usize,
    len: usize,
    /// Edges of each hop, the seeds' own first; of an induced subgraph all in the first.
    hops: Vec<usize>,
}

/// Nodes of a type: ids, trees where these are disjoint, and nodes per hop.
pub(crate) type NodeArrays = (Buffer, Option<Buffer>, Vec<usize>);
/// Edges of a type: local ids of sources and of targets, numbers, and edges per hop.
pub(crate) type EdgeArrays = (Buffer, Buffer, Buffer, Vec<usize>);

impl Subgraph {
    /// Sets all arrays to those of a mini-batch, whose edges are those of its blocks, or of `induced`, which have the numbers of their
    /// edges. Hops beyond its blocks, up to `num_hops`, are empty. O(nodes log(node types) + edges).
    pub(crate) fn fill(&mut self, host: &HostBatch, induced: Option<&Block>, graph: Option<&Types>, num_hops: usize) {
        let (num_node_types, num_edge_types) = graph.map_or((1, 1), |g| (g.node_types().len(), g.edge_types().len()));
        let Self { values, nodes, edges, has_trees, types, local } = self;
        *has_trees = host.trees.is_some();
        nodes.clear();
        nodes.resize(num_node_types, NodePart { hops: vec![0; num_hops + 1], ..NodePart::default() });
        edges.clear();
        edges.resize(num_edge_types, EdgePart { hops: vec![0; num_hops.max(1)], ..EdgePart::default() });
        types.clear();
        local.clear();
        // Ends of the hops among the input nodes.
        let ends = std::iter::once(host.num_seeds).chain(host.blocks.iter().rev().map(|block| block.num_src));
        let mut first = 0;
        for (hop, end) in ends.enumerate() {
            for &node in &host.input_nodes[first..end] {
                let of = graph.map_or(0, |graph| graph.node_type(node));
                let part = &mut nodes[of];
                types.push(of as u16);
                // `ids` counts them until their place is known.
                local.push(part.ids.end as u32);
                part.ids.end += 1;
                part.hops[hop] += 1;
            }
            first = end;
        }
        let blocks: Vec<&Block> = induced.map_or_else(|| host.blocks.iter().rev().collect(), |block| vec![block]);
        for (hop, block) in blocks.iter().enumerate() {
            match &block.edge_types {
                Some(of_edges) => of_edges.iter().for_each(|&of| edges[usize::from(of)].hops[hop] += 1),
                None => edges[0].hops[hop] += block.num_edges(),
            }
        }
        let mut end = 0;
        let mut place = |len: usize| {
            end += len;
            end - len..end
        };
        for part in &mut *nodes {
            let len = part.ids.end;
            part.ids = place(len);
            part.trees = place(if *has_trees { len } else { 0 });
        }
        for part in &mut *edges {
            part.len = part.hops.iter().sum();
            part.start = place(3 * part.len).start;
        }
        values.clear();
        values.resize(end, 0);
        let starts = |of: u16| graph.map_or(0, |graph| graph.range(usize::from(of)).start);
        for (at, &node) in host.input_nodes.iter().enumerate() {
            let (of, local) = (types[at], local[at] as usize);
            let part = &nodes[usize::from(of)];
            values[part.ids.start + local] = (node - starts(of)).into();
            if let Some(trees) = &host.trees {
                values[part.trees.start + local] = trees[at].into();
            }
        }
        // Where the next edge of each type goes.
        let mut next: Vec<usize> = edges.iter().map(|part| part.start).collect();
        let mut first = 0;
        for block in blocks {
            let numbers = block.edge_ids.as_deref().expect("the graph numbers its edges");
            // Rows before the newest nodes' have no edges.
            for row in first..block.num_dst {
                for edge in block.indptr[row] as usize..block.indptr[row + 1] as usize {
                    let of = block.edge_types.as_ref().map_or(0, |types| usize::from(types[edge]));
                    let (at, len) = (next[of], edges[of].len);
                    values[at] = local[block.indices[edge] as usize].into();
                    values[at + len] = local[row].into();
                    values[at + 2 * len] = numbers[edge].into();
                    next[of] += 1;
                }
            }
            first = block.num_dst;
        }
    }

    /// The arrays, which return to `spares` when the last view of them is gone.
    pub(crate) fn lend(self, spares: &Arc<ArrayQueue<Subgraph>>) -> (Vec<NodeArrays>, Vec<EdgeArrays>) {
        let shared = Arc::new(Lent { subgraph: self, spares: Arc::clone(spares) });
        let buffer = |range: Range<usize>| {
            let owner: Arc<dyn Any + Send + Sync> = Arc::<Lent>::clone(&shared);
            let values = &shared.subgraph.values[range];
            // SAFETY: the values are within `shared`, which is not changed before the last owner is dropped; ranges do not overlap.
            unsafe { Buffer::new(bytemuck::cast_slice(values), vec![values.len()], Kind::I64, false, owner) }
        };
        let Subgraph { nodes, edges, has_trees, .. } = &shared.subgraph;
        let of_nodes = |part: &NodePart| {
            let trees = has_trees.then(|| buffer(part.trees.clone()));
            (buffer(part.ids.clone()), trees, part.hops.clone())
        };
        let of_edges = |&EdgePart { start, len, ref hops }: &EdgePart| {
            let array = |index: usize| buffer(start + index * len..start + (index + 1) * len);
            (array(0), array(1), array(2), hops.clone())
        };
        (nodes.iter().map(of_nodes).collect(), edges.iter().map(of_edges).collect())
    }
}

/// A subgraph that Python views.
#[derive(Debug)]
struct Lent {
    subgraph: Subgraph,
    spares: Arc<ArrayQueue<Subgraph>>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        // Where there are enough spares, the memory is freed.
        let _ = self.spares.push(std::mem::take(&mut self.subgraph));
    }
}
