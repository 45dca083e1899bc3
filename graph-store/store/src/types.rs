//! Types of the nodes and edges of a typed (heterogeneous) graph.

use std::collections::HashSet;
use std::ops::Range;

use morphgl_platform::excerpt;
use serde::{Deserialize, Serialize};

/// Maximum number of nodes: ids are u32.
const MAX_NODES: u64 = u32::MAX as u64;

/// A type of nodes: a range of node ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeType {
    /// Its name, such as `paper`.
    pub name: String,
    /// Number of its nodes.
    pub count: u64,
}

/// A type of edges, by its name and the node types that its edges lead from and to: PyG's and DGL's canonical edge type.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EdgeType {
    /// Name of the type of its source nodes.
    pub source: String,
    /// Its name, such as `cites`; several types may share it where they differ in their ends.
    pub name: String,
    /// Name of the type of its target nodes.
    pub target: String,
}

impl std::fmt::Display for EdgeType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}-{}", self.source, self.name, self.target)
    }
}

/// Node types and edge types of a graph.
///
/// The nodes of a type are consecutive ids, type after type in the order of the list. A row of the CSC has its edges sorted by
/// edge type, so that the edges of one type are a sub-row ([`Topology::sub_rows`](crate::Topology::sub_rows)).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Listed", into = "Listed")]
pub struct Types {
    nodes: Vec<NodeType>,
    edges: Vec<EdgeType>,
    /// First node of each node type, and the number of nodes.
    starts: Vec<u32>,
    /// Numbers of the node types at both ends of each edge type.
    ends: Vec<[usize; 2]>,
}

/// How types stand in `graph.json`.
#[derive(Serialize, Deserialize)]
struct Listed {
    nodes: Vec<NodeType>,
    edges: Vec<EdgeType>,
}

impl TryFrom<Listed> for Types {
    type Error = String;

    fn try_from(Listed { nodes, edges }: Listed) -> Result<Self, String> {
        Self::new(nodes, edges)
    }
}

impl From<Types> for Listed {
    fn from(Types { nodes, edges, .. }: Types) -> Self {
        Self { nodes, edges }
    }
}

impl Types {
    /// Maximum number of edge types: an edge's type is stored as u16.
    pub const MAX_EDGE_TYPES: usize = 1 << 16;

    /// Maximum number of bytes of the name of a type.
    pub const MAX_NAME: usize = 255;

    /// Types of the names and counts given.
    ///
    /// # Errors
    ///
    /// No node type, a name of more than [`Types::MAX_NAME`] bytes, two of one name, an edge type twice or between unknown node types, more than [`Types::MAX_EDGE_TYPES`], or
    /// more nodes than ids of 32 bits allow.
    pub fn new(nodes: Vec<NodeType>, edges: Vec<EdgeType>) -> Result<Self, String> {
        if nodes.is_empty() {
            return Err("a typed graph without a node type".into());
        }
        if edges.len() > Self::MAX_EDGE_TYPES {
            return Err(format!("{} edge types, at most {} are read", edges.len(), Self::MAX_EDGE_TYPES));
        }
        let all = nodes.iter().map(|node| &node.name);
        let all = all.chain(edges.iter().flat_map(|edge| [&edge.source, &edge.name, &edge.target]));
        if let Some(long) = all.into_iter().find(|name| name.len() > Self::MAX_NAME) {
            let (begin, bytes) = (excerpt(long, 80), long.len());
            return Err(format!(
                "the name of a type, {begin:?}, has {bytes} bytes, at most {} are read",
                Self::MAX_NAME
            ));
        }
        let mut names = HashSet::new();
        if let Some(twice) = nodes.iter().find(|node| !names.insert(&node.name)) {
            return Err(format!("the node type {:?} is listed twice", twice.name));
        }
        let mut starts = vec![0];
        let mut total = 0u64;
        for NodeType { name, count } in &nodes {
            total = total.checked_add(*count).filter(|&total| total <= MAX_NODES).ok_or_else(|| {
                format!("with the {count} nodes of type {name:?} there are more than the {MAX_NODES} that ids of 32 bits allow")
            })?;
            starts.push(total as u32);
        }
        let number = |edge: &EdgeType, name: &String| {
            let number = nodes.iter().position(|node| node.name == *name);
            number.ok_or_else(|| format!("the edge type {edge} is of unknown nodes: there is no node type {name:?}"))
        };
        let ends = edges.iter().map(|edge| Ok([number(edge, &edge.source)?, number(edge, &edge.target)?]));
        let ends = ends.collect::<Result<_, String>>()?;
        let mut seen = HashSet::new();
        if let Some(twice) = edges.iter().find(|edge| !seen.insert(*edge)) {
            return Err(format!("the edge type {twice} is listed twice"));
        }
        Ok(Self { nodes, edges, starts, ends })
    }

    /// The node types, in the order of their ids.
    pub fn node_types(&self) -> &[NodeType] {
        &self.nodes
    }

    /// The edge types, in the order of their sub-rows.
    pub fn edge_types(&self) -> &[EdgeType] {
        &self.edges
    }

    /// Number of nodes of all types.
    pub fn num_nodes(&self) -> usize {
        self.starts[self.nodes.len()] as usize
    }

    /// Ids of the nodes of a type.
    ///
    /// # Panics
    ///
    /// When there is no such type. So do the other accessors.
    pub fn range(&self, node_type: usize) -> Range<u32> {
        self.starts[node_type]..self.starts[node_type + 1]
    }

    /// Number of the type of a node. O(log node types).
    pub fn node_type(&self, node: u32) -> usize {
        // Of empty types, which share their start with the next, the last one that begins there has the node.
        self.starts[1..].partition_point(|&end| end <= node)
    }

    /// Numbers of the node types that edges of a type lead from and to.
    pub fn ends(&self, edge_type: usize) -> [usize; 2] {
        self.ends[edge_type]
    }

    /// Number of the reverse of an edge type by name: `rev_NAME`, as PyG's `ToUndirected` names it, or of `rev_NAME` the type `NAME`,
    /// between the same node types the other way round.
    pub fn reverse_of(&self, edge_type: usize) -> Option<usize> {
        let EdgeType { source, name, target } = &self.edges[edge_type];
        let is_reverse = |other: &EdgeType| {
            let names = other.name.strip_prefix("rev_") == Some(name) || name.strip_prefix("rev_") == Some(&other.name);
            names && (&other.source, &other.target) == (target, source)
        };
        self.edges.iter().position(is_reverse)
    }

    /// Number of the node type of a name.
    pub fn node_type_of_name(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.name == name)
    }
}

#[cfg(test)]
mod tests;
