//! The operator: what all workers share.

use std::sync::{Arc, Mutex, PoisonError};

use morphgl_graph_store::{Dataset, Topology};
use morphgl_registry::{Batching, BatchingContext, BatchingWorker, Error, Place, Result, SamplerSettings, SeedSet};
use morphgl_sampler_core::{check_settings, permute};
use rayon::prelude::*;

use crate::prepare::Worker;

/// Epochs whose order is kept: workers pass from one epoch to the next at different times.
const ORDERS: usize = 2;

/// Phase Batching by neighbour sampling on CPU threads, `Batching_CPU_Neighbor`.
#[derive(Debug, Clone)]
pub struct CpuNeighbor(Arc<Shared>);

/// What all workers read.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) dataset: Arc<Dataset>,
    pub(crate) settings: SamplerSettings,
    pub(crate) gather: bool,
    /// Sum of each node's edge weights, where the graph has weights.
    pub(crate) weight_sums: Option<Vec<f32>>,
    seeds: SeedSet,
    orders: Mutex<Vec<Order>>,
}

/// The seeds in the order of an epoch.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub(crate) epoch: u32,
    pub(crate) nodes: Arc<[u32]>,
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
        if *place != Place::Host {
            return Err(Error::setting(
                "place",
                format!("sampling on the CPU runs at host, not at {place}; choose a sampler of that device"),
            ));
        }
        if !(options.is_null() || options.as_object().is_some_and(|o| o.is_empty())) {
            return Err(Error::setting("options", format!("Batching_CPU_Neighbor has none; remove {options}")));
        }
        check_settings(&dataset.topology, seeds, settings)?;
        Ok(Self(Arc::new(Shared {
            dataset: Arc::clone(dataset),
            settings: settings.clone(),
            gather: *gather && dataset.features.is_some(),
            weight_sums: weight_sums(&dataset.topology),
            seeds: seeds.clone(),
            orders: Mutex::default(),
        })))
    }
}

/// Sum of each node's edge weights in f64, in CSC order, rounded once.
fn weight_sums(topology: &Topology) -> Option<Vec<f32>> {
    let weights: &[f32] = topology.weights()?;
    let sum = |row: &[u64]| weights[row[0] as usize..row[1] as usize].iter().map(|&w| f64::from(w)).sum::<f64>() as f32;
    Some(topology.indptr().par_windows(2).map(sum).collect())
}

impl Shared {
    pub(crate) fn num_batches(&self) -> usize {
        self.seeds.nodes().len().div_ceil(self.settings.batch_size)
    }

    /// The seeds in the order of `epoch`, made by the worker that asks first.
    pub(crate) fn order(&self, epoch: u32) -> Order {
        let shuffle = self.settings.shuffle;
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(order) = orders.iter().find(|order| order.epoch == epoch || !shuffle) {
            return Order { epoch, nodes: Arc::clone(&order.nodes) };
        }
        let mut nodes: Arc<[u32]> = self.seeds.nodes().into();
        if shuffle {
            permute(self.settings.seed, epoch, Arc::get_mut(&mut nodes).expect("nobody else knows it yet"));
        }
        let order = Order { epoch, nodes };
        if orders.len() == ORDERS {
            orders.remove(0);
        }
        orders.push(order.clone());
        order
    }
}

impl Batching for CpuNeighbor {
    fn num_batches(&self) -> usize {
        self.0.num_batches()
    }

    fn worker(&self, threads: usize) -> Result<Box<dyn BatchingWorker>> {
        Ok(Box::new(Worker::new(Arc::clone(&self.0), threads)?))
    }
}
