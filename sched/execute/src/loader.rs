//! Mini-batches in order, as an iterator.

use morphgl_registry::MiniBatch;

use crate::{Pool, Result};

/// Mini-batches of an epoch, in order, prepared ahead by the pool's workers.
#[derive(Debug)]
pub struct Loader<'a> {
    pool: &'a mut Pool,
}

impl Loader<'_> {
    /// Gives a mini-batch's buffers back to the workers.
    pub fn recycle(&mut self, batch: MiniBatch) {
        self.pool.spare.push(batch);
    }
}

impl Iterator for Loader<'_> {
    type Item = Result<MiniBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        todo!()
    }
}
