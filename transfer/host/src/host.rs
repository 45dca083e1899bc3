//! The operator.

use std::sync::Arc;
use std::time::Instant;

use morphgl_graph_store::Dataset;
use morphgl_platform::PagePool;
use morphgl_registry::{BatchFeatures, Error, Handle, MiniBatch, Place, Result, Transferring, TransferringContext};

/// Bytes of features above which they are gathered on the current rayon pool.
const PARALLEL_BYTES: usize = 1 << 20;

/// Phase Transferring from host to host, `Transferring_CPU_Host`.
#[derive(Debug, Clone)]
pub struct CpuHost {
    dataset: Arc<Dataset>,
    /// Whether missing features are gathered.
    gather: bool,
    /// Memory of gathered features. It returns when the features are dropped, at the latest when the batching worker recycles
    /// the mini-batch.
    pool: PagePool,
}

impl CpuHost {
    /// Builds the operator.
    ///
    /// # Errors
    ///
    /// A place other than the host, or options (it has none).
    pub fn new(context: &TransferringContext) -> Result<Self> {
        let TransferringContext { dataset, from, to, gather, options, .. } = context;
        if let Some(place) = [from, to].into_iter().find(|place| **place != Place::Host) {
            let message =
                format!("Transferring_CPU_Host knows the host alone, not {place}; choose a transfer of that device");
            return Err(Error::setting("place", message));
        }
        if !(options.is_null() || options.as_object().is_some_and(|o| o.is_empty())) {
            return Err(Error::setting("options", format!("Transferring_CPU_Host has none; remove {options}")));
        }
        Ok(Self { dataset: Arc::clone(dataset), gather: *gather, pool: PagePool::new() })
    }
}

impl Transferring for CpuHost {
    fn transfer(&mut self, batch: MiniBatch) -> Result<Handle<MiniBatch>> {
        let start = Instant::now();
        let mut batch = batch.into_host()?;
        if let (true, None, Some(matrix)) = (self.gather, &batch.features, &self.dataset.features) {
            let mut features = BatchFeatures::inside(self.pool.take(), matrix);
            let out = features.resize(batch.input_nodes.len(), matrix.dim(), matrix.dtype());
            if out.len() > PARALLEL_BYTES {
                matrix.par_gather_rows(&batch.input_nodes, out);
            } else {
                matrix.gather_rows(&batch.input_nodes, out);
            }
            batch.features = Some(features);
        }
        Ok(Handle::ready(MiniBatch::Host(batch), start.elapsed()))
    }
}
