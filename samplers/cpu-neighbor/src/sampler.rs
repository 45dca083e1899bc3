//! The operator, and the state that all workers share.

use std::sync::Arc;

use morphgl_graph_store::{Dataset, Topology};
use morphgl_registry::{Batching, BatchingContext, BatchingWorker, Error, Result, SamplerSettings};
use morphgl_sampler_core::{Epochs, check_host, check_settings, weight_sum};
use rayon::prelude::*;

use crate::frontier::Expected;
use prepare::Worker;

mod prepare;

/// Phase Batching by neighbour sampling on CPU threads, `Batching_CPU_Neighbor`.
#[derive(Debug, Clone)]
pub struct CpuNeighbor(Arc<Shared>);

/// State that all workers read.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) dataset: Arc<Dataset>,
    pub(crate) settings: SamplerSettings,
    pub(crate) gather: bool,
    /// Sum of each node's edge weights, where the graph has weights.
    pub(crate) weight_sums: Option<Vec<f32>>,
    pub(crate) epochs: Epochs,
    pub(crate) expected: Arc<Expected>,
}

impl CpuNeighbor {
    /// Builds the operator.
    ///
    /// # Errors
    ///
    /// A place other than the host, options (it has none), and what [`check_settings`] refuses.
    ///
    /// # Complexity
    ///
    /// O(nodes), with edge weights O(nodes + edges) and four bytes a node.
    pub fn new(context: &BatchingContext) -> Result<Self> {
        let BatchingContext { dataset, seeds, settings, gather, place, options } = context;
        check_host(place)?;
        if !(options.is_null() || options.as_object().is_some_and(|o| o.is_empty())) {
            return Err(Error::setting("options", format!("Batching_CPU_Neighbor has none; remove {options}")));
        }
        check_settings(&dataset.topology, seeds, settings)?;
        Ok(Self(Arc::new(Shared {
            dataset: Arc::clone(dataset),
            settings: settings.clone(),
            gather: *gather && dataset.features.is_some(),
            weight_sums: weight_sums(&dataset.topology),
            epochs: Epochs::new(seeds, settings),
            expected: Arc::default(),
        })))
    }
}

/// Sum of each node's edge weights.
fn weight_sums(topology: &Topology) -> Option<Vec<f32>> {
    let weights: &[f32] = topology.weights()?;
    let sum = |row: &[u64]| weight_sum(&weights[row[0] as usize..row[1] as usize]);
    Some(topology.indptr().par_windows(2).map(sum).collect())
}

impl Batching for CpuNeighbor {
    fn num_batches(&self) -> usize {
        self.0.epochs.num_batches()
    }

    fn worker(&self, threads: usize) -> Result<Box<dyn BatchingWorker>> {
        Ok(Box::new(Worker::new(Arc::clone(&self.0), threads)?))
    }
}
