//! Dropout factors of consecutive edges, up to 1024 at a time: a call of the generator computes 64.

use morphgl_model_spec::Dropout;

/// Factors in the window; enough for one edge.
const CAPACITY: usize = super::MAX_DROPPED_HEADS;

/// A window of the factors of edges, read in ascending order.
pub(super) struct Factors {
    dropout: Dropout,
    heads: usize,
    /// The window has the factors of edges `start..end`.
    start: usize,
    end: usize,
    /// End of the edges that will be read.
    last: usize,
    window: [f32; CAPACITY],
}

impl Factors {
    /// Factors of edges below `last`; `Attention::new` has checked the heads.
    pub(super) fn new(dropout: Dropout, heads: usize, last: usize) -> Self {
        Self { dropout, heads, start: 0, end: 0, last, window: [0.0; CAPACITY] }
    }

    /// The factors of `edge` and the edges after it, up to `limit` or the end of the window.
    #[inline]
    pub(super) fn of(&mut self, edge: usize, limit: usize) -> &mut [f32] {
        if !(self.start..self.end).contains(&edge) {
            self.start = edge;
            self.end = self.last.min(edge + CAPACITY / self.heads);
            let elements = (self.end - edge) * self.heads;
            self.dropout.fill((edge * self.heads) as u64, &mut self.window[..elements]);
        }
        let end = self.end.min(limit);
        &mut self.window[(edge - self.start) * self.heads..(end - self.start) * self.heads]
    }
}
