//! The kernels, dispatched over SIMD levels, whose results are equal.

use morphgl_platform::simd_dispatch;

use crate::early::{CHUNK, early_times};
use crate::lanes::{LANES, Lanes, floyd_lanes};
use crate::stream::Row;
use crate::table::{Bucket, LocalIds, relabel_direct, relabel_hashed};

simd_dispatch! {
    /// Floyd's method in sixteen lanes.
    pub(crate) fn floyd(row: &Row, lanes: &Lanes, picks: &mut [[u32; LANES]]) -> u32;
    avx512: crate::avx512::floyd_wide(row, lanes, picks),
    avx2: crate::avx2::floyd_halves(row, lanes, picks),
    portable: floyd_lanes(row, lanes, picks),
}
simd_dispatch! {
    /// Candidates of a weighted pick: neighbours whose exponential clock may be among the smallest.
    pub(crate) fn early(row: &Row, block: u32, weights: &[f32; CHUNK], limit: f64, words: &mut [[u32; 4]; CHUNK / 2]) -> u32;
    avx512: early_times(row, block, weights, limit, words),
    avx2: early_times(row, block, weights, limit, words),
    portable: early_times(row, block, weights, limit, words),
}
simd_dispatch! {
    /// Relabelling by a direct table, with an entry for each node of the graph.
    pub(crate) fn direct(table: &mut [u64], local_ids: LocalIds<'_>, values: &mut [[u32; 2]], ids: &mut [u32], count: usize) -> u32;
    avx512: crate::avx512::relabel_wide(table, local_ids, values, ids, count),
    avx2: relabel_direct(table, local_ids, values, ids, count),
    portable: relabel_direct(table, local_ids, values, ids, count),
}
simd_dispatch! {
    /// Relabelling by a hash table.
    pub(crate) fn hashed(table: &mut [Bucket], local_ids: LocalIds<'_>, ids: &mut [u32], count: usize) -> u32;
    avx512: relabel_hashed(table, local_ids, ids, count),
    avx2: relabel_hashed(table, local_ids, ids, count),
    portable: relabel_hashed(table, local_ids, ids, count),
}
