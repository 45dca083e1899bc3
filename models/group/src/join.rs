//! Operators of one trainer of a group: they wrap those of a trainer that trains by itself.

use std::sync::Arc;

use morphgl_registry::{Error, Operators, Result, RouteOperators, TrainingOperator};

use crate::share::{SeedShare, ShareBatching, ShareTransferring};
use crate::step::GroupTraining;
use crate::{AllReduceHook, Division, Exchange, StopTogether, VirtualSteps};

/// A trainer's place in a group.
#[derive(Debug)]
pub struct GroupMember {
    /// Its end of the exchange.
    pub exchange: Box<dyn Exchange>,
    /// Which seeds each trainer has.
    pub division: Arc<dyn Division>,
    /// Seeds of an epoch; of pairs its positives.
    pub num_seeds: usize,
    /// Seeds of a whole mini-batch.
    pub batch_size: usize,
    /// How the group ends early; `None` where it never does.
    pub stop: Option<StopTogether>,
    /// Hook that is called after every all-reduce.
    pub observe: Option<AllReduceHook>,
    /// Bytes from which on a bucket of gradients is all-reduced while backward goes on; 0 all-reduces all of them after it. The
    /// same at all trainers; [`BUCKET_BYTES`](crate::BUCKET_BYTES) is a good value.
    pub bucket_bytes: usize,
    /// How steps last in virtual time; `None` in real time.
    pub virtual_steps: Option<VirtualSteps>,
}

/// The operators of one trainer of a group: its routes make and move its share of each mini-batch, and `train` of its training
/// operator takes one step with all other trainers (`docs/design.md` §8).
///
/// # Errors
///
/// There is not exactly one training operator.
pub fn join(operators: Operators, member: GroupMember) -> Result<Operators> {
    let Operators { routes, mut trainers } = operators;
    let GroupMember { exchange, division, num_seeds, batch_size, stop, observe, bucket_bytes, virtual_steps } = member;
    let (Some(trainer), true) = (trainers.pop(), trainers.is_empty()) else {
        return Err(Error::setting("group", "a trainer of a group has one training operator; keep one"));
    };
    let share = SeedShare { division: Arc::clone(&division), rank: exchange.rank(), num_seeds, batch_size };
    let routes = routes.into_iter().map(|RouteOperators { route, batching, transferring }| RouteOperators {
        route,
        batching: Arc::new(ShareBatching { inner: batching, share: share.clone() }),
        transferring: Box::new(ShareTransferring(transferring)),
    });
    let TrainingOperator { key, place, operator: inner } = trainer;
    let (buckets, values, last) = (Vec::new(), Vec::new(), None);
    let operator =
        GroupTraining { inner, exchange, division, stop, observe, bucket_bytes, virtual_steps, buckets, values, last };
    let trainers = vec![TrainingOperator { key, place, operator: Box::new(operator) }];
    Ok(Operators { routes: routes.collect(), trainers })
}
