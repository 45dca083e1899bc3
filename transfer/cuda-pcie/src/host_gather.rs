//! The gather by the host, for mini-batches of the device.

use std::sync::Arc;

use morphgl_cuda::{BACKEND, CudaBatch, Device, Staging, Stream, accelerators, pending, probe};
use morphgl_graph_store::Dataset;
use morphgl_registry::{
    At, Build, Counters, Description, Error, Handle, Hardware, Key, LINK_BYTES, MiniBatch, Phase, Resource, Result,
    Transferring, TransferringContext,
};
use serde::Deserialize;

/// Name of the gather by the host: `Transferring_CPU+PCIe_HostGather`.
pub const HOST_GATHER_KEY: Key =
    Key::new(Phase::Transferring, Hardware::new(&[Resource::CPU, Resource::PCIE]), "HostGather");

/// The gather by the host for mini-batches of the device.
pub const HOST_GATHER: Description = Description::new(
    HOST_GATHER_KEY,
    "copies the node ids of mini-batches that a CUDA device sampled to the host, which gathers their features into pinned memory and \
     copies these",
    At::Device(BACKEND),
    At::Device(BACKEND),
    Build::Transferring(|context| Ok(Box::new(HostGather::new(context)?))),
)
.taking_pairs()
.with_probe(probe)
.with_accelerators(accelerators)
.with_options(&[Staging::DEPTH])
.with_counters(&[LINK_BYTES]);

morphgl_registry::submit! { HOST_GATHER }

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    depth: Option<usize>,
}

/// Phase Transferring on a CUDA device, `Transferring_CPU+PCIe_HostGather`: the device samples and the host gathers (NeutronOrch §3.1,
/// Case 2).
///
/// It does not queue: the host needs the ids before it gathers.
#[derive(Debug)]
pub struct HostGather {
    dataset: Arc<Dataset>,
    gather: bool,
    stream: Stream,
    staging: Staging,
}

impl HostGather {
    /// Builds the operator. Option `depth` (3): maximum mini-batches in pinned memory.
    ///
    /// # Errors
    ///
    /// Places other than one CUDA device of this machine, or an invalid option.
    pub fn new(context: &TransferringContext) -> Result<Self> {
        let TransferringContext { dataset, from, to, gather, options, .. } = context;
        if from != to {
            let message = format!("it fills in mini-batches in place, and cannot go from {from} to {to}");
            return Err(Error::setting(HOST_GATHER_KEY, message));
        }
        let options = Option::<Options>::deserialize(options);
        let options =
            options.map_err(|e| Error::setting(HOST_GATHER_KEY, format!("options: {e}")))?.unwrap_or_default();
        let staging = Staging::new(&HOST_GATHER_KEY, options.depth)?;
        let stream = Stream::new(&Device::open(to, &HOST_GATHER_KEY)?, true)?;
        Ok(Self { dataset: Arc::clone(dataset), gather: *gather, stream, staging })
    }
}

impl Transferring for HostGather {
    fn transfer(&mut self, batch: MiniBatch) -> Result<Handle<MiniBatch>> {
        let mut batch = CudaBatch::into_on(self.stream.device(), batch)?;
        self.staging.wait_for_room()?;
        self.stream.wait(&batch.ready)?;
        let start = self.stream.record(true)?;
        let matrix = self.dataset.features.as_ref().filter(|_| self.gather && batch.features.is_none());
        let mut counters = Counters::NONE;
        if let Some(matrix) = matrix {
            let nodes = batch.input_nodes.to_vec(&self.stream)?;
            let (features, num_bytes) = self.staging.send_rows(&self.stream, &nodes, matrix)?;
            batch.features = Some(features);
            batch.ready = self.stream.record(false)?;
            counters = counters.with(&LINK_BYTES, size_of_val(&nodes[..]) as u64 + num_bytes);
        }
        let filled = pending(start, self.stream.record(true)?, move || Ok(MiniBatch::Device(batch)));
        Ok(filled.counting(counters))
    }
}
