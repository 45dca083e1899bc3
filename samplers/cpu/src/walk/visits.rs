//! The nodes that walks visited most often.

/// Number of visits up to which they are counted by comparing each with all nodes counted before; more are sorted.
const FEW: usize = 64;

/// Counts visits; its memory is reused.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    /// Each node visited, its number of visits, and its place in the order of first visits.
    counts: Vec<(u32, u32, u32)>,
    /// The visits with their positions.
    sorted: Vec<(u32, u32)>,
}

impl Counter {
    /// The (at most) `limit` nodes visited most often and their visits, descending; of nodes visited equally often, those
    /// visited first come first. `visits` are in the order of walks and steps, and those of `ignored` are not counted.
    ///
    /// # Complexity
    ///
    /// O(n · distinct nodes) for up to 64 visits, O(n log n) beyond.
    pub(crate) fn most_visited(
        &mut self,
        visits: &[u32],
        ignored: [u32; 2],
        limit: usize,
    ) -> impl Iterator<Item = (u32, f32)> + '_ {
        self.counts.clear();
        if visits.len() <= FEW {
            self.count_few(visits, ignored)
        } else {
            self.count_many(visits, ignored)
        }
        let order = |&(_, visits, first): &(u32, u32, u32)| (std::cmp::Reverse(visits), first);
        self.counts.sort_unstable_by_key(order);
        self.counts.iter().take(limit).map(|&(node, visits, _)| (node, visits as f32))
    }

    fn count_few(&mut self, visits: &[u32], ignored: [u32; 2]) {
        for (first, &node) in visits.iter().enumerate().filter(|(_, node)| !ignored.contains(node)) {
            match self.counts.iter_mut().find(|(visited, ..)| *visited == node) {
                Some((_, count, _)) => *count += 1,
                None => self.counts.push((node, 1, first as u32)),
            }
        }
    }

    fn count_many(&mut self, visits: &[u32], ignored: [u32; 2]) {
        self.sorted.clear();
        self.sorted.extend(visits.iter().copied().zip(0..).filter(|(node, _)| !ignored.contains(node)));
        self.sorted.sort_unstable();
        let nodes = self.sorted.chunk_by(|a, b| a.0 == b.0);
        self.counts.extend(nodes.map(|visits| (visits[0].0, visits.len() as u32, visits[0].1)));
    }
}

#[cfg(test)]
mod tests;
