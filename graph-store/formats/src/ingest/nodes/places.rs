//! From the ids of the source to nodes.

use std::collections::HashMap;
use std::path::Path;

use morphgl_graph_store::{Array, Error, Load, NodeNames, Position, Result, read_npy};

use super::Keys;
use crate::Ingest;

/// Finds nodes by the ids that the source has.
pub(crate) enum Places {
    /// Ids are node numbers, below this number of nodes.
    Same(u64),
    /// Ascending ids.
    Sorted(Array<u64>),
    Listed(HashMap<u64, u32>, u64),
    /// Ascending names.
    Names(NodeNames),
}

impl Places {
    /// The ids of a graph whose edges are written.
    pub(crate) fn of(ingest: &Ingest<'_>, num_nodes: u64) -> Result<Self> {
        let file = |name: &str| ingest.dir().join(format!("{name}.npy"));
        if file("node_name_ends").exists() {
            let (ends, _) = read_npy::<u64>(&file("node_name_ends"), Load::Mmap)?;
            let (bytes, _) = read_npy::<u8>(&file("node_names"), Load::Mmap)?;
            return Ok(Self::Names(NodeNames::new(ends, bytes).expect("the names were written sorted")));
        }
        if !file("node_ids").exists() {
            return Ok(Self::Same(num_nodes));
        }
        let (ids, _) = read_npy::<u64>(&file("node_ids"), Load::Mmap)?;
        if ids.is_sorted() {
            return Ok(Self::Sorted(ids));
        }
        let highest = ids.iter().max().copied().unwrap_or(0);
        Ok(Self::Listed(ids.iter().copied().zip(0..).collect(), highest))
    }

    /// The highest id that is a number.
    pub(super) fn highest(&self) -> Option<u64> {
        match self {
            Self::Same(num_nodes) => num_nodes.checked_sub(1),
            Self::Sorted(ids) => ids.last().copied(),
            Self::Listed(_, highest) => Some(*highest),
            Self::Names(_) => None,
        }
    }

    pub(super) fn node(&self, id: u64) -> Option<u32> {
        match self {
            Self::Same(num_nodes) => (id < *num_nodes).then_some(id as u32),
            Self::Sorted(ids) => ids.binary_search(&id).ok().map(|node| node as u32),
            Self::Listed(nodes, _) => nodes.get(&id).copied(),
            Self::Names(names) => names.find(id.to_string().as_bytes()),
        }
    }

    /// The node of each id; an error for an id that is unknown or listed twice.
    pub(super) fn nodes(&self, path: &Path, keys: &Keys, num_nodes: u64) -> Result<Vec<u32>> {
        let mut seen = vec![false; num_nodes as usize];
        let mut place = |row: usize, node: Option<u32>, id: &dyn Fn() -> String| {
            let wrong = |what: String, cure: &str| Error::invalid(path, Position::Element(row as u64), what, cure);
            let node = node.ok_or_else(|| {
                wrong(
                    format!("there is no node {}", id()),
                    "remove the row, or raise the number of nodes (--num-nodes)",
                )
            })?;
            if std::mem::replace(&mut seen[node as usize], true) {
                return Err(wrong(format!("the node {} stands there twice", id()), "remove one of the rows"));
            }
            Ok(node)
        };
        match keys {
            Keys::Numbers(ids) => {
                ids.iter().enumerate().map(|(row, &id)| place(row, self.node(id), &|| id.to_string())).collect()
            }
            Keys::Names(texts) => {
                let Self::Names(names) = self else { unreachable!("names are read where nodes have names") };
                let text = |name: &[u8]| format!("{:?}", String::from_utf8_lossy(name));
                texts.iter().enumerate().map(|(row, name)| place(row, names.find(name), &|| text(name))).collect()
            }
        }
    }
}
