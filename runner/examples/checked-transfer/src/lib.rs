#![doc = include_str!("../README.md")]

mod check;

use std::sync::Arc;
use std::time::Instant;

use morphgl_graph_store::{Dataset, FeatureMatrix};
use morphgl_registry::{
    At, BatchFeatures, Build, Description, Error, Handle, Hardware, Key, MiniBatch, Phase, Result, Transferring,
    TransferringContext,
};

pub use check::check;

/// The operator's key.
pub const KEY: Key = Key::new(Phase::Transferring, Hardware::CPU, "Checked");

/// Moves nothing, fills in features, and checks every mini-batch.
#[derive(Debug)]
pub struct Checked {
    dataset: Arc<Dataset>,
    gather: bool,
}

impl Transferring for Checked {
    fn transfer(&mut self, batch: MiniBatch) -> Result<Handle<MiniBatch>> {
        let start = Instant::now();
        let mut batch = batch.into_host()?;
        check(&batch, self.dataset.num_nodes())
            .map_err(|fault| Error::failed(KEY, format!("{}: {fault}", batch.id)))?;
        if let (true, None, Some(features)) = (self.gather, &batch.features, &self.dataset.features) {
            batch.features = Some(gather(features, &batch.input_nodes));
        }
        Ok(Handle::ready(MiniBatch::Host(batch), start.elapsed()))
    }
}

fn gather(features: &FeatureMatrix, nodes: &[u32]) -> BatchFeatures {
    let mut gathered = BatchFeatures::like(features);
    features.gather_rows(nodes, gathered.resize(nodes.len(), features.dim(), features.dtype()));
    gathered
}

fn build(context: &TransferringContext) -> Result<Box<dyn Transferring>> {
    Ok(Box::new(Checked { dataset: Arc::clone(&context.dataset), gather: context.gather }))
}

/// What is registered.
pub const DESCRIPTION: Description = Description::new(
    KEY,
    "moves nothing, checks every mini-batch on its way",
    At::Host,
    At::Host,
    Build::Transferring(build),
);

morphgl_registry::submit! { DESCRIPTION }
