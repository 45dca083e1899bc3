//! All-reduces of gradients in a thread of their own, while backward goes on.

use std::panic::resume_unwind;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use morphgl_registry::{GradientReady, NamedTensor};

use crate::{Exchange, Result};

/// Bytes from which on a bucket of gradients is all-reduced, unless [`GroupMember::bucket_bytes`](crate::GroupMember)
/// says otherwise.
///
/// A bucket costs two messages to every other trainer, and only those complete before the end of backward are hidden behind it.
/// The size is a guess that works; it was not compared with others on an idle machine (`docs/distributed.md`).
pub const BUCKET_BYTES: usize = 128 << 10;

/// Times of a step's all-reduces.
#[derive(Debug)]
pub(crate) struct Reduced {
    /// When each all-reduce began and ended.
    pub(crate) spans: Vec<(Instant, Instant)>,
    /// When the trainer's own work ended.
    pub(crate) work_ended: Instant,
    /// Time in all-reduces.
    pub(crate) total: Duration,
    /// The part of it before the work ended.
    pub(crate) hidden: Duration,
}

/// Lengths of the buckets in which these tensors' elements are all-reduced, from the last tensor to the first: each ends with the
/// tensor that makes it `bucket_bytes` or more. All elements are one bucket if `bucket_bytes` is 0.
///
/// It depends on the model alone, so that trainers with different operators all-reduce the same buckets.
pub(crate) fn buckets(tensors: &[NamedTensor], bucket_bytes: usize) -> Vec<usize> {
    let least = if bucket_bytes == 0 { usize::MAX } else { bucket_bytes.div_ceil(size_of::<f32>()) };
    let (mut buckets, mut open) = (Vec::new(), 0);
    for tensor in tensors.iter().rev() {
        open += tensor.values.len();
        if open >= least {
            buckets.push(std::mem::take(&mut open));
        }
    }
    buckets.extend((open > 0).then_some(open));
    buckets
}

/// Runs `work`, which hands over all `values` from the last to the first; meanwhile a thread replaces each bucket by its sum
/// over all trainers as soon as it is complete. Returns when all are reduced, or one all-reduce has failed.
///
/// Where `work` fails, the buckets complete by then are still all-reduced, since the other trainers wait for them. The exchange itself has not
/// failed then: the caller leaves the group with the reason.
///
/// # Panics
///
/// When `work` hands over other elements than the next ones, or not all.
pub(crate) fn all_reduce_while<T, E>(
    exchange: &mut dyn Exchange,
    values: &mut [f32],
    buckets: &[usize],
    work: impl FnOnce(GradientReady<'_>) -> std::result::Result<T, E>,
) -> std::result::Result<(T, Result<Reduced>), E> {
    thread::scope(|scope| {
        let (sender, complete) = mpsc::channel::<&mut [f32]>();
        let reducing = scope.spawn(move || -> Result<Vec<(Instant, Instant)>> {
            let mut spans = Vec::with_capacity(buckets.len());
            for bucket in complete {
                let start = Instant::now();
                exchange.all_reduce(bucket)?;
                spans.push((start, Instant::now()));
            }
            Ok(spans)
        });
        let mut open = Open { values, filled: 0, buckets, sender };
        let worked = work(&mut |first, piece| open.fill(first, piece));
        let (work_ended, missing) = (Instant::now(), open.values.len());
        // Closes the channel: the thread ends once it has reduced the buckets already sent.
        drop(open);
        let reduced = reducing.join().unwrap_or_else(|panic| resume_unwind(panic));
        let worked = worked?;
        assert_eq!(missing, 0, "gradients that were not handed over");
        let spent = |spans: Vec<(Instant, Instant)>| {
            let total = spans.iter().map(|&(from, to)| to - from).sum();
            let hidden = spans.iter().map(|&(from, to)| to.min(work_ended).saturating_duration_since(from)).sum();
            Reduced { spans, work_ended, total, hidden }
        };
        Ok((worked, reduced.map(spent)))
    })
}

/// Elements that are not all-reduced yet.
struct Open<'a> {
    /// Those of buckets that are not complete.
    values: &'a mut [f32],
    /// How many of them, from the last, have been handed over.
    filled: usize,
    /// Lengths of their buckets, the last elements' first.
    buckets: &'a [usize],
    sender: Sender<&'a mut [f32]>,
}

impl Open<'_> {
    /// Copies the elements from `first` on, and sends the buckets that are complete.
    fn fill(&mut self, first: usize, piece: &[f32]) {
        let end = self.values.len() - self.filled;
        assert_eq!(first + piece.len(), end, "gradients are handed over from the last element to the first");
        self.values[first..end].copy_from_slice(piece);
        self.filled += piece.len();
        while let Some((&len, rest)) = self.buckets.split_first()
            && self.filled >= len
        {
            let values = std::mem::take(&mut self.values);
            let (values, bucket) = values.split_at_mut(values.len() - len);
            (self.values, self.buckets) = (values, rest);
            self.filled -= len;
            // An error: the thread has ended because an all-reduce failed, which its result says.
            let _ = self.sender.send(bucket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_end_with_the_tensor_that_fills_them() {
        let lengths = [100, 3, 50, 40, 7, 8];
        let tensor = |&len: &usize| NamedTensor { name: String::new(), shape: vec![len], values: vec![0.0; len] };
        let tensors: Vec<NamedTensor> = lengths.iter().map(tensor).collect();
        assert_eq!(buckets(&tensors, 0), [208], "all at once");
        assert_eq!(buckets(&tensors, 1), [8, 7, 40, 50, 3, 100], "each tensor");
        assert_eq!(buckets(&tensors, 4 * 15), [15, 40, 50, 103]);
        assert_eq!(buckets(&tensors, 4 * 100), [105, 103]);
        assert_eq!(buckets(&tensors, 4 * 106), [108, 100], "the last bucket has what is left");
        assert!(buckets(&[], 4).is_empty());
    }
}
