//! Names of nodes whose ids are text in the graph's source.

use std::path::Path;

use rayon::prelude::*;

use crate::{Array, DatasetPath, Error, Load, Position, Result, check};

/// The names of a dataset's nodes: node `v` has the `v`-th name, and in a reordered dataset the one of the node's draw key, which is
/// the number that it had before.
///
/// In a dataset they are two arrays: `node_names`, the bytes of all names, concatenated, and `node_name_ends`,
/// where each one ends.
#[derive(Debug)]
pub struct NodeNames {
    // Invariant: ascending, and the last one is the length of `bytes`; the names are distinct.
    ends: Array<u64>,
    bytes: Array<u8>,
    /// Positions of the names in ascending order of their bytes; `None` where they are stored so.
    order: Option<Vec<u32>>,
    reordered: Option<Reordered>,
}

/// Numbers of the nodes of a reordered dataset before and after.
#[derive(Debug)]
struct Reordered {
    // Invariant: permutations as long as the names, one the inverse of the other.
    old_of_new: Array<u32>,
    new_of_old: Vec<u32>,
}

impl NodeNames {
    /// The names in `bytes`, of which name `v` ends at `ends[v]`.
    ///
    /// # Errors
    ///
    /// The first node whose name ends out of bounds; the second one of a name.
    ///
    /// # Complexity
    ///
    /// O(bytes) where the names ascend; else they are sorted, with 4 bytes of memory per node.
    pub fn new(ends: Array<u64>, bytes: Array<u8>) -> std::result::Result<Self, u64> {
        let (mut previous, mut ascend): ((usize, Option<&[u8]>), bool) = ((0, None), true);
        for (node, &end) in (0u64..).zip(ends.iter()) {
            let name = usize::try_from(end).ok().and_then(|end| bytes.get(previous.0..end)).ok_or(node)?;
            ascend &= previous.1.is_none_or(|previous| previous < name);
            previous = (end as usize, Some(name));
        }
        if previous.0 != bytes.len() {
            return Err(ends.len() as u64);
        }
        let mut names = Self { ends, bytes, order: None, reordered: None };
        if !ascend {
            let mut order: Vec<u32> = (0..names.ends.len() as u32).collect();
            order.par_sort_by(|&a, &b| names.stored(a).cmp(names.stored(b)));
            let repeats = order.array_windows().filter(|&&[a, b]| names.stored(a) == names.stored(b));
            if let Some(second) = repeats.map(|&[_, second]| u64::from(second)).min() {
                return Err(second);
            }
            names.order = Some(order);
        }
        Ok(names)
    }

    /// Reads the names of the dataset at `path`; `None` where its nodes have none.
    ///
    /// # Errors
    ///
    /// The arrays or the dataset's description cannot be read or are invalid.
    pub fn read(path: impl AsRef<Path>) -> Result<Option<Self>> {
        Self::of(&DatasetPath::open(path)?)
    }

    /// As [`NodeNames::read`], of a dataset that is open; of one made in memory `None`.
    ///
    /// # Errors
    ///
    /// As [`NodeNames::read`], and those of [`DatasetPath::array`].
    pub fn of(dataset: &DatasetPath) -> Result<Option<Self>> {
        let (Some(ends), Some(bytes)) = (dataset.array("node_name_ends")?, dataset.array("node_names")?) else {
            return Ok(None);
        };
        let cure = "the dataset is damaged: import it again";
        let mut names = Self::new(ends.read(Load::Mmap)?, bytes.read(Load::Mmap)?).map_err(|node| {
            let what = format!("the name of node {node} is not where it should be");
            Error::invalid(&ends.path, Position::Element(node), what, cure)
        })?;
        if let Some(keys) = dataset.array("draw_keys")? {
            let old_of_new = keys.read::<u32>(Load::Ram)?;
            check::permutation("draw_keys", &old_of_new, names.ends.len())
                .map_err(|fault| Error::invalid(&keys.path, Position::Element(fault.element), fault.what, cure))?;
            let mut new_of_old = vec![0; old_of_new.len()];
            (0u32..).zip(old_of_new.iter()).for_each(|(new, &old)| new_of_old[old as usize] = new);
            names.reordered = Some(Reordered { old_of_new, new_of_old });
        }
        Ok(Some(names))
    }

    /// The name of a node.
    ///
    /// # Panics
    ///
    /// When there is no such node.
    pub fn get(&self, node: u32) -> &[u8] {
        self.stored(self.reordered.as_ref().map_or(node, |r| r.old_of_new[node as usize]))
    }

    /// The name at a position.
    fn stored(&self, position: u32) -> &[u8] {
        let node = position as usize;
        let start = node.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..self.ends[node] as usize]
    }

    /// The node with this name. O(log nodes).
    pub fn find(&self, name: &[u8]) -> Option<u32> {
        let (mut low, mut high) = (0, self.ends.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let position = self.order.as_ref().map_or(middle as u32, |order| order[middle]);
            match self.stored(position).cmp(name) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => {
                    return Some(self.reordered.as_ref().map_or(position, |r| r.new_of_old[position as usize]));
                }
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
