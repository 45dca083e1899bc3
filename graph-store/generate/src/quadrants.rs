//! R-MAT by blocks of rows: the edges of a cell of the adjacency matrix are a function of the cell.
//!
//! Rows are cut into intervals that share their ids' leading bits, finer where the hubs are. A cell is one interval of
//! destinations by one of sources; its number of edges is a Poisson number whose mean is the product of the probabilities of
//! the bits that it fixes, and each edge draws the other bits. With `symmetrise` a block of rows consists of the cells of its
//! row and of the transposed cells of its column.

use crate::alias::{Slot, build, draw};
use crate::memory::{Footprint, max_events};
use crate::node_data::NodeData;
use crate::output::Model;
use crate::poisson::poisson;
use crate::random::{Key, Purpose};
use crate::rows::{Buffers, SortedRows};
use crate::{Error, Result};

/// Levels that one draw decides.
const STRIDE: u32 = 4;

/// Ids whose `level` leading bits, of `scale`, are `prefix`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Interval {
    level: u32,
    prefix: u64,
}

const ALL: Interval = Interval { level: 0, prefix: 0 };

#[derive(Debug)]
pub(crate) struct Quadrants {
    data: NodeData,
    key: Key,
    symmetrise: bool,
    scale: u32,
    /// Probability of (source bit, destination bit), indexed `2 * source + destination`.
    p: [f64; 4],
    /// Edges to draw on the whole power of two, so that the expected number within the nodes is the configured one.
    draws: f64,
    /// Row blocks in order; they cover the nodes.
    intervals: Vec<Interval>,
    /// Maximum expected number of edges of a row block.
    max_expected: f64,
    /// Maximum number of rows of a row block.
    max_rows: u64,
    /// One level's quadrants, and those of `STRIDE` levels: item = source bits above destination bits.
    single: Vec<Slot>,
    stride: Vec<Slot>,
}

impl Quadrants {
    pub(crate) fn new(data: NodeData, p: [f64; 4], edge_factor: f64, symmetrise: bool) -> Result<Self> {
        let scale = 64 - (data.nodes() - 1).leading_zeros();
        let inside = share_inside(p, scale, data.nodes());
        if inside < 1e-3 {
            let what = format!("only a share of {inside:.1e} of the edges falls among {} nodes", data.nodes());
            return Err(Error::argument("quadrants", what, "pass a power of two as nodes, or make the first larger"));
        }
        let table = |levels: u32| -> Vec<Slot> {
            let mut slots = vec![[0; 3]; 1 << (2 * levels)];
            build(&mut slots, |item| {
                let (source, destination) = (item >> levels, item & ((1 << levels) - 1));
                let share: f64 = (0..levels).map(|l| p[2 * (source >> l & 1) + (destination >> l & 1)]).product();
                (item as u32, (share * 4_294_967_296.0).round() as u64)
            });
            slots
        };
        let mut model = Self {
            key: Key::new(data.config.seed, Purpose::Edges),
            symmetrise,
            scale,
            p,
            draws: edge_factor * data.nodes() as f64 / inside,
            intervals: Vec::new(),
            max_expected: 0.0,
            max_rows: 0,
            single: table(1),
            stride: table(STRIDE),
            data,
        };
        // At most some hundred blocks of equal load, each small enough for a fraction of the memory.
        let limit = (model.expected(ALL) / 256.0).clamp(65536.0, 4_194_304.0);
        model.cut(ALL, limit);
        Ok(model)
    }

    /// The same model, ready to make features.
    pub(crate) fn with_means(mut self) -> Self {
        self.data.make_means();
        self
    }

    /// Upper bound of the edges drawn for the rows of a block, exceeded with a probability below 10^-13.
    fn max_edges(&self) -> u64 {
        // Those of a cell on the diagonal are drawn in pairs where they are transposed.
        max_events(self.max_expected, 2.0) as u64
    }

    pub(crate) fn footprint(&self) -> Footprint {
        // A vector that grew by doubling, and the one it was copied from.
        let intervals = 3 * self.intervals.len() * size_of::<Interval>();
        Footprint {
            resident: self.data.means_bytes() + intervals as u64,
            build: 0,
            rows: Buffers::memory(self.max_rows, self.max_edges()),
            features: self.data.features_memory(),
            labels: self.data.labels_memory(),
        }
    }

    /// The first row of an interval, and how many it has.
    fn range(&self, rows: Interval) -> (u64, u64) {
        let shift = self.scale - rows.level;
        let first = rows.prefix << shift;
        (first, ((rows.prefix + 1) << shift).min(self.data.nodes()) - first)
    }

    fn cut(&mut self, interval: Interval, limit: f64) {
        let shift = self.scale - interval.level;
        if interval.prefix << shift >= self.data.nodes() {
            return;
        }
        let expected = self.expected(interval);
        if shift > 0 && (expected > limit || shift > 20) {
            for bit in 0..2 {
                self.cut(Interval { level: interval.level + 1, prefix: 2 * interval.prefix + bit }, limit);
            }
        } else {
            self.max_expected = self.max_expected.max(expected);
            self.max_rows = self.max_rows.max(self.range(interval).1);
            self.intervals.push(interval);
        }
    }

    /// Expected edges of the rows of an interval.
    fn expected(&self, rows: Interval) -> f64 {
        let transposed = if self.symmetrise { self.mean(ALL, rows) } else { 0.0 };
        self.mean(rows, ALL) + transposed
    }

    /// Expected number of edges of a cell.
    fn mean(&self, to: Interval, from: Interval) -> f64 {
        let mut mean = self.draws;
        for level in 1..=to.level.max(from.level) {
            let bit = |i: Interval| (level <= i.level).then(|| (i.prefix >> (i.level - level) & 1) as usize);
            mean *= match (bit(from), bit(to)) {
                (Some(s), Some(d)) => self.p[2 * s + d],
                (Some(s), None) => self.p[2 * s] + self.p[2 * s + 1],
                (None, Some(d)) => self.p[d] + self.p[2 + d],
                (None, None) => 1.0,
            };
        }
        mean
    }

    /// Draws the edges of a cell as (destination, source).
    fn cell(&self, to: Interval, from: Interval, mut edge: impl FnMut(u32, u32)) {
        let number = |i: Interval| 1u64 << i.level | i.prefix;
        let key = self.key.child(number(to)).child(number(from));
        let ends = key.child(0);
        let (common, fixed) = (to.level.min(from.level), to.level.max(from.level));
        for i in 0..poisson(key, self.mean(to, from)) {
            let mut bits = (0..).map({
                let key = ends.child(i);
                move |j| key.value(j)
            });
            let mut next = || bits.next().expect("a key's values do not end");
            let (mut s, mut d) = (from.prefix >> (from.level - common), to.prefix >> (to.level - common));
            for level in common + 1..=fixed {
                let u = (next() >> 11) as f64 * (1.0 / (1u64 << 53) as f64);
                let (source, destination) = if from.level > common {
                    let source = from.prefix >> (from.level - level) & 1;
                    let (low, high) = (self.p[2 * source as usize], self.p[2 * source as usize + 1]);
                    (source, u64::from(u * (low + high) >= low))
                } else {
                    let destination = to.prefix >> (to.level - level) & 1;
                    let (low, high) = (self.p[destination as usize], self.p[2 + destination as usize]);
                    (u64::from(u * (low + high) >= low), destination)
                };
                (s, d) = (2 * s + source, 2 * d + destination);
            }
            let mut left = self.scale - fixed;
            while left > 0 {
                let (table, levels) = if left >= STRIDE { (&self.stride, STRIDE) } else { (&self.single, 1) };
                let item = u64::from(draw(table, next()));
                (s, d) = (s << levels | item >> levels, d << levels | item & ((1 << levels) - 1));
                left -= levels;
            }
            if s < self.data.nodes() && d < self.data.nodes() {
                edge(d as u32, s as u32);
            }
        }
    }
}

impl Model for Quadrants {
    fn data(&self) -> &NodeData {
        &self.data
    }

    fn num_blocks(&self) -> usize {
        self.intervals.len()
    }

    fn buffers(&self) -> Buffers {
        Buffers::new(self.max_edges())
    }

    fn rows(&self, block: usize, buffers: &Buffers) -> SortedRows {
        let rows = self.intervals[block];
        let (first, len) = self.range(rows);
        buffers.rows(first as u32, len as usize, |edges| {
            if self.symmetrise {
                for &other in &self.intervals {
                    self.cell(rows, other, |to, from| edges.push(to, from));
                    self.cell(other, rows, |to, from| edges.push(from, to));
                }
            } else {
                self.cell(rows, ALL, |to, from| edges.push(to, from));
            }
        })
    }
}

/// The probability that both ends of an edge on `2^scale` ids are below `nodes`.
fn share_inside(p: [f64; 4], scale: u32, nodes: u64) -> f64 {
    let last = nodes - 1;
    // Share of edges by whether the bits of either end so far equal those of the last node; once below, they stay below.
    let mut share = [[0.0; 2]; 2];
    share[1][1] = 1.0;
    for level in (0..scale).rev() {
        let last_bit = (last >> level & 1) as usize;
        // `None` for an end above the last node.
        let equal =
            |equal: usize, bit: usize| (equal == 0 || bit <= last_bit).then_some(equal & usize::from(bit == last_bit));
        let mut next = [[0.0; 2]; 2];
        for i in 0..16 {
            let (s_equal, d_equal, s, d) = (i >> 3, i >> 2 & 1, i >> 1 & 1, i & 1);
            if let (Some(s_next), Some(d_next)) = (equal(s_equal, s), equal(d_equal, d)) {
                next[s_next][d_next] += share[s_equal][d_equal] * p[2 * s + d];
            }
        }
        share = next;
    }
    share.iter().flatten().sum()
}

#[cfg(test)]
mod tests;
