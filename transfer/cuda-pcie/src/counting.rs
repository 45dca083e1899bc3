//! Counts of the accesses of a run's first mini-batches: what rows are ranked by, and what they tell of sizes of the cache.

use std::time::Duration;

use morphgl_cuda::{Buffer, Event, Kernel, Shape, Stream};
use morphgl_registry::{CachePoint, Result};

use crate::KERNELS;

/// Maximum number of mini-batches that are timed.
const MAX_TIMED: usize = 64;

/// Accesses of each node while no row is cached.
#[derive(Debug)]
pub(crate) struct AccessCounts {
    /// Accesses by mini-batches of even and of odd number: rows are ranked by one half, and the ranking is evaluated on the other.
    accesses: [Buffer<u32>; 2],
    kernel: Kernel,
    counted: u32,
    left: u32,
    /// Events before and after each of the first gathers.
    gathers: Vec<(Event, Event)>,
    /// Durations of the first whole transfers that were waited for.
    transfers: Vec<Duration>,
}

impl AccessCounts {
    pub(crate) fn new(stream: &Stream, num_nodes: usize, batches: u32) -> Result<Self> {
        let mut accesses = [Buffer::new(stream, num_nodes)?, Buffer::new(stream, num_nodes)?];
        accesses.iter_mut().try_for_each(|half| stream.fill(half, 0))?;
        let kernel = KERNELS.kernel(stream.device(), "gather_count")?;
        Ok(Self { accesses, kernel, counted: 0, left: batches, gathers: Vec::new(), transfers: Vec::new() })
    }

    /// Counts the first `len` of `nodes`; returns whether this was the last mini-batch to count.
    pub(crate) fn add(&mut self, stream: &Stream, nodes: &Buffer<u32>, len: usize) -> Result<bool> {
        let half = &mut self.accesses[self.counted as usize % 2];
        let arguments = &mut [nodes.into(), (len as u32).into(), half.into()];
        // SAFETY: the arguments are the kernel's, and nodes are those of the dataset.
        unsafe { stream.launch(&self.kernel, Shape::covering(len, 256), arguments)? };
        self.counted += 1;
        self.left = self.left.saturating_sub(1);
        Ok(self.left == 0)
    }

    /// Notes a gather between two timed events.
    pub(crate) fn gathered(&mut self, start: Event, end: Event) {
        if self.gathers.len() < MAX_TIMED {
            self.gathers.push((start, end));
        }
    }

    /// Notes how long a whole transfer took.
    pub(crate) fn transferred(&mut self, took: Duration) {
        if self.transfers.len() < MAX_TIMED {
            self.transfers.push(took);
        }
    }

    /// Accesses of each node, of all mini-batches counted.
    pub(crate) fn hotness(&self, stream: &Stream) -> Result<Vec<f32>> {
        let [even, odd] = self.halves(stream)?;
        Ok(even.into_iter().zip(odd).map(|(even, odd)| (even + odd) as f32).collect())
    }

    /// What the counts tell so far; `None` before two mini-batches were counted and one was waited for.
    ///
    /// O(nodes), on the host.
    pub(crate) fn savings(&self, stream: &Stream) -> Result<Option<Savings>> {
        let done = self.gathers.iter().filter(|(_, end)| end.is_done());
        let gathers = done.map(|(start, end)| end.elapsed(start)).collect::<Result<Vec<Duration>>>()?;
        let (Some(gather_seconds), Some(batch_seconds)) = (median(gathers), median(self.transfers.clone())) else {
            return Ok(None);
        };
        if self.counted < 2 {
            return Ok(None);
        }
        let saved = |(rows, share): (u64, f64)| (rows, share * gather_seconds);
        Ok(Some(Savings { batch_seconds, by_rows: hit_shares(&self.halves(stream)?).into_iter().map(saved).collect() }))
    }

    fn halves(&self, stream: &Stream) -> Result<[Vec<u32>; 2]> {
        let [even, odd] = &self.accesses;
        Ok([even.to_vec(stream)?, odd.to_vec(stream)?])
    }
}

/// What caches of each size would save a mini-batch. While accesses are counted all rows are read from host memory; a read of a
/// cached row is taken to cost nothing.
#[derive(Debug)]
pub(crate) struct Savings {
    /// Median seconds of a whole transfer.
    pub(crate) batch_seconds: f64,
    /// Cache sizes in rows, ascending, each with the seconds of a gather that a cache of so many hottest rows saves.
    by_rows: Vec<(u64, f64)>,
}

impl Savings {
    /// The same by bytes of one of `num_devices` devices, which hold equally many rows, the first `replicated` all of them: `tables`, and
    /// `row` for each of its rows.
    pub(crate) fn points(&self, num_devices: u64, (tables, row): (u64, u64), replicated: u32) -> Vec<CachePoint> {
        let replicated = if num_devices > 1 { u64::from(replicated) } else { 0 };
        let mut points = vec![CachePoint { bytes: 0, saved_seconds: 0.0 }];
        for &(rows, saved_seconds) in self.by_rows.iter().filter(|(rows, _)| *rows > 0) {
            let copies = rows.min(replicated);
            let bytes = tables + (copies + (rows - copies).div_ceil(num_devices)) * row;
            match points.last_mut().filter(|last| last.bytes == bytes) {
                Some(last) => last.saved_seconds = saved_seconds,
                None => points.push(CachePoint { bytes, saved_seconds }),
            }
        }
        points
    }
}

/// The median in seconds: the first mini-batches take longer. `None` of nothing.
fn median(mut durations: Vec<Duration>) -> Option<f64> {
    durations.sort_unstable();
    durations.get(durations.len() / 2).map(Duration::as_secs_f64)
}

/// Shares of the accesses that caches of so many of the hottest rows serve, by ascending rows, linear in between: ranked by either
/// half of the mini-batches and judged by the other, since the accesses that chose a row flatter it.
fn hit_shares([even, odd]: &[Vec<u32>; 2]) -> Vec<(u64, f64)> {
    let curves = [hits(even, odd), hits(odd, even)];
    let all: u64 = curves.iter().map(|curve| curve.last().map_or(0, |&(_, hits)| hits)).sum();
    let mut sizes: Vec<u64> = curves.iter().flatten().map(|&(rows, _)| rows).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let share = |rows: u64| curves.iter().map(|curve| at(curve, rows)).sum::<f64>() / all.max(1) as f64;
    sizes.into_iter().map(|rows| (rows, share(rows))).collect()
}

/// Rows with at least so many accesses in `ranked`, and how often `judged` has them, by ascending rows.
fn hits(ranked: &[u32], judged: &[u32]) -> Vec<(u64, u64)> {
    let most = ranked.iter().copied().max().unwrap_or(0) as usize;
    let mut by_accesses = vec![(0u64, 0u64); most + 1];
    for (&accesses, &judged) in ranked.iter().zip(judged) {
        let (rows, hits) = &mut by_accesses[accesses as usize];
        (*rows, *hits) = (*rows + 1, *hits + u64::from(judged));
    }
    let mut sum = (0, 0);
    let add = |&(rows, hits): &(u64, u64)| {
        sum = (sum.0 + rows, sum.1 + hits);
        sum
    };
    by_accesses.iter().rev().filter(|(rows, _)| *rows > 0).map(add).collect()
}

/// The hits of so many rows: linear between the sizes of `curve`, and from none on.
fn at(curve: &[(u64, u64)], rows: u64) -> f64 {
    let after = curve.partition_point(|&(size, _)| size < rows);
    let (low, low_hits) = if after == 0 { (0, 0) } else { curve[after - 1] };
    let Some(&(high, high_hits)) = curve.get(after) else { return low_hits as f64 };
    low_hits as f64 + (rows - low) as f64 / (high - low) as f64 * (high_hits - low_hits) as f64
}

#[cfg(test)]
mod tests;
