//! The dataset that a command works on.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use morphgl_graph_store::{Dataset, Load, Meta, OpenOptions};
use morphgl_plan::Time;
use morphgl_registry::{At, Machine};

use super::batch::BatchArgs;
use super::show::{self, Show};
use crate::registry;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Data")]
pub(crate) struct DataArgs {
    /// Directory of the dataset [default: a generated graph of 50,000 nodes]
    pub(crate) dataset: Option<PathBuf>,
    /// Map the dataset's files instead of reading them to memory
    #[arg(long, requires = "dataset")]
    pub(crate) mmap: bool,
    /// Skip checksums and the search for NaN features when opening the dataset
    #[arg(long, requires = "dataset")]
    pub(crate) no_verify: bool,
}

impl DataArgs {
    /// Opens the dataset, or generates the embedded default; leaves one on disk that does not fit in the memory there is, or
    /// that is to be batched from there. Then, with the bytes that may be held of it: half of the memory less the program's own.
    pub(crate) fn open_within(
        &self,
        memory: Option<u64>,
        batch: &BatchArgs,
        show: Show,
    ) -> anyhow::Result<(Arc<Dataset>, Option<u64>)> {
        let Some(path) = self.dataset.as_ref().filter(|_| !self.mmap) else { return Ok((self.open(show)?, None)) };
        let meta = Meta::read(path)?;
        let bytes: u64 = meta.arrays.values().map(|a| a.shape.iter().product::<u64>() * a.dtype.size() as u64).sum();
        let memory = memory.unwrap_or_else(|| Machine::probe().available_bytes / 10 * 9);
        let asked = match &batch.batching {
            Some(key) => registry()?.get(key)?.reads == At::Disk,
            None => false,
        };
        if !asked && fits(bytes, memory) {
            return Ok((self.open(show)?, None));
        }
        let start = Instant::now();
        let dataset = Arc::new(Dataset::open(path, OpenOptions { load: Load::Disk, verify: false })?);
        let share = memory.saturating_sub(BESIDE) / 2;
        let (bytes, memory, half) = (show::bytes(bytes), show::bytes(memory), show::bytes(share));
        let why = if asked { "as asked" } else { "it does not fit" };
        show.say(format_args!(
            "left on disk ({why}): {bytes} of dataset, {memory} of memory, {half} of it to hold what is used most"
        ));
        describe(&dataset, start, show);
        Ok((dataset, Some(share)))
    }

    /// Opens the dataset, or generates the embedded default.
    pub(crate) fn open(&self, show: Show) -> anyhow::Result<Arc<Dataset>> {
        let start = Instant::now();
        let dataset = match &self.dataset {
            Some(path) => open(path, self.mmap, !self.no_verify)?,
            None => Arc::new(crate::default_dataset()),
        };
        describe(&dataset, start, show);
        Ok(dataset)
    }
}

fn describe(dataset: &Dataset, start: Instant, show: Show) {
    show.say(format_args!(
        "{}: {} nodes, {} edges, {} features, {} classes ({})",
        dataset.name,
        show::number(dataset.num_nodes() as u64),
        show::number(dataset.topology.num_edges()),
        dataset.feature_dim(),
        dataset.num_classes,
        Time(start.elapsed().as_secs_f64()),
    ));
}

/// What of the memory a dataset in memory may take: the rest is for the program, the model, a step and its mini-batches.
fn fits(dataset: u64, memory: u64) -> bool {
    dataset <= memory / 4 * 3
}

/// Kept free of what is held of a dataset on disk, whatever is allowed: for the program, a small model and its steps.
const BESIDE: u64 = 64 << 20;

pub(crate) fn open(path: &Path, mmap: bool, verify: bool) -> anyhow::Result<Arc<Dataset>> {
    let load = if mmap { Load::Mmap } else { Load::Ram };
    Ok(Arc::new(Dataset::open(path, OpenOptions { load, verify })?))
}
