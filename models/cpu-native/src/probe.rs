//! Reference measurements for the bench `step`: the processor's peak, and single GEMMs.

use std::hint::black_box;
use std::time::Instant;

use morphgl_platform::{Pages, SimdLevel};
use rayon::prelude::*;

use crate::buffer::Buffer;
use crate::gemm::{Left, Right, multiply, pack, packed_len, tiles, tiles_flops};
use crate::parallel::{self, ROWS, row_blocks};
use crate::simd::{has_tiles, vector_level};

/// Seconds of the fastest of several trials.
pub fn best(trials: usize, mut run: impl FnMut()) -> f64 {
    let once = |run: &mut dyn FnMut()| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64()
    };
    (0..trials).map(|_| once(&mut run)).fold(f64::INFINITY, f64::min)
}

/// Peak FLOP/s of GEMMs in the calling pool, from registers and first-level caches alone.
#[derive(Debug, Clone, Copy)]
pub struct Peaks {
    /// Peak of the vector registers, on which narrow GEMMs run.
    pub vectors: f64,
    /// Peak of AMX tiles, with six bfloat16 products for each f32 product; `None` without tiles.
    pub tiles: Option<f64>,
}

/// Measures the peak FLOP/s of the calling pool.
pub fn peak_flops() -> Peaks {
    let best = |on_tiles: bool| (0..9).map(|_| peak(on_tiles)).fold(0.0, f64::max);
    Peaks { vectors: best(false), tiles: has_tiles(SimdLevel::current()).then(|| best(true)) }
}

/// Bytes per second of sequential reads of 256 MiB in the calling pool.
///
/// # Panics
///
/// Where the system has no memory for it.
pub fn read_bandwidth() -> f64 {
    const BYTES: usize = 256 << 20;
    let mut pages = Pages::zeroed(BYTES).expect("memory to read");
    let values: &mut [f32] = bytemuck::cast_slice_mut(&mut pages);
    values.fill(1.0);
    let sums = |values: &[f32]| {
        values.as_chunks::<64>().0.iter().fold([0.0f32; 64], |mut sums, x| {
            sums.iter_mut().zip(x).for_each(|(s, x)| *s += x);
            sums
        })
    };
    let seconds = best(9, || {
        black_box(values.par_chunks(1 << 16).map(|values| sums(values)[0]).sum::<f32>());
    });
    BYTES as f64 / seconds
}

/// FLOP/s of one run from registers and first-level caches alone, of some milliseconds.
fn peak(on_tiles: bool) -> f64 {
    const DEPTH: usize = 1 << 14;
    const TASKS: usize = 64;
    /// A multiple of the tile width of every level.
    const COLUMNS: usize = 64;
    const TILE_ROWS: usize = 6;
    let level = SimdLevel::current();
    let data = [0.5f32; COLUMNS];
    // Strides of 0: every step of the depth reads the same elements.
    let left = Left { values: &data, by_row: 1, by_depth: 0, zeros: false };
    let right = Right { values: &data, by_depth: 0, by_panel: 0, packed: false };
    let mut out = vec![0.0f32; TASKS * TILE_ROWS * COLUMNS];
    let start = Instant::now();
    parallel::tasks(TASKS, [(&mut out, TILE_ROWS * COLUMNS)], &|_, [out]| {
        if on_tiles {
            out[0] = tiles_flops(level).unwrap_or_default() as f32;
        } else {
            multiply(vector_level(level), [TILE_ROWS, COLUMNS, DEPTH], (left, right), out, false);
        }
    });
    let seconds = start.elapsed().as_secs_f64();
    let flops = if on_tiles { f64::from(out[0]) } else { (2 * TILE_ROWS * COLUMNS * DEPTH) as f64 };
    TASKS as f64 * flops / seconds
}

/// Whether GEMMs with a result of `rows` x `columns` run on AMX tiles on this processor.
pub fn on_tiles(rows: usize, columns: usize) -> bool {
    tiles(SimdLevel::current(), [rows, columns])
}

/// FLOP/s of a GEMM and of the peak, measured one after the other.
#[derive(Debug, Clone, Copy)]
pub struct GemmRates {
    /// A layer's forward GEMM, its weight packed anew.
    pub forward: f64,
    /// The GEMM of its weight's gradient.
    pub gradient: f64,
    /// The peak of the instructions that both use.
    pub peak: f64,
}

/// Rates of a GEMM of `rows` x `depth` by `depth` x `columns` in the calling pool, and of the GEMM of its weight's gradient,
/// both divided into blocks as in layers: one per round. A shared machine changes its speed by a third from second to
/// second, so the peak is measured in every round, and a round's rates are compared with the peak of that round.
///
/// On AMX tiles if `with_tiles` and the GEMM is wide enough.
pub fn gemm_rates([rows, columns, depth]: [usize; 3], with_tiles: bool, rounds: usize) -> Vec<GemmRates> {
    let level = if with_tiles { SimdLevel::current() } else { vector_level(SimdLevel::current()) };
    let weight = vec![0.5f32; depth * columns];
    let mut packed = vec![0.0; packed_len(level, depth, columns)];
    let [mut input, mut out, mut partial]: [Buffer; 3] = Default::default();
    let input = input.get(rows * depth);
    let out = out.get(rows * columns);
    let size = depth * columns;
    let lanes = 16;
    let partial = partial.get(lanes * size);
    input.fill(0.25);
    let each = rows.div_ceil(lanes).next_multiple_of(ROWS);
    let work = 2.0 * (rows * columns * depth) as f64;
    // Of small GEMMs many, so that a round is not over before the processor's clock settles.
    let repeats = (4e8 / work).ceil();
    let rate = |run: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..repeats as usize).for_each(|_| run());
        repeats * work / start.elapsed().as_secs_f64()
    };
    let mut round = || {
        let peak = peak(with_tiles);
        let forward = rate(&mut || {
            pack(level, &weight, [depth, columns], true, &mut packed);
            row_blocks(rows, [(&mut *out, columns)], &|block, [out]| {
                let x = &input[block.start * depth..];
                let sizes = [block.len(), columns, depth];
                multiply(level, sizes, (Left::rows(x, depth), Right::packed(level, &packed, depth)), out, false);
            });
        });
        let gradient = rate(&mut || {
            parallel::tasks(rows.div_ceil(each), [(&mut *partial, size)], &|lane, [sums]| {
                for first in (lane * each..((lane + 1) * each).min(rows)).step_by(ROWS) {
                    let end = (first + ROWS).min(rows);
                    let (x, g) = (&input[first * depth..], &out[first * columns..]);
                    let factors = (Left::transposed(g, columns), Right::rows(x, depth));
                    multiply(level, [columns, depth, end - first], factors, sums, first > lane * each);
                }
            });
        });
        GemmRates { forward, gradient, peak }
    };
    // The first round touches the memory.
    round();
    (0..rounds).map(|_| round()).collect()
}

/// Seconds of a GEMM by how it treats the zeros of its left factor.
#[derive(Debug, Clone, Copy)]
pub struct SecondsByZeros {
    /// Zeros are skipped; on vector registers.
    pub skipped: f64,
    /// Zeros are multiplied like other elements; on vector registers.
    pub multiplied: f64,
    /// The same on AMX tiles; `None` on a processor without them.
    pub on_tiles: Option<f64>,
}

/// Seconds of a GEMM whose left factor has this share of nonzeros: the gradient of a weight by blocks of rows, in the calling
/// thread.
pub fn seconds_by_nonzeros([rows, columns, depth]: [usize; 3], share: f64) -> SecondsByZeros {
    let level = SimdLevel::current();
    let mut state = 1u64;
    let mut number = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if (state >> 33) as f64 / (1u64 << 31) as f64 <= share { 0.5 } else { 0.0 }
    };
    let grad: Vec<f32> = (0..rows * columns).map(|_| number()).collect();
    let x = vec![0.25; rows * depth];
    let mut sums = vec![0.0; columns * depth];
    let mut seconds = |level: SimdLevel, zeros: bool| {
        best(7, || {
            for (grad, x) in grad.chunks(ROWS * columns).zip(x.chunks(ROWS * depth)) {
                let left = Left::transposed(grad, columns).with_zeros(zeros);
                let sizes = [columns, depth, x.len() / depth];
                multiply(level, sizes, (left, Right::rows(x, depth)), &mut sums, true);
            }
        })
    };
    SecondsByZeros {
        skipped: seconds(vector_level(level), true),
        multiplied: seconds(vector_level(level), false),
        on_tiles: tiles(level, [columns, depth]).then(|| seconds(level, false)),
    }
}
