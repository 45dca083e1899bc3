//! Node and edge types of a graph whose sources and targets are two kinds of nodes.

use std::fs;

use morphgl_graph_store::{EdgeType, Error, NodeNames, NodeType, Result, Types};

use crate::Ingest;

/// Edges whose mapped sources are read before the pages are given back.
const EDGES_AT_ONCE: u64 = 1 << 18;

/// Sources and targets that are two kinds of nodes.
#[derive(Debug, Clone)]
pub(crate) struct TwoTypes {
    /// Names of the type of sources and of the type of targets.
    pub(crate) names: [String; 2],
    pub(crate) apart: Apart,
}

/// What tells the two kinds of nodes apart.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Apart {
    /// Nodes from this number on are targets, and their ids are less by as much.
    Nodes(u64),
    /// Nodes whose ids are not below this number are targets, and their ids are less by as much.
    Ids(u64),
    /// Names begin with that of the type and a colon.
    Names,
}

impl Ingest<'_> {
    /// Writes the types of a graph of two kinds of nodes, and numbers as ids that each kind has of its own; once all else that reads
    /// ids and edges is done.
    ///
    /// # Complexity
    ///
    /// A pass over the edges, 2 bytes per edge on disk; 8 bytes per node of memory where ids are numbers.
    pub(super) fn write_types(&mut self, num_nodes: u64) -> Result<()> {
        let Some(TwoTypes { names, apart }) = self.two_types.take() else { return Ok(()) };
        // The source file's order of the types, by that of the nodes.
        let (start, order) = match apart {
            Apart::Nodes(offset) => (offset.min(num_nodes), [0, 1]),
            Apart::Ids(offset) => (self.array::<u64>("node_ids")?.partition_point(|&id| id < offset) as u64, [0, 1]),
            Apart::Names => {
                let prefixes = names.each_ref().map(|name| format!("{name}:"));
                if prefixes[0].starts_with(&prefixes[1]) || prefixes[1].starts_with(&prefixes[0]) {
                    self.note("the names of the two kinds of nodes begin alike: the graph has no types");
                    return Ok(());
                }
                let order = if prefixes[0] < prefixes[1] { [0, 1] } else { [1, 0] };
                let all = NodeNames::new(self.array("node_name_ends")?, self.array("node_names")?);
                let all = all.expect("the names were written sorted");
                let (mut low, mut high) = (0, num_nodes);
                while low < high {
                    let middle = low + (high - low) / 2;
                    match all.get(middle as u32).starts_with(prefixes[order[0]].as_bytes()) {
                        true => low = middle + 1,
                        false => high = middle,
                    }
                }
                (low, order)
            }
        };
        if let Apart::Nodes(offset) | Apart::Ids(offset) = apart {
            self.write_own_ids(num_nodes, start, offset)?;
        }
        let counts = [start, num_nodes - start];
        let nodes = [0, 1].map(|at| NodeType { name: names[order[at]].clone(), count: counts[at] });
        self.write_edge_types(start as u32, nodes, order[0] == 0)
    }

    fn write_own_ids(&mut self, num_nodes: u64, start: u64, offset: u64) -> Result<()> {
        let mut ids: Vec<u64> = match self.has("node_ids") {
            true => self.array::<u64>("node_ids")?.to_vec(),
            false => (0..num_nodes).collect(),
        };
        ids[start as usize..].iter_mut().for_each(|id| *id -= offset);
        let replaced = self.writer.take_back("node_ids")?;
        self.writer.array("node_ids", &ids, None)?;
        match replaced {
            Some(path) => fs::remove_file(&path).map_err(|e| Error::io(&path, e)),
            None => Ok(()),
        }
    }

    /// Writes the type of each edge. `forward`: edges of the source lead from the first type to the second.
    fn write_edge_types(&mut self, start: u32, nodes: [NodeType; 2], forward: bool) -> Result<()> {
        let (indptr, indices) = (self.array::<u64>("indptr")?, self.array::<u32>("indices")?);
        // Of each row: the type of its target, and its edges from each type of sources.
        let rows = || {
            let mut released = 0;
            let (indptr, indices) = (&indptr, &indices);
            (0u32..).zip(indptr.windows(2)).map(move |(target, row)| {
                if row[0] >= released + EDGES_AT_ONCE {
                    indptr.release();
                    indices.release();
                    released = row[0];
                }
                let sources = &indices[row[0] as usize..row[1] as usize];
                let first = sources.partition_point(|&source| source < start);
                (usize::from(target >= start), [first, sources.len() - first])
            })
        };
        let mut present = [[false; 2]; 2];
        for (target, counts) in rows() {
            (0..2).for_each(|source| present[source][target] |= counts[source] > 0);
        }
        let (mut edges, mut numbers) = (Vec::new(), [[0u16; 2]; 2]);
        // In a row edges ascend by their source, and so by its type.
        for (source, target) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            if present[source][target] {
                numbers[source][target] = edges.len() as u16;
                let is_reverse = source != target && (source == 0) != forward;
                let name = if is_reverse { "rev_to" } else { "to" }.to_string();
                let [source, target] = [source, target].map(|at| nodes[at].name.clone());
                edges.push(EdgeType { source, name, target });
            }
        }
        let mut stream = self.writer.stream::<u16>("edge_types")?;
        for (target, counts) in rows() {
            for (source, count) in counts.into_iter().enumerate() {
                stream.write(&vec![numbers[source][target]; count])?;
            }
        }
        let meta = stream.finish(None)?;
        self.writer.add("edge_types", meta);
        self.share_edge_features(edges.len());
        let types = Types::new(nodes.into(), edges).expect("two types of different names");
        self.writer.set_types(types);
        Ok(())
    }
}
