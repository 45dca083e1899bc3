//! The limit: random reads per second of the memory.

use std::hint::black_box;
use std::sync::{Barrier, LazyLock};
use std::thread;
use std::time::Instant;

use morphgl_graph_store::Topology;
use morphgl_platform::{Pages, prefetch, prefetch_early};
use morphgl_registry::HostBatch;

/// The clock of a measurement.
#[derive(Clone, Copy)]
pub(crate) enum Clock {
    /// Wall time.
    Wall,
    /// CPU time of this thread, for a busy machine.
    Cpu,
}

impl Clock {
    /// Seconds since a fixed moment.
    pub(crate) fn now(self) -> f64 {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        match self {
            Clock::Wall => START.elapsed().as_secs_f64(),
            Clock::Cpu => {
                let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
                // SAFETY: the system writes one `timespec` to a valid one.
                let outcome = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
                assert_eq!(outcome, 0, "the system tells CPU times");
                time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
            }
        }
    }
}

/// Reads per measurement, and number of measurements.
const READS: usize = 1 << 22;
const ROUNDS: usize = 3;
/// Prefetch distances in reads, of which the best counts.
const AHEAD: [usize; 3] = [16, 32, 128];

/// Reads per second of all threads, with as many in flight as the processor supports, and the latency of one.
pub(crate) struct Limit {
    /// Reads per second of the graph's indices.
    pub(crate) indices: f64,
    /// Reads per second of the graph's offsets.
    pub(crate) offsets: f64,
    /// Reads per second of a table as large as that of local ids.
    pub(crate) table: f64,
    /// Seconds of a read of the indices that depends on the previous one.
    pub(crate) latency: f64,
}

impl Limit {
    pub(crate) fn measure(topology: &Topology, threads: usize, clock: Clock) -> Self {
        let (indices, offsets): (&[u32], &[u64]) = (topology.indices(), topology.indptr());
        let barrier = Barrier::new(threads);
        let reads = |seed: u64| {
            // A table per thread, as of a worker; for a large graph it is hashed and no larger than this.
            let mut table =
                Pages::zeroed(topology.num_nodes().min(1 << 22) * 64 / 7 / 8 * 8).expect("memory for the table");
            table.fill(1);
            let table: &[u64] = bytemuck::cast_slice(&table);
            let far = places(indices.len(), seed);
            let near = places(table.len(), seed);
            let rows = places(offsets.len(), seed);
            barrier.wait();
            let far = best(|ahead, early| read(indices, &far, ahead, early, clock));
            barrier.wait();
            let table = best(|ahead, early| read(table, &near, ahead, early, clock));
            barrier.wait();
            (far, best(|ahead, early| read(offsets, &rows, ahead, early, clock)), table)
        };
        let reads = &reads;
        let (far, offsets, table) = thread::scope(|scope| {
            let running: Vec<_> = (0..threads as u64).map(|t| scope.spawn(move || reads(t + 1))).collect();
            let rates = running.into_iter().map(|r| r.join().expect("reading ends well"));
            rates.fold((0.0, 0.0, 0.0), |sum, rate| (sum.0 + rate.0, sum.1 + rate.1, sum.2 + rate.2))
        });
        Self { indices: far, offsets, table, latency: latency(indices, clock) }
    }
}

/// Random indices below `len`, by xorshift.
fn places(len: usize, seed: u64) -> Vec<u32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((u128::from(state) * len as u128) >> 64) as u32
    };
    (0..READS).map(|_| next()).collect()
}

/// The best median over the prefetch distances and hints.
fn best(mut reads: impl FnMut(usize, bool) -> f64) -> f64 {
    let ways = AHEAD.into_iter().flat_map(|ahead| [(ahead, false), (ahead, true)]);
    let rates = ways.map(|(ahead, early)| median(&mut (0..ROUNDS).map(|_| reads(ahead, early)).collect::<Vec<_>>()));
    rates.fold(0.0, f64::max)
}

fn read<T: Copy + Into<u64>>(values: &[T], places: &[u32], ahead: usize, early: bool, clock: Clock) -> f64 {
    if early {
        read_by(values, places, ahead, clock, prefetch_early)
    } else {
        read_by(values, places, ahead, clock, prefetch)
    }
}

#[inline(always)]
fn read_by<T: Copy + Into<u64>>(
    values: &[T],
    places: &[u32],
    ahead: usize,
    clock: Clock,
    ask: impl Fn(&[T], usize),
) -> f64 {
    let start = clock.now();
    let mut sum = 0u64;
    for (i, &place) in places.iter().enumerate() {
        if let Some(&later) = places.get(i + ahead) {
            ask(values, later as usize);
        }
        sum = sum.wrapping_add(values[place as usize].into());
    }
    black_box(sum);
    places.len() as f64 / (clock.now() - start)
}

/// Seconds of a read whose address depends on the previous one.
fn latency(values: &[u32], clock: Clock) -> f64 {
    let places = places(values.len(), 77);
    let steps = &places[..1 << 16];
    let start = clock.now();
    let mut last = 0usize;
    for &place in steps {
        last = values[(place as usize).min(values.len() - 1) & !black_box(last & 1)] as usize;
    }
    black_box(last);
    (clock.now() - start) / steps.len() as f64
}

/// The median.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Expected cache lines of the graph's indices that a mini-batch reads: the picks of a row often share one.
pub(crate) fn lines(topology: &Topology, batch: &HostBatch) -> f64 {
    let (indptr, mut sum) = (topology.indptr(), 0.0);
    for block in &batch.blocks {
        for (row, ends) in block.indptr.windows(2).enumerate() {
            let node = batch.input_nodes[row] as usize;
            let (mut at, end) = (indptr[node], indptr[node + 1]);
            let (degree, picks) = (end - at, u64::from(ends[1] - ends[0]));
            if picks == 0 {
                continue;
            }
            // Many lines have at most so many picks each; of few lines, each has a share of the slots.
            if degree > 64 * LINE * picks {
                sum += picks as f64;
                continue;
            }
            while at < end {
                let next = (at / LINE + 1) * LINE;
                sum += 1.0 - missed(degree, next.min(end) - at, picks);
                at = next;
            }
        }
    }
    sum
}

/// Indices of a cache line.
const LINE: u64 = 16;

/// Probability that none of `picks` of `degree` slots is among `these`.
fn missed(degree: u64, these: u64, picks: u64) -> f64 {
    (0..picks).map(|i| degree.saturating_sub(these + i) as f64 / (degree - i) as f64).product()
}
