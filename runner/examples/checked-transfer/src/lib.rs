#![doc = include_str!("../README.md")]

mod check;
mod gated;
pub mod labor;
pub mod mapped;

use std::sync::Arc;
use std::time::Instant;

use morphgl_graph_store::{Dataset, FeatureMatrix};
use morphgl_registry::{
    At, BatchFeatures, Build, CounterSpec, Counters, Description, Error, Handle, Hardware, Key, MiniBatch, OptionSpec,
    OptionType, Phase, Result, Transferring, TransferringContext,
};

pub use check::check;

/// The operator's key.
pub const KEY: Key = Key::new(Phase::Transferring, Hardware::CPU, "Checked");

/// Moves nothing, fills in features, and checks mini-batches.
#[derive(Debug)]
pub struct Checked {
    dataset: Arc<Dataset>,
    gather: bool,
    /// Interval between checked mini-batches.
    every: u32,
}

/// Option `every`.
const EVERY: OptionSpec = OptionSpec::new("every", OptionType::Count, "1", "check every so many mini-batches")
    .such_as(&["3"])
    .in_unit("mini-batches");

/// Number of checked mini-batches.
pub const CHECKED: CounterSpec = CounterSpec::new("checked_batches", "mini-batches that were checked");

impl Transferring for Checked {
    fn transfer(&mut self, batch: MiniBatch) -> Result<Handle<MiniBatch>> {
        let start = Instant::now();
        let mut batch = batch.into_host()?;
        let due = batch.id.index % self.every == 0;
        if due {
            check(&batch, self.dataset.num_nodes())
                .map_err(|fault| Error::failed(KEY, format!("{}: {fault}", batch.id)))?;
        }
        if let (true, None, Some(features)) = (self.gather, &batch.features, &self.dataset.features) {
            batch.features = Some(gather(features, &batch.input_nodes));
        }
        let counted = Counters::NONE.with(&CHECKED, due.into());
        Ok(Handle::ready(MiniBatch::Host(batch), start.elapsed()).counting(counted))
    }
}

fn gather(features: &FeatureMatrix, nodes: &[u32]) -> BatchFeatures {
    let mut gathered = BatchFeatures::like(features);
    features.gather_rows(nodes, gathered.resize(nodes.len(), features.dim(), features.dtype()));
    gathered
}

fn build(context: &TransferringContext) -> Result<Box<dyn Transferring>> {
    // The registry checks names and types of options, the operator their ranges.
    let every = context.options[EVERY.name].as_u64().unwrap_or(1);
    let every = u32::try_from(every).ok().filter(|&every| every > 0);
    let every = every.ok_or_else(|| Error::setting(KEY, "option every is out of range; give 1 or more"))?;
    Ok(Box::new(Checked { dataset: Arc::clone(&context.dataset), gather: context.gather, every }))
}

/// The description that is registered.
pub const DESCRIPTION: Description = Description::new(
    KEY,
    "moves nothing, checks every mini-batch on its way",
    At::Host,
    At::Host,
    Build::Transferring(build),
)
.with_options(&[EVERY])
.with_counters(&[CHECKED]);

morphgl_registry::submit! { DESCRIPTION }
