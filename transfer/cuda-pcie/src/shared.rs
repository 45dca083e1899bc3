//! Gathers by device and dataset, shared by the operators of a process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use morphgl_cuda::Device;
use morphgl_graph_store::Dataset;
use morphgl_registry::{CacheCurve, Error, Key, Result, SamplerSettings, SeedSet, TransferringContext};
use serde_json::Value;

use crate::gather::Gather;
use crate::options::Options;

/// A gather, shared by all operators of the same device, dataset and options: hot rows are cached once, whichever operators
/// are built.
#[derive(Debug)]
pub(crate) struct SharedGather {
    device: Device,
    dataset: Arc<Dataset>,
    wanted: bool,
    options: Options,
    sampled: Option<(SeedSet, SamplerSettings)>,
    gather: Mutex<Gather>,
}

impl SharedGather {
    /// The gather for `operator` at the place that `context` goes to.
    pub(crate) fn open(operator: &Key, context: &TransferringContext, options: &Value) -> Result<Arc<Self>> {
        static GATHERS: Mutex<Vec<Weak<SharedGather>>> = Mutex::new(Vec::new());
        let TransferringContext { dataset, to, gather: wanted, sampled, .. } = context;
        let (options, device) = (Options::of(operator, options)?, Device::open(to, operator)?);
        let mut gathers = GATHERS.lock().unwrap_or_else(PoisonError::into_inner);
        gathers.retain(|gather| gather.strong_count() > 0);
        let same = |g: &Arc<Self>| {
            let same = (g.wanted, &g.options, &g.sampled) == (*wanted, &options, sampled);
            same && g.device.is(&device) && Arc::ptr_eq(&g.dataset, dataset)
        };
        if let Some(found) = gathers.iter().filter_map(Weak::upgrade).find(same) {
            return Ok(found);
        }
        let gather = Mutex::new(Gather::new(operator, &device, context, options.clone())?);
        let shared = Arc::new(Self {
            device,
            dataset: Arc::clone(dataset),
            wanted: *wanted,
            options,
            sampled: sampled.clone(),
            gather,
        });
        gathers.push(Arc::downgrade(&shared));
        Ok(shared)
    }

    /// [`SharedGather::open`] for mini-batches of a device, of which the host does not know the rows that they need.
    ///
    /// # Errors
    ///
    /// The option `host_bytes`, and as [`SharedGather::open`].
    pub(crate) fn open_in_memory(operator: &Key, context: &TransferringContext, options: &Value) -> Result<Arc<Self>> {
        if options.get("host_bytes").is_some() {
            let message = "options: host_bytes: the host does not know which rows its mini-batches need; give none, and features in memory";
            return Err(Error::setting(operator, message));
        }
        Self::open(operator, context, options)
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// The curve of its cache. A device that fails has none: its next mini-batch says why.
    pub(crate) fn curve(&self) -> Option<CacheCurve> {
        self.lock().curve().ok().flatten()
    }

    /// Locks the gather: only one operator at a time uses it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Gather> {
        // A panic leaves a gather of some state between two mini-batches: its cache is filled or off.
        self.gather.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
