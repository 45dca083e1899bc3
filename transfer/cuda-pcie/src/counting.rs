//! Counts of the accesses of a run's first mini-batches: what rows are ranked by, and what they tell of sizes of the cache.

use std::time::Duration;

use morphgl_cuda::{Buffer, Event, Kernel, Shape, Stream};
use morphgl_registry::{CachePoint, Result};

use crate::KERNELS;
use crate::replication::{RowSeconds, Rows};

/// Maximum number of mini-batches that are timed.
const MAX_TIMED: usize = 64;

/// Maximum number of sizes, beside none, that the best number of replicated rows is found for.
const MAX_SIZES: usize = 64;

/// Accesses of each node while no row is cached.
#[derive(Debug)]
pub(crate) struct AccessCounts {
    /// Accesses by mini-batches of even and of odd number: rows are ranked by one half, and the ranking is evaluated on the other.
    accesses: [Buffer<u32>; 2],
    kernel: Kernel,
    counted: u32,
    left: u32,
    timed: Uncached,
}

/// Durations while no row is cached.
#[derive(Debug, Default)]
struct Uncached {
    /// Events before and after each of the first gathers.
    gathers: Vec<(Event, Event)>,
    /// Durations of the first whole transfers that were waited for.
    transfers: Vec<Duration>,
}

/// Access counts after the last counted mini-batch, which rank the cached rows: the cache can be filled again by them, with another
/// size.
#[derive(Debug)]
pub(crate) struct Counted {
    /// Accesses of each node.
    pub(crate) hotness: Vec<f32>,
    /// As of [`hit_shares`]; empty where too few mini-batches were counted.
    shares: Vec<(u64, f64)>,
    timed: Uncached,
    /// Durations of the first whole transfers with the cache.
    cached: Vec<Duration>,
}

impl AccessCounts {
    pub(crate) fn new(stream: &Stream, num_nodes: usize, batches: u32) -> Result<Self> {
        let mut accesses = [Buffer::new(stream, num_nodes)?, Buffer::new(stream, num_nodes)?];
        accesses.iter_mut().try_for_each(|half| stream.fill(half, 0))?;
        let kernel = KERNELS.kernel(stream.device(), "gather_count")?;
        Ok(Self { accesses, kernel, counted: 0, left: batches, timed: Uncached::default() })
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
        if self.timed.gathers.len() < MAX_TIMED {
            self.timed.gathers.push((start, end));
        }
    }

    /// Notes how long a whole transfer took.
    pub(crate) fn transferred(&mut self, took: Duration) {
        note(&mut self.timed.transfers, took);
    }

    /// What the counts tell so far; `None` before two mini-batches were counted and one was waited for.
    ///
    /// O(nodes), on the host.
    pub(crate) fn savings(&self, stream: &Stream) -> Result<Option<Savings>> {
        match self.timed.seconds()? {
            Some(seconds) if self.counted >= 2 => Ok(Some(Savings::new(seconds, &hit_shares(&self.halves(stream)?)))),
            _ => Ok(None),
        }
    }

    /// Ends counting.
    ///
    /// O(nodes), on the host.
    pub(crate) fn finish(&mut self, stream: &Stream) -> Result<Counted> {
        let halves = self.halves(stream)?;
        let shares = if self.counted < 2 { Vec::new() } else { hit_shares(&halves) };
        let [even, odd] = halves;
        let hotness = even.into_iter().zip(odd).map(|(even, odd)| (even + odd) as f32).collect();
        Ok(Counted { hotness, shares, timed: std::mem::take(&mut self.timed), cached: Vec::new() })
    }

    fn halves(&self, stream: &Stream) -> Result<[Vec<u32>; 2]> {
        let [even, odd] = &self.accesses;
        Ok([even.to_vec(stream)?, odd.to_vec(stream)?])
    }
}

impl Uncached {
    /// Median seconds of a gather and of a whole transfer; `None` before one of each is done.
    fn seconds(&self) -> Result<Option<[f64; 2]>> {
        let done = self.gathers.iter().filter(|(_, end)| end.is_done());
        let gathers = done.map(|(start, end)| end.elapsed(start)).collect::<Result<Vec<Duration>>>()?;
        Ok(median(gathers).zip(median(self.transfers.clone())).map(<[f64; 2]>::from))
    }
}

impl Counted {
    /// Notes how long a whole transfer took that was begun while accesses were counted, or else with the cache.
    pub(crate) fn transferred(&mut self, took: Duration, while_counting: bool) {
        note(if while_counting { &mut self.timed.transfers } else { &mut self.cached }, took);
    }

    /// What caches of each size save beside none; `None` where too few mini-batches were counted, or none was waited for.
    pub(crate) fn savings(&self) -> Result<Option<Savings>> {
        let seconds = self.timed.seconds()?.filter(|_| !self.shares.is_empty());
        Ok(seconds.map(|seconds| Savings::new(seconds, &self.shares)))
    }

    /// Seconds of a whole transfer with `rows` cached: the median of those measured with the cache filled; before any was, the
    /// uncached seconds less what `rows` are expected to save.
    pub(crate) fn batch_seconds(&self, savings: &Savings, rows: u64) -> f64 {
        let expected = || (savings.batch_seconds - at(&savings.by_rows, rows)).max(0.0);
        median(self.cached.clone()).unwrap_or_else(expected)
    }
}

fn note(durations: &mut Vec<Duration>, took: Duration) {
    if durations.len() < MAX_TIMED {
        durations.push(took);
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
    /// Of the median seconds of a gather and of a whole transfer, and [`hit_shares`].
    fn new([gather_seconds, batch_seconds]: [f64; 2], shares: &[(u64, f64)]) -> Self {
        let by_rows = shares.iter().map(|&(rows, share)| (rows, share * gather_seconds)).collect();
        Self { batch_seconds, by_rows }
    }

    /// The same by bytes of one of `num_devices` devices, which hold equally many rows, the first `replicated` all of them: `tables`, and
    /// `row` for each of its rows.
    pub(crate) fn points(&self, num_devices: u64, (tables, row): (u64, u64), replicated: u32) -> Vec<CachePoint> {
        let replicated = if num_devices > 1 { u64::from(replicated) } else { 0 };
        let saved = self.by_rows.iter().filter(|(rows, _)| *rows > 0).map(|&(rows, saved_seconds)| {
            let copies = rows.min(replicated);
            let bytes = tables + (copies + (rows - copies).div_ceil(num_devices)) * row;
            CachePoint { bytes, saved_seconds }
        });
        ascending(saved)
    }

    /// As [`Savings::points`], of at most some 64 sizes, each with the number of replicated rows that saves most by the seconds of a row;
    /// `room` says which rows have room in so many bytes of each device with so many of them replicated.
    ///
    /// What is saved is linear between the sizes that counts tell apart, so that it is most where the replicated rows, or all cached
    /// ones, are as many as one of these: but for rounding to whole rows the optimum is exact.
    pub(crate) fn points_of_fastest(
        &self,
        num_devices: u64,
        (tables, row): (u64, u64),
        room: impl Fn(u64, u32) -> Rows,
        seconds: RowSeconds,
    ) -> Vec<CachePoint> {
        let knots: Vec<u64> = self.by_rows.iter().map(|&(rows, _)| rows).filter(|&rows| rows > 0).collect();
        let all = self.by_rows.last().map_or(0.0, |&(_, saved)| saved);
        let saved = |rows: Rows| {
            let by_rank = |rank| at(&self.by_rows, rank);
            if seconds.host > 0.0 { all - seconds.of(rows, num_devices, by_rank, all) / seconds.host } else { 0.0 }
        };
        let most = |bytes: u64| {
            let max = u64::from(room(bytes, u32::MAX).replicated);
            let of = |replicated: u64| room(bytes, replicated as u32);
            // The most replicated rows beside which so many are cached: each takes the room of one on every device.
            let beside = |cached: u64| (num_devices * max).saturating_sub(cached) / (num_devices - 1).max(1);
            let around = knots.iter().flat_map(|&rows| [rows, beside(rows), beside(rows) + 1]);
            around.chain([0, max]).map(|replicated| saved(of(replicated.min(max)))).fold(0.0, f64::max)
        };
        let mut sizes: Vec<u64> = knots.iter().flat_map(|&rows| [rows.div_ceil(num_devices), rows]).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let step = sizes.len().div_ceil(MAX_SIZES).max(1);
        // The largest is among them.
        let sizes = sizes.into_iter().rev().step_by(step).collect::<Vec<u64>>();
        let bytes = sizes.into_iter().rev().map(|rows| tables + rows * row);
        ascending(bytes.map(|bytes| CachePoint { bytes, saved_seconds: most(bytes) }))
    }
}

/// Points after that of no cache: ascending, and none that saves less than a smaller one.
fn ascending(points: impl Iterator<Item = CachePoint>) -> Vec<CachePoint> {
    let mut all = vec![CachePoint { bytes: 0, saved_seconds: 0.0 }];
    for CachePoint { bytes, saved_seconds } in points {
        let last = all.last_mut().expect("the first point");
        let saved_seconds = saved_seconds.max(last.saved_seconds);
        match last.bytes == bytes {
            true => last.saved_seconds = saved_seconds,
            false => all.push(CachePoint { bytes, saved_seconds }),
        }
    }
    all
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
    let all: f64 = curves.iter().map(|curve| curve.last().map_or(0.0, |&(_, hits)| hits)).sum();
    let mut sizes: Vec<u64> = curves.iter().flatten().map(|&(rows, _)| rows).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let share = |rows: u64| curves.iter().map(|curve| at(curve, rows)).sum::<f64>() / all.max(1.0);
    sizes.into_iter().map(|rows| (rows, share(rows))).collect()
}

/// Rows with at least so many accesses in `ranked`, and how often `judged` has them, by ascending rows.
fn hits(ranked: &[u32], judged: &[u32]) -> Vec<(u64, f64)> {
    let most = ranked.iter().copied().max().unwrap_or(0) as usize;
    let mut by_accesses = vec![(0u64, 0u64); most + 1];
    for (&accesses, &judged) in ranked.iter().zip(judged) {
        let (rows, hits) = &mut by_accesses[accesses as usize];
        (*rows, *hits) = (*rows + 1, *hits + u64::from(judged));
    }
    let mut sum = (0, 0);
    let add = |&(rows, hits): &(u64, u64)| {
        sum = (sum.0 + rows, sum.1 + hits);
        (sum.0, sum.1 as f64)
    };
    by_accesses.iter().rev().filter(|(rows, _)| *rows > 0).map(add).collect()
}

/// The value of so many rows: linear between the sizes of `curve`, and from none on.
fn at(curve: &[(u64, f64)], rows: u64) -> f64 {
    let after = curve.partition_point(|&(size, _)| size < rows);
    let (low, low_value) = if after == 0 { (0, 0.0) } else { curve[after - 1] };
    let Some(&(high, high_value)) = curve.get(after) else { return low_value };
    low_value + (rows - low) as f64 / (high - low) as f64 * (high_value - low_value)
}

#[cfg(test)]
mod tests;
