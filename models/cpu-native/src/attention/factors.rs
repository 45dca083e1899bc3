//! Dropout factors of consecutive entries, up to 1024 at a time: a call of the generator computes 64.

use morphgl_model_core::{Dropout, RowPart};

use super::Attention;

/// Factors in the window; enough for one entry.
const CAPACITY: usize = super::MAX_DROPPED_HEADS;

/// A window of the factors of entries, read in ascending order of rows.
pub(super) struct Factors<'a> {
    attention: Attention<'a>,
    dropout: Dropout,
    nodes: &'a [u32],
    /// The window has the factors of entries `start..end`.
    start: usize,
    end: usize,
    /// End of the rows that will be read.
    last_row: usize,
    window: [f32; CAPACITY],
}

impl<'a> Factors<'a> {
    /// Factors of rows below `last_row`, if there is dropout; `Attention::new` has checked the heads.
    pub(super) fn new(attention: &Attention<'a>, last_row: usize) -> Option<Self> {
        let (dropout, nodes) = attention.options.dropout?;
        Some(Self { attention: *attention, dropout, nodes, start: 0, end: 0, last_row, window: [0.0; CAPACITY] })
    }

    /// The factors of a row's `entry` and the entries after it, up to `limit` or the end of the window.
    #[inline]
    pub(super) fn of(&mut self, row: usize, entry: usize, limit: usize) -> &mut [f32] {
        if !(self.start..self.end).contains(&entry) {
            self.fill(row, entry);
        }
        let (heads, end) = (self.attention.options.heads, self.end.min(limit));
        &mut self.window[(entry - self.start) * heads..(end - self.start) * heads]
    }

    /// Fills the window from the beginning of a row on, or from `entry` where the row is longer than the window.
    fn fill(&mut self, mut row: usize, entry: usize) {
        let (a, heads) = (&self.attention, self.attention.options.heads);
        let capacity = CAPACITY / heads;
        let fits = a.entry(row + 1) - a.entry(row) <= capacity;
        self.start = if fits { a.entry(row) } else { entry };
        self.end = a.entry(self.last_row).min(self.start + capacity);
        let (mut next, end, last_row) = (self.start, self.end, self.last_row);
        let parts = std::iter::from_fn(|| {
            if row == last_row || next == end {
                return None;
            }
            let (node, of_row) = (self.nodes[row], a.entry(row)..a.entry(row + 1).min(end));
            let first = ((next - of_row.start) * heads) as u64;
            let part = RowPart { node, first, len: (of_row.end - next) * heads };
            (row, next) = (row + 1, of_row.end);
            Some(part)
        });
        let elements = (self.end - self.start) * heads;
        self.dropout.fill(parts, &mut self.window[..elements]);
    }
}
