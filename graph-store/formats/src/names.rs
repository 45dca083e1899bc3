//! Node ids that are text: numbered while edges are read, and again in the order of the names at the end.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;

use morphgl_graph_store::{MAX_NODES, Result};
use rayon::prelude::*;

use crate::Ingest;
use crate::files::invalid;
use crate::tabular::Texts;

/// Distinct names, numbered in the order of first appearance.
///
/// All names are held in memory: their bytes, and about 30 bytes of index each.
#[derive(Default)]
pub(crate) struct Names {
    texts: Texts,
    /// Numbers by the hash of their name, or, where another name has the same hash, by the next free value.
    numbers: HashMap<u64, u32>,
    hasher: RandomState,
}

impl Names {
    /// The name of a number.
    pub(crate) fn name(&self, number: u32) -> &[u8] {
        self.texts.get(number as usize)
    }

    /// The number of a name; an error of `source` where there are more names than nodes can have.
    pub(crate) fn number(&mut self, name: &[u8], source: &Path) -> Result<u32> {
        let mut hash = self.hasher.hash_one(name);
        while let Some(&number) = self.numbers.get(&hash) {
            if self.name(number) == name {
                return Ok(number);
            }
            hash = hash.wrapping_add(1);
        }
        let number = self.texts.len() as u64;
        if number >= MAX_NODES {
            let what = format!("more than the {MAX_NODES} nodes that ids of 32 bits allow");
            return invalid(source, what, "cut the graph into smaller ones");
        }
        self.texts.push(name);
        self.numbers.insert(hash, number as u32);
        Ok(number as u32)
    }

    /// The number of a name; `None` where it has none yet.
    pub(crate) fn find(&self, name: &[u8]) -> Option<u32> {
        let mut hash = self.hasher.hash_one(name);
        loop {
            let number = *self.numbers.get(&hash)?;
            if self.name(number) == name {
                return Some(number);
            }
            hash = hash.wrapping_add(1);
        }
    }

    /// Number of names.
    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }

    /// Removes the names from the `len`-th on; returns how many, and the first ones of them, at most `few`. No name can be
    /// numbered afterwards.
    pub(crate) fn truncate(&mut self, len: usize, few: usize) -> (u64, Vec<String>) {
        let removed = len..self.texts.len();
        let quoted = |number: usize| format!("{:?}", String::from_utf8_lossy(self.texts.get(number)));
        let named = removed.clone().take(few).map(quoted).collect();
        self.numbers = HashMap::new();
        self.texts.truncate(len);
        (removed.len() as u64, named)
    }

    /// Writes the names sorted, as `node_names` and `node_name_ends`; returns the node of each number.
    pub(crate) fn finish(mut self, ingest: &mut Ingest<'_>) -> Result<Vec<u32>> {
        self.numbers = HashMap::new();
        let mut order: Vec<u32> = (0..self.texts.len() as u32).collect();
        order.par_sort_unstable_by(|&a, &b| self.name(a).cmp(self.name(b)));
        let (mut names, mut ends) =
            (ingest.writer.stream::<u8>("node_names")?, ingest.writer.stream::<u64>("node_name_ends")?);
        let mut node_of = vec![0; order.len()];
        for (node, &number) in order.iter().enumerate() {
            names.write(self.name(number))?;
            ends.write(&[names.len()])?;
            node_of[number as usize] = node as u32;
        }
        let (names, ends) = (names.finish(None)?, ends.finish(None)?);
        ingest.writer.add("node_names", names);
        ingest.writer.add("node_name_ends", ends);
        Ok(node_of)
    }
}

#[cfg(test)]
mod tests;
