//! Schema of a generated typed graph: checks, node and edge types, data of nodes and degree laws by type, blocks of rows by type.

use std::ops::Range;

use morphgl_graph_store::{EdgeType, NodeType, Types};

use crate::degrees::PowerLaw;
use crate::node_data::{NodeConfig, NodeData, share};
use crate::random::{Key, Purpose};
use crate::{Error, Result};

/// The part of a configuration that the typed generators share.
#[derive(Debug)]
pub(crate) struct Schema<'c> {
    /// Names of the node types.
    pub(crate) node_types: [&'static str; 4],
    /// Edge types without their reverses: name, and numbers of the types of source and target.
    pub(crate) edge_types: [(&'static str, usize, usize); 4],
    /// Settings of all nodes; a type has a number of nodes, a width, a signal and a seed of its own.
    pub(crate) all: &'c NodeConfig,
    pub(crate) degree: f64,
    /// What `degree` counts, for the message that refuses it.
    pub(crate) degree_unit: &'static str,
    pub(crate) exponent: f64,
    pub(crate) homophily: f64,
}

impl Schema<'_> {
    /// Checks the settings of all nodes, and degree, exponent and homophily.
    pub(crate) fn check(&self) -> Result<()> {
        let Self { degree, degree_unit, exponent, homophily, all: NodeConfig { nodes, .. }, .. } = *self;
        NodeData::new(self.all.clone())?;
        if !(degree > 0.0 && degree < *nodes as f64) {
            let what = format!("{degree} {degree_unit} {nodes} nodes");
            return Err(Error::argument("degree", what, "pass a number above 0 and below the number of nodes"));
        }
        if !(exponent > 1.0 && exponent <= 20.0) {
            return Err(Error::argument("exponent", format!("a power law of {exponent}"), "pass above 1, at most 20"));
        }
        share("homophily", homophily)
    }

    /// Checks that each class has a node of each type.
    pub(crate) fn check_counts(&self, counts: [u64; 4]) -> Result<()> {
        let classes = self.all.classes;
        let few = counts.iter().zip(self.node_types).find(|(count, _)| **count < classes as u64);
        few.map_or(Ok(()), |(count, name)| {
            let what = format!("{classes} classes for the {count} nodes of type {name}");
            Err(Error::argument("classes", what, "pass fewer classes or more nodes"))
        })
    }

    /// Node types of `counts` nodes; the edge types and then the reverse `rev_…` of each.
    pub(crate) fn types(&self, counts: [u64; 4]) -> Types {
        let nodes = self.node_types.iter().zip(counts).map(|(name, count)| NodeType { name: name.to_string(), count });
        let edge_type = |source: usize, name: String, target: usize| EdgeType {
            source: self.node_types[source].into(),
            name,
            target: self.node_types[target].into(),
        };
        let edges = self.edge_types.iter().map(|&(name, source, target)| edge_type(source, name.into(), target));
        let back =
            self.edge_types.iter().map(|&(name, source, target)| edge_type(target, format!("rev_{name}"), source));
        Types::new(nodes.collect(), edges.chain(back).collect()).expect("distinct names of known types")
    }

    /// Data of the nodes of each type, with the width and the signal that `features` gives for the type's number.
    pub(crate) fn data(&self, counts: [u64; 4], features: impl Fn(usize) -> (usize, f64)) -> Result<Vec<NodeData>> {
        let of_type = |(node_type, &nodes): (usize, &u64)| {
            let (dim, signal) = features(node_type);
            let seed = Key::new(self.all.seed, Purpose::NodeType).value(node_type as u64);
            NodeData::new(NodeConfig { nodes, dim, signal, seed, ..self.all.clone() })
        };
        counts.iter().enumerate().map(of_type).collect()
    }

    /// Power law of the expected degrees of `count` nodes with this mean. The largest is the structural cut-off of a class.
    pub(crate) fn degree_law(&self, count: u64, mean: f64) -> PowerLaw {
        let largest = (count as f64 / self.all.classes as f64).sqrt().max(1.0);
        PowerLaw::with_mean(mean, mean * largest, self.exponent)
    }
}

/// Blocks of consecutive rows, numbered type after type; each is of one type's nodes.
#[derive(Debug)]
pub(crate) struct BlocksByType {
    /// Number of nodes of each type, and of a block of it.
    sizes: Vec<[u64; 2]>,
}

impl BlocksByType {
    /// Blocks of `block_nodes` nodes of each type.
    pub(crate) fn new(data: &[NodeData], block_nodes: &[u64]) -> Self {
        Self { sizes: data.iter().zip(block_nodes).map(|(data, &block)| [data.nodes(), block]).collect() }
    }

    /// Number of nodes of each block of a type but the last.
    pub(crate) fn block_nodes(&self, node_type: usize) -> u64 {
        self.sizes[node_type][1]
    }

    /// Largest number of nodes of a block.
    pub(crate) fn max_nodes(&self) -> u64 {
        self.sizes.iter().map(|&[_, block]| block).max().unwrap_or(0)
    }

    /// Number of blocks of a type.
    pub(crate) fn of_type(&self, node_type: usize) -> usize {
        let [nodes, block] = self.sizes[node_type];
        nodes.div_ceil(block) as usize
    }

    /// Number of blocks of all types.
    pub(crate) fn len(&self) -> usize {
        (0..self.sizes.len()).map(|node_type| self.of_type(node_type)).sum()
    }

    /// The type of a block, its number among the blocks of the type, and its nodes, numbered within the type.
    pub(crate) fn locate(&self, block: usize) -> (usize, usize, Range<u32>) {
        let (mut node_type, mut block) = (0, block);
        while block >= self.of_type(node_type) {
            block -= self.of_type(node_type);
            node_type += 1;
        }
        let [nodes, size] = self.sizes[node_type];
        let first = block as u64 * size;
        (node_type, block, first as u32..(first + size).min(nodes) as u32)
    }
}
