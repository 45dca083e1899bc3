//! Seeds of a mini-batch, or its pairs: a slice of its epoch's order.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use morphgl_registry::{BatchId, Error, Place, Result, SamplerSettings, SeedSet};

use crate::permute;

/// Number of cached orders: workers pass from one epoch to the next at different times.
const ORDERS: usize = 2;

/// The seeds of every epoch, in its order; shared by the workers of an operator.
#[derive(Debug)]
pub struct Epochs {
    seeds: SeedSet,
    batch_size: usize,
    shuffle: bool,
    seed: u64,
    orders: Mutex<Vec<Order>>,
}

/// The seeds in the order of an epoch.
#[derive(Debug, Clone)]
pub struct Order {
    /// The epoch.
    pub epoch: u32,
    /// The seeds; of pairs and of rows, their indices among those given.
    pub nodes: Arc<[u32]>,
}

impl Epochs {
    /// Bytes of the orders per seed, or pair.
    pub const BYTES_A_SEED: u64 = 4 * ORDERS as u64;

    /// Epochs over `seeds`, with settings accepted by [`check_limits`](crate::check_limits).
    pub fn new(seeds: &SeedSet, settings: &SamplerSettings) -> Self {
        let SamplerSettings { batch_size, shuffle, seed, .. } = *settings;
        Self { seeds: seeds.clone(), batch_size, shuffle, seed, orders: Mutex::default() }
    }

    /// The seeds, nodes or rows, or the pairs.
    pub fn seed_set(&self) -> &SeedSet {
        &self.seeds
    }

    /// Number of seeds, or of pairs.
    pub fn num_seeds(&self) -> usize {
        self.seeds.num_examples()
    }

    /// Number of mini-batches of an epoch.
    pub fn num_batches(&self) -> usize {
        self.num_seeds().div_ceil(self.batch_size)
    }

    /// The seeds, or the indices of the pairs or rows, in the order of `epoch`, computed by the first worker that needs it.
    pub fn order(&self, epoch: u32) -> Order {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(order) = orders.iter().find(|order| order.epoch == epoch || !self.shuffle) {
            return Order { epoch, nodes: Arc::clone(&order.nodes) };
        }
        let are_nodes = self.seeds.pairs().is_none() && self.seeds.rows().is_none();
        let mut nodes: Arc<[u32]> =
            if are_nodes { self.seeds.nodes().into() } else { (0..self.num_seeds() as u32).collect() };
        if self.shuffle {
            permute(self.seed, epoch, Arc::get_mut(&mut nodes).expect("the only reference"));
        }
        let order = Order { epoch, nodes };
        if orders.len() == ORDERS {
            orders.remove(0);
        }
        orders.push(order.clone());
        order
    }

    /// Positions of a share of a mini-batch in the order of its epoch: [`seed_positions`] of these epochs.
    ///
    /// # Errors
    ///
    /// An epoch has no such mini-batch, or it has no seed at these positions.
    pub fn positions(&self, id: BatchId, share: Range<usize>) -> Result<Range<usize>> {
        seed_positions(self.num_seeds(), self.batch_size, id, share)
    }

    /// The seeds of a share of a mini-batch, or the indices of its pairs or rows, as [`seed_positions`] has them; `order` is the worker's copy, replaced when the
    /// epoch changes.
    ///
    /// # Errors
    ///
    /// An epoch has no such mini-batch, or it has no seed at these positions.
    pub fn seeds<'o>(&self, id: BatchId, share: Range<usize>, order: &'o mut Option<Order>) -> Result<&'o [u32]> {
        let positions = self.positions(id, share)?;
        if order.as_ref().is_none_or(|order| order.epoch != id.epoch) {
            *order = Some(self.order(id.epoch));
        }
        Ok(&order.as_ref().expect("set above").nodes[positions])
    }
}

/// Positions, in the epoch's order of `num_seeds` seeds, of the seeds at positions `share` of the mini-batch `id`. The last
/// mini-batch may have fewer than `batch_size` seeds, and positions behind its last seed are left out.
///
/// # Errors
///
/// An epoch has no such mini-batch, or it has no seed at these positions.
pub fn seed_positions(num_seeds: usize, batch_size: usize, id: BatchId, share: Range<usize>) -> Result<Range<usize>> {
    let num_batches = num_seeds.div_ceil(batch_size);
    if id.index as usize >= num_batches {
        return Err(Error::setting(id, format!("an epoch has {num_batches}; ask for an index below that")));
    }
    let first = id.index as usize * batch_size;
    let size = batch_size.min(num_seeds - first);
    if share.start >= share.end.min(size) {
        return Err(Error::setting(id, format!("it has {size} seeds, none at {share:?}; give a share with a seed")));
    }
    Ok(first + share.start..first + share.end.min(size))
}

/// Checks that a sampler on the CPU is built for the host.
///
/// # Errors
///
/// Another place.
pub fn check_host(place: &Place) -> Result<()> {
    if *place == Place::Host {
        return Ok(());
    }
    let cure = "choose a sampler of that device";
    Err(Error::setting("place", format!("sampling on the CPU runs at host, not at {place}; {cure}")))
}

/// Checks that a worker has a thread.
///
/// # Errors
///
/// The number of threads is 0.
pub fn check_threads(threads: usize) -> Result<()> {
    if threads == 0 {
        let what = "0 threads make no mini-batch; give at least 1";
        return Err(Error::setting("threads of a batching worker", what));
    }
    Ok(())
}

/// Degree of a node by the weights of its edges: their sum in f64, in CSC order, rounded once.
#[inline]
pub fn weight_sum(weights: &[f32]) -> f32 {
    weights.iter().map(|&w| f64::from(w)).sum::<f64>() as f32
}

#[cfg(test)]
mod tests;
