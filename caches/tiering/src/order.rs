//! An order of a dataset's nodes, and its inverse.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use morphgl_graph_store::{Dtype, Element, Load, Position, Types, npy_dtype, read_npy};
use morphgl_platform::Pages;
use rayon::prelude::*;

use crate::{Error, Result};

/// Not a node: ids are below 2^32 - 1.
const UNASSIGNED: u32 = u32::MAX;
/// Nodes per task.
const TASK: usize = 1 << 14;

/// An order of nodes: the node at position `new` gets the number `new`. Eight bytes per node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    // Invariant: permutations of 0..len, one the inverse of the other.
    old_of_new: Vec<u32>,
    /// In huge pages: of 16 M nodes a look-up for each edge took 0.84 of the time of small ones (a Zen 3 core).
    new_of_old: Pages,
}

impl Order {
    /// The order in which nodes are listed, the one that gets number 0 first.
    ///
    /// # Errors
    ///
    /// The first number that is no node, or that occurs twice.
    ///
    /// # Complexity
    ///
    /// O(nodes), on the threads of the current rayon pool; four bytes per node beside the result.
    pub fn new(old_of_new: Vec<u32>) -> Result<Self> {
        let len = old_of_new.len();
        let new_of_old: Vec<AtomicU32> = (0..len).map(|_| AtomicU32::new(UNASSIGNED)).collect();
        let place = |(new, &old): (usize, &u32)| {
            new_of_old.get(old as usize).is_some_and(|slot| slot.swap(new as u32, Ordering::Relaxed) == UNASSIGNED)
        };
        if len > UNASSIGNED as usize || !old_of_new.par_iter().with_min_len(TASK).enumerate().all(place) {
            return Err(fault(&old_of_new));
        }
        let mut pages = Pages::new();
        let inverse: &mut [u32] = bytemuck::cast_slice_mut(pages.resize(len * size_of::<u32>()));
        inverse.par_chunks_mut(TASK).zip(new_of_old.par_chunks(TASK)).for_each(|(inverse, nodes)| {
            inverse.iter_mut().zip(nodes).for_each(|(new, node)| *new = node.load(Ordering::Relaxed));
        });
        Ok(Self { old_of_new, new_of_old: pages })
    }

    /// The hottest node first; nodes of equal hotness in the order of their numbers.
    ///
    /// # Errors
    ///
    /// A hotness that is not a number.
    ///
    /// # Complexity
    ///
    /// O(nodes log nodes), on the threads of the current rayon pool; eight bytes per node beside the result.
    pub fn by_hotness(hotness: &[f32]) -> Result<Self> {
        if let Some(node) = hotness.iter().position(|h| h.is_nan()) {
            return Err(Error::argument("hotness", format!("that of node {node} is not a number"), "give numbers"));
        }
        // Descending by hotness in the upper half, ascending by node in the lower one.
        let key = |(node, &h): (usize, &f32)| u64::from(!ascending_bits(h)) << 32 | node as u64;
        let mut keys: Vec<u64> = hotness.par_iter().with_min_len(TASK).enumerate().map(key).collect();
        keys.par_sort_unstable();
        Self::new(keys.into_par_iter().with_min_len(TASK).map(|key| key as u32).collect())
    }

    /// Reads the order from a `.npy` file of integers, for example the result of numpy's `argsort`.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, is no list of integers, or is no order of nodes.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let nodes = match npy_dtype(path)? {
            Dtype::U32 => nodes::<u32>(path),
            Dtype::I32 => nodes::<i32>(path),
            Dtype::U64 => nodes::<u64>(path),
            Dtype::I64 => nodes::<i64>(path),
            other => {
                let cure = "save the nodes as integers of 32 or 64 bits";
                Err(invalid(path, Position::File, format!("an order of nodes cannot be {other}"), cure))
            }
        }?;
        Self::new(nodes).map_err(|error| match error {
            Error::Argument { what, cure, .. } => invalid(path, Position::File, what, &cure),
            store => store,
        })
    }

    /// The same order within each node type: the nodes of a type keep its range of numbers.
    ///
    /// # Errors
    ///
    /// Types of another number of nodes.
    ///
    /// # Complexity
    ///
    /// O(nodes log node types); four bytes per node beside the result.
    pub fn within(&self, types: &Types) -> Result<Self> {
        if types.num_nodes() != self.len() {
            let what = format!("it has {} nodes, and the types have {}", self.len(), types.num_nodes());
            return Err(Error::argument("order", what, "give an order of all nodes of the dataset"));
        }
        let mut next: Vec<u32> = (0..types.node_types().len()).map(|of| types.range(of).start).collect();
        let mut old_of_new = vec![0; self.len()];
        for &old in &self.old_of_new {
            let place = &mut next[types.node_type(old)];
            old_of_new[*place as usize] = old;
            *place += 1;
        }
        Self::new(old_of_new)
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.old_of_new.len()
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.old_of_new.is_empty()
    }

    /// By new number, the old one.
    pub fn old_of_new(&self) -> &[u32] {
        &self.old_of_new
    }

    /// By old number, the new one.
    pub fn new_of_old(&self) -> &[u32] {
        bytemuck::cast_slice(&self.new_of_old)
    }
}

/// Bits that ascend as the floats do; both zeros are the same.
fn ascending_bits(value: f32) -> u32 {
    let bits = (value + 0.0).to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

/// The first fault of what is no order.
fn fault(nodes: &[u32]) -> Error {
    let mut seen = vec![false; nodes.len()];
    let cure = "list every node once, the hottest first";
    for (position, &node) in nodes.iter().enumerate() {
        let what = match seen.get_mut(node as usize) {
            None => format!("position {position} has node {node}, and there are {} nodes", nodes.len()),
            Some(seen) if *seen => format!("position {position} has node {node} for the second time"),
            Some(seen) => {
                *seen = true;
                continue;
            }
        };
        return Error::argument("order", what, cure);
    }
    Error::argument("order", format!("{} nodes are more than a dataset may have", nodes.len()), cure)
}

fn invalid(path: &Path, at: Position, what: String, cure: &str) -> Error {
    morphgl_graph_store::Error::invalid(path, at, what, cure).into()
}

/// The elements of a one-dimensional array, each as a node.
fn nodes<T: Element + TryInto<u32>>(path: &Path) -> Result<Vec<u32>> {
    let (array, shape) = read_npy::<T>(path, Load::Mmap)?;
    if shape.len() != 1 {
        let cure = "save a list of nodes, the hottest first";
        return Err(invalid(path, Position::File, format!("an order has 1 dimension, not {}", shape.len()), cure));
    }
    let node = |(i, &value): (usize, &T)| {
        value.try_into().map_err(|_| {
            let cure = "list every node once, the hottest first";
            invalid(path, Position::Element(i as u64), format!("{value:?} is no node"), cure)
        })
    };
    array.iter().enumerate().map(node).collect()
}

#[cfg(test)]
mod tests;
