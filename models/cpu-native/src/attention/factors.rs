//! Dropout factors of consecutive edges, a few hundred at a time: a call of the generator decides 64 elements.

use morphgl_model_spec::Dropout;

/// Factors that are held at once: of one edge at least.
const HELD: usize = super::MAX_DROPPED_HEADS;

/// The factors of edges in ascending order, filled as they are asked for.
pub(super) struct Factors {
    dropout: Dropout,
    heads: usize,
    /// Edges `start..end` are held; `last` is the end of those that will be asked for.
    start: usize,
    end: usize,
    last: usize,
    held: [f32; HELD],
}

impl Factors {
    /// Factors of edges below `last`; `Attention::new` has checked the heads.
    pub(super) fn new(dropout: Dropout, heads: usize, last: usize) -> Self {
        Self { dropout, heads, start: 0, end: 0, last, held: [0.0; HELD] }
    }

    /// The factors of `edge` and those after it, up to `limit`: of one edge at least, and of as many as are held.
    #[inline]
    pub(super) fn of(&mut self, edge: usize, limit: usize) -> &mut [f32] {
        if !(self.start..self.end).contains(&edge) {
            self.start = edge;
            self.end = self.last.min(edge + HELD / self.heads);
            let elements = (self.end - edge) * self.heads;
            self.dropout.fill((edge * self.heads) as u64, &mut self.held[..elements]);
        }
        let end = self.end.min(limit);
        &mut self.held[(edge - self.start) * self.heads..(end - self.start) * self.heads]
    }
}
