//! Pre-sampling: accesses counted in mini-batches.

use morphgl_registry::{BatchId, Batching, Error, Result, SamplerSettings};

use crate::{Graph, Hotness, Policy};

/// Counts the accesses of the first mini-batches of an epoch (GNNLab, EuroSys'22, §6: PreSC), scaled to a whole one.
#[derive(Debug, Clone, Copy)]
pub struct PreSample<'a> {
    /// The sampler, for the seeds and settings that are scored; in host memory.
    pub batching: &'a dyn Batching,
    /// The epoch of the mini-batches, not one that is trained.
    pub epoch: u32,
    /// Maximum number of mini-batches.
    pub batches: usize,
}

impl Policy for PreSample<'_> {
    fn score(&self, graph: &dyn Graph, _: &[u32], _: &SamplerSettings) -> Result<Hotness> {
        let all = self.batching.num_batches();
        let count = self.batches.min(all);
        if count == 0 {
            return Err(Error::setting("pre-sampling", "0 mini-batches have no accesses; give at least 1"));
        }
        let scale = all as f32 / count as f32;
        let (mut features, mut rows) = (vec![0f32; graph.num_nodes()], vec![0f32; graph.num_nodes()]);
        let (mut worker, mut recycled) = (self.batching.worker(1)?, None);
        for index in 0..count as u32 {
            let (batch, _) = worker.prepare(BatchId { epoch: self.epoch, index }, recycled.take())?.wait()?;
            let host = batch.host()?;
            host.input_nodes.iter().for_each(|&v| features[v as usize] += scale);
            for block in &host.blocks {
                let expanded = (0..block.num_dst).filter(|&row| !block.row(row).is_empty());
                expanded.for_each(|row| rows[host.input_nodes[row] as usize] += scale);
            }
            recycled = Some(batch);
        }
        Ok(Hotness { features: features.into(), rows: rows.into() })
    }
}
