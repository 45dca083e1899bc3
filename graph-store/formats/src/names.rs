//! Node ids that are text: numbered while edges are read, and anew in the order of the names when all are known.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use morphgl_graph_store::{MAX_NODES, Result};
use rayon::prelude::*;

use crate::Ingest;
use crate::tabular::Texts;

/// Distinct names, numbered in the order of first appearance.
///
/// All names are held in memory: their bytes, and about 30 bytes of index each.
#[derive(Default)]
pub(crate) struct Names {
    texts: Texts,
    /// Numbers by the hash of their name, with a list where several names have the same hash.
    numbers: HashMap<u64, Numbers>,
    hasher: RandomState,
}

enum Numbers {
    One(u32),
    More(Vec<u32>),
}

impl Names {
    fn name(&self, number: u32) -> &[u8] {
        self.texts.get(number as usize)
    }

    /// The number of a name; `None` where there are more names than nodes can have.
    pub(crate) fn number(&mut self, name: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(name);
        let known = match self.numbers.get(&hash) {
            Some(Numbers::One(number)) => Some(*number).filter(|&number| self.name(number) == name),
            Some(Numbers::More(numbers)) => numbers.iter().copied().find(|&number| self.name(number) == name),
            None => None,
        };
        if known.is_some() {
            return known;
        }
        let number = u32::try_from(self.texts.len()).ok().filter(|&n| u64::from(n) < MAX_NODES)?;
        self.texts.push(name);
        match self.numbers.entry(hash).or_insert(Numbers::One(number)) {
            Numbers::One(first) if *first == number => {}
            Numbers::One(first) => {
                let first = *first;
                self.numbers.insert(hash, Numbers::More(vec![first, number]));
            }
            Numbers::More(numbers) => numbers.push(number),
        }
        Some(number)
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
