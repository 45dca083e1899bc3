//! Training as one of a group of trainers: the job's place in the group, and what all have to agree on.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Result, bail};
use morphgl_execute::Stop;
use morphgl_group::{BUCKET_BYTES, Division, Exchange, GroupError, GroupMember, InferTogether, StopTogether, Weights};
use morphgl_registry::{GatherRows, Operators, Score, Training};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Evaluated, median};

/// How often an all-reduce is measured.
const ALL_REDUCES: usize = 5;

/// Bytes of one piece of a broadcast.
const PIECE: usize = 16 << 20;

/// One end of an exchange, shared by the training operator, which uses it during a step, and the program, between steps.
#[derive(Debug, Clone)]
pub struct SharedExchange(pub Arc<Mutex<dyn Exchange>>);

impl SharedExchange {
    fn lock(&self) -> MutexGuard<'_, dyn Exchange + 'static> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Exchange for SharedExchange {
    fn rank(&self) -> usize {
        self.lock().rank()
    }

    fn size(&self) -> usize {
        self.lock().size()
    }

    fn all_gather(&mut self, mine: &[u8]) -> morphgl_group::Result<Vec<Vec<u8>>> {
        self.lock().all_gather(mine)
    }

    fn all_reduce(&mut self, values: &mut [f32]) -> morphgl_group::Result<()> {
        self.lock().all_reduce(values)
    }

    fn bytes_sent(&self) -> u64 {
        self.lock().bytes_sent()
    }

    fn leave(&mut self, why: &str) {
        self.lock().leave(why);
    }
}

/// What one trainer has done in inferences of a group.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Inferred {
    /// Elements of the layers' outputs that it has computed.
    pub values: u64,
    /// Bytes that it has sent to others, of these and of nothing else.
    pub bytes_sent: u64,
    /// Seconds in exchanges, waiting for other trainers included.
    pub exchange_seconds: f64,
}

/// A trainer's membership in a group whose trainers have equal shares of every mini-batch.
#[derive(Debug)]
pub struct Group {
    exchange: SharedExchange,
    division: Arc<dyn Division>,
    /// Whether this process is asked to stop.
    requested: Stop,
    /// Whether all trainers have agreed to stop.
    agreed: Stop,
    /// Bytes from which on a bucket of gradients is all-reduced while backward goes on; 0 all-reduces all of them after
    /// it.
    bucket_bytes: usize,
    inferred: Mutex<Inferred>,
}

impl Group {
    /// Membership by one end of an exchange. A stop that is `requested` at any trainer ends all after the same step.
    pub fn new(exchange: SharedExchange, requested: Stop) -> Self {
        let division = Arc::new(Weights::equal(exchange.size()));
        let (agreed, bucket_bytes, inferred) = (Stop::new(), BUCKET_BYTES, Mutex::default());
        Self { exchange, division, requested, agreed, bucket_bytes, inferred }
    }

    /// The same membership with buckets of so many bytes of gradients, the same at all trainers.
    pub fn with_bucket_bytes(self, bucket_bytes: usize) -> Self {
        Self { bucket_bytes, ..self }
    }

    /// This trainer's number, from 0.
    pub fn rank(&self) -> usize {
        self.exchange.rank()
    }

    /// Number of trainers.
    pub fn size(&self) -> usize {
        self.exchange.size()
    }

    /// What ends training after the same step at all trainers.
    pub fn stop(&self) -> Stop {
        self.agreed.clone()
    }

    /// All-gather: every trainer's value, by rank.
    ///
    /// # Errors
    ///
    /// A trainer has left, does not come in time, or makes another call.
    pub fn gather<T: Serialize + DeserializeOwned>(&self, own: &T) -> Result<Vec<T>> {
        let own = serde_json::to_vec(own)?;
        let all = self.exchange.lock().all_gather(&own)?;
        let read = |(rank, bytes): (usize, &Vec<u8>)| {
            let differs =
                |e: serde_json::Error| GroupError::Differs { rank, what: format!("it makes another call: {e}") };
            serde_json::from_slice(bytes).map_err(differs)
        };
        Ok(all.iter().enumerate().map(read).collect::<Result<_, _>>()?)
    }

    /// Broadcast: the bytes of rank 0, at all trainers; the others pass none. In pieces, so that no message is larger
    /// than one piece.
    ///
    /// # Errors
    ///
    /// As [`Group::gather`].
    pub fn of_first(&self, own: Vec<u8>) -> Result<Vec<u8>> {
        let len = self.gather(&own.len())?[0];
        if self.rank() == 0 {
            for piece in own.chunks(PIECE) {
                self.exchange.lock().all_gather(piece)?;
            }
            return Ok(own);
        }
        let mut all = Vec::with_capacity(len);
        while all.len() < len {
            all.extend(self.exchange.lock().all_gather(&[])?.swap_remove(0));
        }
        Ok(all)
    }

    /// Median seconds of an all-reduce of `num_values` values. All trainers call it at once.
    ///
    /// # Errors
    ///
    /// As [`Group::gather`].
    pub fn all_reduce_seconds(&self, num_values: usize) -> Result<f64> {
        let mut values = vec![0.0; num_values];
        let mut seconds = Vec::with_capacity(ALL_REDUCES);
        for _ in 0..ALL_REDUCES {
            let start = Instant::now();
            self.exchange.lock().all_reduce(&mut values)?;
            seconds.push(start.elapsed().as_secs_f64());
        }
        Ok(median(&seconds))
    }

    /// Logits of `nodes` with all their neighbours: each trainer computes a part of every layer's rows, and all gather the others'.
    /// All call it with the same model, operator and nodes.
    ///
    /// # Errors
    ///
    /// As [`Group::gather`], and the operator's own.
    pub fn infer(&self, training: &mut dyn Training, nodes: &[u32]) -> Result<Vec<f32>> {
        self.together(|peers| training.infer_together(nodes, peers))
    }

    /// As [`Group::infer`], the rows of `nodes` after the first `layers` layers.
    ///
    /// # Errors
    ///
    /// As [`Group::infer`], and no such layer.
    pub fn embed(&self, training: &mut dyn Training, nodes: &[u32], layers: usize) -> Result<Vec<f32>> {
        self.together(|peers| training.embed(nodes, layers, peers))
    }

    fn together(
        &self,
        infer: impl FnOnce(&mut dyn GatherRows) -> morphgl_registry::Result<Vec<f32>>,
    ) -> Result<Vec<f32>> {
        let sent = self.exchange.bytes_sent();
        let mut together = InferTogether::new(self.exchange.clone());
        let rows = infer(&mut together)?;
        let mut inferred = self.inferred.lock().unwrap_or_else(PoisonError::into_inner);
        inferred.values += together.computed;
        inferred.bytes_sent += self.exchange.bytes_sent() - sent;
        inferred.exchange_seconds += together.spent.as_secs_f64();
        Ok(rows)
    }

    /// All-gather of rows, of which each trainer has computed the part of its rank.
    ///
    /// # Errors
    ///
    /// As [`Group::gather`], or other parts.
    pub(crate) fn gather_rows(&self, rows: &mut [f32], parts: &[Range<usize>]) -> Result<()> {
        self.together(|peers| peers.gather(rows, parts).map(|()| Vec::new())).map(drop)
    }

    /// What this trainer has done in all inferences.
    pub fn inferred(&self) -> Inferred {
        *self.inferred.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The scores of rank 0, at all trainers: evaluations on machines of different SIMD levels or numbers of threads may differ
    /// in the last digits, and which model is best must not.
    ///
    /// # Errors
    ///
    /// As [`Group::gather`], or trainers that have evaluated other sets of nodes.
    pub fn scores_of_first(&self, own: &[Evaluated]) -> Result<Vec<Evaluated>> {
        Ok(self.all_scores(own)?.swap_remove(0))
    }

    /// The sums of all trainers' scores, added in the order of ranks: each has evaluated its part of the same sets of nodes.
    ///
    /// # Errors
    ///
    /// As [`Group::scores_of_first`].
    pub fn sum_scores(&self, own: &[Score]) -> Result<Vec<Score>> {
        let mut sums = vec![Score::default(); own.len()];
        let own: Vec<Evaluated> = own.iter().map(|&sums| sums.into()).collect();
        for scores in self.all_scores(&own)? {
            sums.iter_mut().zip(scores).for_each(|(sum, score)| *sum += score.sums);
        }
        Ok(sums)
    }

    /// All-gather of the trainers' scores of the same sets of nodes, by rank.
    fn all_scores(&self, own: &[Evaluated]) -> Result<Vec<Vec<Evaluated>>> {
        // As bits: JSON has no NaN.
        type Bits = ([u64; 3], Option<u64>);
        let bits =
            |e: &Evaluated| ([e.sums.loss_sum.to_bits(), e.sums.correct, e.sums.count], e.value.map(f64::to_bits));
        let bits: Vec<Bits> = own.iter().map(bits).collect();
        let all = self.gather(&bits)?;
        if let Some((rank, other)) = all.iter().enumerate().find(|(_, scores)| scores.len() != own.len()) {
            bail!("trainer {rank} has evaluated {} sets of nodes, trainer {} {}", other.len(), self.rank(), own.len());
        }
        let score = |&([loss_sum, correct, count], value): &Bits| Evaluated {
            sums: Score { loss_sum: f64::from_bits(loss_sum), correct, count },
            value: value.map(f64::from_bits),
        };
        Ok(all.iter().map(|scores| scores.iter().map(score).collect()).collect())
    }

    /// Which seeds each trainer has.
    pub(crate) fn division(&self) -> &Arc<dyn Division> {
        &self.division
    }

    /// The operators of this trainer, which step together with those of all others.
    pub(crate) fn join(&self, operators: Operators, num_seeds: usize, batch_size: usize) -> Result<Operators> {
        let (requested, agreed) = (self.requested.clone(), self.agreed.clone());
        let stop = StopTogether {
            requested: Arc::new(move || requested.is_requested()),
            stop: Arc::new(move || agreed.request()),
        };
        let exchange = Box::new(self.exchange.clone());
        let division = Arc::clone(&self.division);
        let (stop, observe, bucket_bytes) = (Some(stop), None, self.bucket_bytes);
        let virtual_steps = None;
        let member =
            GroupMember { exchange, division, num_seeds, batch_size, stop, observe, bucket_bytes, virtual_steps };
        Ok(morphgl_group::join(operators, member)?)
    }

    /// Aborts the group: all others fail with this reason.
    pub fn leave(&self, why: &str) {
        self.exchange.lock().leave(why);
    }
}
