//! From the ids of the source to nodes.

use std::collections::HashMap;
use std::path::Path;

use morphgl_graph_store::{Array, Error, NodeNames, Position, Result};

use super::Keys;
use crate::Ingest;

/// Finds nodes by the ids that the source has.
pub(crate) enum NodeIndex {
    /// Ids are node numbers, below this number of nodes.
    Identity(u64),
    /// Ascending ids.
    Sorted(Array<u64>),
    /// Ids in any order, and the highest of them.
    Hashed(HashMap<u64, u32>, u64),
    /// Ascending names.
    Names(NodeNames),
}

impl NodeIndex {
    /// The index of a graph whose edges are written.
    pub(crate) fn of(ingest: &Ingest<'_>, num_nodes: u64) -> Result<Self> {
        let exists = |name: &str| ingest.dir().join(format!("{name}.npy")).exists();
        if exists("node_name_ends") {
            let names = NodeNames::new(ingest.array("node_name_ends")?, ingest.array("node_names")?);
            return Ok(Self::Names(names.expect("the names were written sorted")));
        }
        if !exists("node_ids") {
            return Ok(Self::Identity(num_nodes));
        }
        let ids = ingest.array::<u64>("node_ids")?;
        if ids.is_sorted() {
            return Ok(Self::Sorted(ids));
        }
        let highest = ids.iter().max().copied().unwrap_or(0);
        Ok(Self::Hashed(ids.iter().copied().zip(0..).collect(), highest))
    }

    /// The highest id that is a number.
    pub(super) fn highest(&self) -> Option<u64> {
        match self {
            Self::Identity(num_nodes) => num_nodes.checked_sub(1),
            Self::Sorted(ids) => ids.last().copied(),
            Self::Hashed(_, highest) => Some(*highest),
            Self::Names(_) => None,
        }
    }

    pub(crate) fn node(&self, id: u64) -> Option<u32> {
        match self {
            Self::Identity(num_nodes) => (id < *num_nodes).then_some(id as u32),
            Self::Sorted(ids) => ids.binary_search(&id).ok().map(|node| node as u32),
            Self::Hashed(nodes, _) => nodes.get(&id).copied(),
            Self::Names(names) => names.find(id.to_string().as_bytes()),
        }
    }

    /// The node of a name; `None` where nodes have none.
    pub(crate) fn named(&self, name: &[u8]) -> Option<u32> {
        if let Self::Names(names) = self { names.find(name) } else { None }
    }

    /// The id of a node, for messages.
    pub(super) fn id(&self, node: u32) -> String {
        match self {
            Self::Identity(_) => node.to_string(),
            Self::Sorted(ids) => ids[node as usize].to_string(),
            Self::Hashed(nodes, _) => {
                nodes.iter().find(|&(_, &of)| of == node).map_or(String::new(), |(id, _)| id.to_string())
            }
            Self::Names(names) => format!("{:?}", String::from_utf8_lossy(names.get(node))),
        }
    }

    /// The node of each key; an error for a key that is listed twice unless it `may_repeat`, and for one that is unknown unless
    /// these are left out (`drop_unknown`): `u32::MAX` then.
    pub(super) fn nodes(
        &self,
        path: &Path,
        keys: &Keys,
        num_nodes: u64,
        (drop_unknown, may_repeat): (bool, bool),
    ) -> Result<Vec<u32>> {
        let mut seen = vec![false; num_nodes as usize];
        let mut checked = |row: usize, node: Option<u32>, key: &dyn Fn() -> String| {
            let (what, cure) = match node {
                None if drop_unknown => return Ok(u32::MAX),
                None => (
                    format!("there is no node {}", key()),
                    "remove the row, or raise the number of nodes (--num-nodes)",
                ),
                Some(node) if std::mem::replace(&mut seen[node as usize], true) && !may_repeat => {
                    (format!("the node {} stands there twice", key()), "remove one of the rows")
                }
                Some(node) => return Ok(node),
            };
            Err(Error::invalid(path, Position::Element(row as u64), what, cure))
        };
        match (keys, self) {
            (Keys::Numbers(ids), _) => {
                ids.iter().enumerate().map(|(row, &id)| checked(row, self.node(id), &|| id.to_string())).collect()
            }
            (Keys::Names(texts), Self::Names(names)) => {
                let text = |name: &[u8]| format!("{:?}", String::from_utf8_lossy(name));
                texts.iter().enumerate().map(|(row, name)| checked(row, names.find(name), &|| text(name))).collect()
            }
            (Keys::Names(_), _) => unreachable!("names are read where nodes have names"),
        }
    }
}
