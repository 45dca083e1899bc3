//! Seeds of a mini-batch: a slice of its epoch's order.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use morphgl_registry::{BatchId, Error, Place, Result, SamplerSettings, SeedSet};

use crate::permute;

/// Epochs whose order is kept: workers pass from one epoch to the next at different times.
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
    /// The seeds.
    pub nodes: Arc<[u32]>,
}

impl Epochs {
    /// Bytes that the orders take, a seed.
    pub const BYTES_A_SEED: u64 = 4 * ORDERS as u64;

    /// Epochs over `seeds`, with settings that [`check_limits`](crate::check_limits) has passed.
    pub fn new(seeds: &SeedSet, settings: &SamplerSettings) -> Self {
        let SamplerSettings { batch_size, shuffle, seed, .. } = *settings;
        Self { seeds: seeds.clone(), batch_size, shuffle, seed, orders: Mutex::default() }
    }

    /// Number of seeds.
    pub fn num_seeds(&self) -> usize {
        self.seeds.nodes().len()
    }

    /// Number of mini-batches an epoch has.
    pub fn num_batches(&self) -> usize {
        self.num_seeds().div_ceil(self.batch_size)
    }

    /// The seeds in the order of `epoch`, made by the first worker that needs it.
    pub fn order(&self, epoch: u32) -> Order {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(order) = orders.iter().find(|order| order.epoch == epoch || !self.shuffle) {
            return Order { epoch, nodes: Arc::clone(&order.nodes) };
        }
        let mut nodes: Arc<[u32]> = self.seeds.nodes().into();
        if self.shuffle {
            permute(self.seed, epoch, Arc::get_mut(&mut nodes).expect("nobody else knows it yet"));
        }
        let order = Order { epoch, nodes };
        if orders.len() == ORDERS {
            orders.remove(0);
        }
        orders.push(order.clone());
        order
    }

    /// The seeds of a share of a mini-batch: those at positions `share` of it, as far as it has them. `order` is the worker's
    /// own, made anew where it is of another epoch.
    ///
    /// # Errors
    ///
    /// An epoch has no such mini-batch, or there is no seed at these positions.
    pub fn seeds<'o>(&self, id: BatchId, share: Range<usize>, order: &'o mut Option<Order>) -> Result<&'o [u32]> {
        let positions = seed_positions(self.num_seeds(), self.batch_size, id, share)?;
        if order.as_ref().is_none_or(|known| known.epoch != id.epoch) {
            *order = Some(self.order(id.epoch));
        }
        Ok(&order.as_ref().expect("it was just made").nodes[positions])
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
/// It is given none.
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
mod tests {
    use super::*;

    fn epochs(shuffle: bool) -> Epochs {
        let seeds = SeedSet::new("seeds", &[4, 2, 9, 7, 1], 10).expect("seeds of ten nodes");
        Epochs::new(&seeds, &SamplerSettings { batch_size: 2, shuffle, ..SamplerSettings::default() })
    }

    #[test]
    fn an_epoch_has_every_seed_once() {
        for shuffle in [false, true] {
            let epochs = epochs(shuffle);
            let mut order = None;
            for epoch in [0, 1, 2, 1, 0] {
                let batches = (0..3).map(|index| BatchId { epoch, index });
                let found: Vec<Vec<u32>> = batches
                    .map(|id| epochs.seeds(id, 0..usize::MAX, &mut order).expect("a mini-batch").to_vec())
                    .collect();
                assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1]);
                let mut expected = epochs.seeds.nodes().to_vec();
                if shuffle {
                    permute(epochs.seed, epoch, &mut expected);
                }
                assert_eq!(found.concat(), expected, "epoch {epoch}");
            }
            let kept = epochs.orders.lock().expect("no thread panicked").len();
            assert_eq!(kept, if shuffle { ORDERS } else { 1 });
        }
    }

    #[test]
    fn a_mini_batch_after_the_last_is_refused() {
        let error =
            epochs(true).seeds(BatchId { epoch: 0, index: 3 }, 0..usize::MAX, &mut None).expect_err("there are three");
        assert!(error.to_string().ends_with("an epoch has 3; ask for an index below that"), "{error}");
    }

    #[test]
    fn another_place_is_refused() {
        assert!(check_host(&Place::Host).is_ok());
        let place = "cuda:0".parse().expect("a place");
        let error = check_host(&place).expect_err("no host").to_string();
        assert_eq!(error, "place: sampling on the CPU runs at host, not at cuda:0; choose a sampler of that device");
    }

    #[test]
    fn a_worker_has_a_thread() {
        assert!(check_threads(1).is_ok());
        assert!(check_threads(0).is_err_and(|e| e.to_string().ends_with("give at least 1")));
    }

    #[test]
    fn a_sum_is_rounded_once() {
        assert_eq!(weight_sum(&[16_777_216.0, 1.0, 1.0]), 16_777_218.0);
    }
}
