//! Names of nodes whose ids are text in the graph's source.

use std::path::Path;

use crate::{Array, Error, Load, Meta, Position, Result, read_npy};

/// The names of a dataset's nodes, in ascending order of their bytes: node `v` has the `v`-th name.
///
/// In a dataset they are two arrays: `node_names`, the bytes of all names, concatenated, and `node_name_ends`,
/// where each one ends.
#[derive(Debug)]
pub struct NodeNames {
    // Invariant: ascending, and the last one is the length of `bytes`; the names ascend, too.
    ends: Array<u64>,
    bytes: Array<u8>,
}

impl NodeNames {
    /// The names in `bytes`, of which name `v` ends at `ends[v]`.
    ///
    /// # Errors
    ///
    /// The first node whose name ends out of bounds, or does not sort after the name before it.
    ///
    /// # Complexity
    ///
    /// O(bytes).
    pub fn new(ends: Array<u64>, bytes: Array<u8>) -> std::result::Result<Self, u64> {
        let mut previous: (usize, Option<&[u8]>) = (0, None);
        for (node, &end) in (0u64..).zip(ends.iter()) {
            let name = usize::try_from(end).ok().and_then(|end| bytes.get(previous.0..end)).ok_or(node)?;
            if previous.1.is_some_and(|previous| previous >= name) {
                return Err(node);
            }
            previous = (end as usize, Some(name));
        }
        if previous.0 != bytes.len() { Err(ends.len() as u64) } else { Ok(Self { ends, bytes }) }
    }

    /// Reads the names of the dataset at `path`; `None` where its nodes have none.
    ///
    /// # Errors
    ///
    /// The arrays or the dataset's description cannot be read or are invalid.
    pub fn read(path: impl AsRef<Path>) -> Result<Option<Self>> {
        let path = path.as_ref();
        let meta = Meta::read(path)?;
        let (Some(ends), Some(bytes)) = (meta.arrays.get("node_name_ends"), meta.arrays.get("node_names")) else {
            return Ok(None);
        };
        let file = path.join(&ends.file);
        let (ends, _) = read_npy(&file, Load::Mmap)?;
        let (bytes, _) = read_npy(&path.join(&bytes.file), Load::Mmap)?;
        Self::new(ends, bytes).map(Some).map_err(|node| {
            let what = format!("the name of node {node} is not where it should be");
            Error::invalid(file, Position::Element(node), what, "the dataset is damaged: import it again")
        })
    }

    /// The name of a node.
    ///
    /// # Panics
    ///
    /// When there is no such node.
    pub fn get(&self, node: u32) -> &[u8] {
        let node = node as usize;
        let start = node.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..self.ends[node] as usize]
    }

    /// The node with this name. O(log nodes).
    pub fn find(&self, name: &[u8]) -> Option<u32> {
        let (mut low, mut high) = (0, self.ends.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.get(middle as u32).cmp(name) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Some(middle as u32),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
