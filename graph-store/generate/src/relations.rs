//! Typed block models by blocks of rows: the edges of a relation between two blocks of nodes are a function of the three.
//!
//! As in the block model without types, edges are drawn once for each of their directions, and a relation's reverse is drawn from
//! the same numbers.

use morphgl_graph_store::Types;

use crate::alias::{Slot, draw};
use crate::degrees::PowerLaw;
use crate::memory::{Footprint, max_events};
use crate::node_data::NodeData;
use crate::poisson::poisson;
use crate::random::{Key, Purpose};
use crate::schema::BlocksByType;
use crate::tables::{Block, Tables, UNIT, draw_uniform};
use crate::typed_rows::{TypedBuffers, TypedRows};

/// How an end of an edge is drawn among the nodes of its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Each node with equal probability.
    Uniform,
    /// By expected degree.
    Weighted,
}

/// A type of edges and its reverse.
#[derive(Debug, Clone)]
pub(crate) struct Relation {
    /// Node types of source and target.
    pub(crate) ends: [usize; 2],
    /// Expected number of edges, duplicates included.
    pub(crate) edges: f64,
    /// How source and target are drawn.
    pub(crate) draws: [End; 2],
    /// Class of a preferred target, less that of the source, modulo the classes.
    pub(crate) shift: usize,
    /// Whether sources are later than their targets, by their positions in time; both are of one type.
    pub(crate) backward: bool,
}

/// The relations of a graph, and the tables that their edges are drawn from.
#[derive(Debug)]
pub(crate) struct Relations {
    types: Types,
    data: Vec<NodeData>,
    laws: Vec<PowerLaw>,
    relations: Vec<Relation>,
    homophily: f64,
    key: Key,
    blocks: BlocksByType,
    /// Tables of each type; empty until they are made.
    tables: Vec<Tables>,
}

impl Relations {
    /// Relations without tables. Edge types of `types` are the relations, and then their reverses.
    pub(crate) fn new(
        types: Types,
        data: Vec<NodeData>,
        laws: Vec<PowerLaw>,
        relations: Vec<Relation>,
        homophily: f64,
        seed: u64,
    ) -> Self {
        let blocks = BlocksByType::new(&data, &block_nodes(&data, &relations));
        let key = Key::new(seed, Purpose::Edges);
        Self { types, data, laws, relations, homophily, key, blocks, tables: Vec::new() }
    }

    /// Makes the tables, on at most `builders` threads, and the means of classes, which features need.
    pub(crate) fn make_tables(&mut self, builders: usize) {
        self.data.iter_mut().for_each(NodeData::make_means);
        let of_types = self.data.iter().zip(&self.laws).enumerate();
        let tables = |(node_type, (data, law))| Tables::new(data, law, self.blocks.block_nodes(node_type), builders);
        self.tables = of_types.map(tables).collect();
    }

    pub(crate) fn types(&self) -> &Types {
        &self.types
    }

    pub(crate) fn data(&self) -> &[NodeData] {
        &self.data
    }

    fn classes(&self) -> usize {
        self.data[0].config.classes
    }

    pub(crate) fn footprint(&self) -> Footprint {
        let of_type = |(node_type, data)| Tables::memory(data, self.blocks.block_nodes(node_type));
        let tables = || self.data.iter().enumerate().map(of_type);
        let means: u64 = self.data.iter().map(NodeData::means_bytes).sum();
        let features = self.data.iter().map(NodeData::features_memory);
        Footprint {
            resident: tables().map(|(resident, _)| resident).sum::<u64>() + means,
            build: tables().map(|(_, build)| build).max().unwrap_or(0),
            rows: TypedBuffers::memory(self.blocks.max_nodes(), self.max_types(), self.max_edges()),
            features: features.max_by_key(|memory| memory.block).expect("there are node types"),
            labels: TypedBuffers::labels_memory(false),
        }
    }

    /// Maximum number of edge types that lead to a node.
    fn max_types(&self) -> usize {
        let into = |node_type| self.edge_types_into(node_type).count();
        (0..self.data.len()).map(into).max().unwrap_or(0)
    }

    /// Edge types that lead to a node type, with the relation of each, and the end of it that is the target.
    fn edge_types_into(&self, node_type: usize) -> impl Iterator<Item = (u16, usize, usize)> + '_ {
        let count = self.relations.len();
        let all =
            (0..2 * count).map(move |edge_type| (edge_type as u16, edge_type % count, usize::from(edge_type < count)));
        all.filter(move |&(_, relation, end)| self.relations[relation].ends[end] == node_type)
    }

    /// Upper bound of the edges of one type that are drawn for the rows of a block, exceeded with a probability below 10^-13.
    fn max_edges(&self) -> u64 {
        let classes = self.classes() as f64;
        let bounds = self.relations.iter().flat_map(|relation| {
            [0, 1].map(|end| {
                let [inside, outside] = self.max_shares(relation.ends[end], relation.draws[end]);
                let outside = if classes > 1.0 { 1.05 * outside * classes / (classes - 1.0) } else { 0.0 };
                let draws = relation.edges * if relation.backward { 2.0 } else { 1.0 };
                draws * (self.homophily * inside + (1.0 - self.homophily) * outside)
            })
        });
        max_events(bounds.fold(0.0, f64::max), 1.0) as u64
    }

    /// [`max_share`] of a block of a type.
    fn max_shares(&self, node_type: usize, end: End) -> [f64; 2] {
        let law = (end == End::Weighted).then(|| &self.laws[node_type]);
        let [block, nodes] = [self.blocks.block_nodes(node_type), self.data[node_type].nodes()];
        max_share(block as f64, nodes as f64, self.classes() as f64, law)
    }

    pub(crate) fn num_blocks(&self) -> usize {
        self.blocks.len()
    }

    pub(crate) fn buffers(&self) -> TypedBuffers {
        TypedBuffers::new(self.max_types(), self.max_edges())
    }

    /// Makes the rows of a block.
    pub(crate) fn rows(&self, block: usize, buffers: &TypedBuffers) -> TypedRows {
        let (node_type, block, nodes) = self.blocks.locate(block);
        let (first, len) = (self.types.range(node_type).start + nodes.start, nodes.len());
        let parts = self.edge_types_into(node_type).map(|(edge_type, relation, end)| {
            let other = self.relations[relation].ends[1 - end];
            let [to_first, from_first] = [node_type, other].map(|of| self.types.range(of).start);
            let rows = buffers.rows(first, len, |edges| {
                for from in 0..self.blocks.of_type(other) {
                    let blocks = if end == 1 { [from, block] } else { [block, from] };
                    self.pair(relation, blocks, |ends| edges.push(to_first + ends[end], from_first + ends[1 - end]));
                }
            });
            (edge_type, rows)
        });
        buffers.merge(len, &parts.collect::<Vec<_>>())
    }

    /// Draws the edges of a relation between a block of sources and one of targets, as pairs of nodes numbered within their types.
    fn pair(&self, relation: usize, blocks: [usize; 2], mut edge: impl FnMut([u32; 2])) {
        let key = self.key.child(relation as u64).child((blocks[0] as u64) << 32 | blocks[1] as u64);
        let Relation { ends: types, edges, draws, shift, backward } = self.relations[relation];
        let classes = self.classes();
        let ends: [Drawn<'_>; 2] = std::array::from_fn(|end| {
            let tables = &self.tables[types[end]];
            Drawn { tables, block: tables.block(blocks[end]), nodes: tables.nodes(blocks[end]), end: draws[end] }
        });
        let position = |node: u32| self.data[types[0]].position(u64::from(node));
        // Of two papers the later one cites the other: half of the pairs.
        let edges = if backward { 2.0 * edges } else { edges };
        let mut keep = |pair: [u32; 2]| {
            if !backward || position(pair[0]) > position(pair[1]) {
                edge(pair);
            }
        };
        let target_of = |class: usize| (class + shift) % classes;
        for class in 0..classes {
            let of = [class, target_of(class)];
            let [source, target] = [0, 1].map(|end| ends[end].share_of_class(of[end]));
            let key = key.child(class as u64);
            let expected = self.homophily * edges / classes as f64 * source * target;
            let values = key.child(0);
            for i in 0..poisson(key, expected) {
                keep([0, 1].map(|end| ends[end].draw_of_class(of[end], values.value(2 * i + end as u64))));
            }
        }
        let key = key.child(classes as u64);
        let same: f64 =
            (0..classes).map(|class| ends[0].class_share(class) * ends[1].class_share(target_of(class))).sum();
        if self.homophily == 1.0 || same >= 1.0 {
            return;
        }
        let expected = (1.0 - self.homophily) * edges / (1.0 - same) * ends[0].share() * ends[1].share();
        let values = key.child(0);
        for i in 0..poisson(key, expected) {
            let [(class, source), (of, target)] =
                [0, 1].map(|end| ends[end].draw([0, 1].map(|j| values.value(4 * i + 2 * end as u64 + j))));
            if of != target_of(class) {
                keep([source, target]);
            }
        }
    }
}

/// An end of the edges between two blocks.
struct Drawn<'t> {
    tables: &'t Tables,
    block: &'t Block,
    nodes: &'t [Slot],
    end: End,
}

impl Drawn<'_> {
    /// The block's share of the nodes of a class, by the law of the end.
    fn share_of_class(&self, class: usize) -> f64 {
        match self.end {
            End::Uniform => self.block.class(class, self.nodes).len() as f64 / self.tables.class_len(class) as f64,
            End::Weighted => self.block.class_weights[class] as f64 / self.tables.class_weights[class] as f64,
        }
    }

    /// The block's share of all nodes.
    fn share(&self) -> f64 {
        match self.end {
            End::Uniform => self.block.len() as f64 / self.tables.len() as f64,
            End::Weighted => self.block.weight as f64 / self.tables.weight as f64,
        }
    }

    /// The share of a class among all nodes.
    fn class_share(&self, class: usize) -> f64 {
        match self.end {
            End::Uniform => self.tables.class_len(class) as f64 / self.tables.len() as f64,
            End::Weighted => self.tables.class_weights[class] as f64 / self.tables.weight as f64,
        }
    }

    fn draw_of_class(&self, class: usize, bits: u64) -> u32 {
        let nodes = self.block.class(class, self.nodes);
        if self.end == End::Uniform { draw_uniform(nodes, bits) } else { draw(nodes, bits) }
    }

    /// Draws a node of the block, and its class.
    fn draw(&self, bits: [u64; 2]) -> (usize, u32) {
        if self.end == End::Uniform {
            self.block.draw_uniform(self.nodes, bits[0])
        } else {
            self.block.draw(self.nodes, bits)
        }
    }
}

/// Upper bounds of the share of edges that a block of `block` of `nodes` nodes has, of those that are drawn by class and of those drawn
/// from all, by a law of degrees or else with equal probability; exceeded with a probability below 10^-13.
pub(crate) fn max_share(block: f64, nodes: f64, classes: f64, law: Option<&PowerLaw>) -> [f64; 2] {
    // The largest share of a node in all, and in its class. Classes get every so-many-th rank, so that their sums differ by no more
    // than the largest degree, and the quantiles' sum is below the mean's by no more than that.
    let [in_all, in_class] = match law {
        None => [1.0 / nodes, 1.0 / (nodes / classes).floor()],
        Some(law) => {
            let largest = law.max() + 1.0 / UNIT;
            let sum = nodes * (law.mean() - 1.0 / UNIT) - largest;
            let share = |sum: f64| if sum > largest { largest / sum } else { 1.0 };
            [share(sum), share(sum / classes - largest)]
        }
    };
    // A block's nodes are drawn without replacement from all: Bernstein's inequality for the sum of their shares, where the variance
    // is at most the mean times the maximum.
    let block = (block / nodes).min(1.0);
    let bound = |largest: f64| (block + 27.0 * largest + (80.0 * block * largest).sqrt()).min(1.0);
    [bound(in_class / classes), bound(in_all)]
}

/// Nodes of a block of each type: enough blocks for many threads and for little memory, but not so many that the pairs of blocks of a
/// relation have fewer than a handful of edges per class. A function of the configuration alone, since the edges follow from it.
fn block_nodes(data: &[NodeData], relations: &[Relation]) -> Vec<u64> {
    let mut blocks: Vec<f64> = data.iter().map(|data| (data.nodes() as f64 / 2048.0).clamp(1.0, 1024.0)).collect();
    for Relation { ends, edges, .. } in relations {
        let classes = data[ends[0]].config.classes as f64;
        let pairs = blocks[ends[0]] * blocks[ends[1]] * classes * 8.0;
        let scale = (edges / pairs).sqrt().min(1.0);
        let scaled = ends.map(|end| (blocks[end] * scale).max(1.0));
        ends.iter().zip(scaled).for_each(|(&end, scaled)| blocks[end] = scaled);
    }
    data.iter().zip(blocks).map(|(data, blocks)| (data.nodes() as f64 / blocks).ceil() as u64).collect()
}
