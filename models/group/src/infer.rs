//! Inference of several trainers, each of which computes a part of the rows of every layer.

use std::ops::Range;
use std::time::{Duration, Instant};

use morphgl_registry::{Error, GatherRows, Result};

use crate::Exchange;

/// A trainer's end of an exchange, for [`Training::infer_together`](morphgl_registry::Training::infer_together), and what went
/// through it.
#[derive(Debug)]
pub struct InferTogether<E> {
    exchange: E,
    /// Elements of rows that this trainer has computed.
    pub computed: u64,
    /// Time in exchanges, waiting for other trainers included.
    pub spent: Duration,
}

impl<E: Exchange> InferTogether<E> {
    /// By this end of an exchange.
    pub fn new(exchange: E) -> Self {
        Self { exchange, computed: 0, spent: Duration::ZERO }
    }
}

impl<E: Exchange> GatherRows for InferTogether<E> {
    fn rank(&self) -> usize {
        self.exchange.rank()
    }

    fn size(&self) -> usize {
        self.exchange.size()
    }

    fn gather(&mut self, rows: &mut [f32], parts: &[Range<usize>]) -> Result<()> {
        let start = Instant::now();
        let gathered = self.exchange.gather_parts(rows, parts);
        self.spent += start.elapsed();
        self.computed += parts[self.exchange.rank()].len() as u64;
        gathered.map_err(|e| Error::failed("inference", e))
    }
}
