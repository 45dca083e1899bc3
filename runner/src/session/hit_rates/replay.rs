//! Dynamic caches, replayed with the accesses of a training.

use std::num::NonZeroU32;

use anyhow::Result;
use morphgl_registry::BatchId;
use morphgl_row_cache::{DynamicCache, Eviction};

use super::Sampled;

/// Bytes of a row while accesses are replayed: what it holds is not read.
const ROW: usize = 8;

impl Sampled {
    /// Hit rates of dynamic caches with room for so many rows each, in the epochs that [`count`](Self::count) counts. They are filled by the epoch
    /// after these.
    ///
    /// # Errors
    ///
    /// A mini-batch that cannot be sampled.
    ///
    /// # Complexity
    ///
    /// O(accesses · caches) expected, and the sampling of one more epoch; memory for all caches with rows of 8 bytes.
    pub(crate) fn replay(&self, eviction: Eviction, rows: &[usize], epochs: NonZeroU32) -> Result<Vec<f64>> {
        let cache = |&rows: &usize| {
            DynamicCache::new(
                eviction,
                ROW,
                if rows > 0 { DynamicCache::num_bytes_of(eviction, rows, ROW) } else { 0 },
                1,
            )
        };
        let caches: Vec<DynamicCache> = rows.iter().map(cache).collect();
        let mut worker = self.batching().worker(self.threads)?;
        let (mut hits, mut accesses, mut recycled) = (vec![0; caches.len()], 0, None);
        let (mut copied, mut missing) = (Vec::new(), Vec::new());
        for epoch in [epochs.get()].into_iter().chain(0..epochs.get()) {
            for index in 0..self.batching().num_batches() as u32 {
                let (batch, _) = worker.prepare(BatchId { epoch, index }, recycled.take())?.wait()?;
                let nodes = &batch.host()?.input_nodes;
                copied.resize(nodes.len() * ROW, 0);
                for (cache, hits) in caches.iter().zip(&mut hits) {
                    missing.clear();
                    let found = cache.gather(nodes, &mut copied, |_, node| missing.push(node));
                    missing.iter().for_each(|&node| _ = cache.insert(node, &[0; ROW]));
                    *hits += if epoch < epochs.get() { found as u64 } else { 0 };
                }
                accesses += if epoch < epochs.get() { nodes.len() as u64 } else { 0 };
                recycled = Some(batch);
            }
        }
        Ok(hits.into_iter().map(|hits| hits as f64 / accesses.max(1) as f64).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;

    use morphgl_generate::{SbmConfig, sbm};
    use morphgl_registry::{Fanouts, SamplerSettings};

    use super::*;
    use crate::RunContext;

    /// A list of the rows that were read last, searched from its front.
    struct Recent(VecDeque<u32>, usize);

    impl Recent {
        fn read(&mut self, nodes: &[u32]) -> u64 {
            let Self(list, room) = self;
            let mut missing = Vec::new();
            for &node in nodes {
                match list.iter().position(|&held| held == node) {
                    Some(at) => {
                        list.remove(at);
                        list.push_front(node);
                    }
                    None => missing.push(node),
                }
            }
            for node in &missing {
                list.push_front(*node);
                list.truncate(*room);
            }
            (nodes.len() - missing.len()) as u64
        }
    }

    #[test]
    fn least_recently_used_rows_are_evicted() -> Result<()> {
        let config = SbmConfig { nodes: 600, classes: 3, ..SbmConfig::default() };
        let fanouts: Fanouts = "3,2".parse()?;
        let settings = SamplerSettings { batch_size: 50, ..fanouts.into() };
        let sampled = Sampled::by(&RunContext::new()?, Arc::new(sbm(&config)?), settings)?;
        let (rows, epochs) = ([0, 64, 300, 600], NonZeroU32::new(2).expect("not 0"));
        let mut expected = [0; 4];
        let mut accesses = 0;
        let mut lists = rows.map(|room| Recent(VecDeque::new(), room));
        for epoch in [2, 0, 1] {
            for index in 0..sampled.batching().num_batches() as u32 {
                let (batch, _) = sampled.batching().worker(1)?.prepare(BatchId { epoch, index }, None)?.wait()?;
                let nodes = &batch.host()?.input_nodes;
                let hits = lists.each_mut().map(|list| list.read(nodes));
                if epoch < 2 {
                    accesses += nodes.len();
                    expected.iter_mut().zip(hits).for_each(|(sum, hits)| *sum += hits);
                }
            }
        }
        let expected = expected.map(|hits| hits as f64 / accesses as f64);
        assert_eq!(sampled.replay(Eviction::Lru, &rows, epochs)?, expected);
        let sieve = sampled.replay(Eviction::Sieve, &rows, epochs)?;
        assert_eq!([sieve[0], sieve[3]], [0.0, expected[3]], "of nothing, and of all rows");
        assert!(expected.is_sorted() && expected[3] > 0.9 && sieve.is_sorted(), "{expected:?}, {sieve:?}");
        Ok(())
    }
}
