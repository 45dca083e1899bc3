//! Copies of scattered rows at every SIMD level. All `unsafe` of the gather is here and in `registers`.

#[cfg(target_arch = "x86_64")]
use std::sync::OnceLock;

use morphgl_platform::{SimdLevel, prefetch};

#[cfg(target_arch = "x86_64")]
mod registers;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Prefetch distances of the gather, bytes prefetched of each row, and the row sizes that are streamed.
#[derive(Debug, Clone, Copy)]
struct PrefetchTuning {
    /// Prefetch distance in rows.
    ahead: usize,
    /// Prefetch distance with streaming stores.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "nothing is streamed there"))]
    ahead_streaming: usize,
    /// Whether rows are prefetched into the second-level cache with streaming stores.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "nothing is streamed there"))]
    second_streaming: bool,
    /// Bytes of a row that are prefetched, from its first on.
    head_bytes: usize,
    /// Bytes of a row from which streaming is faster, at AVX2 and at AVX-512: shorter rows have too few whole cache lines.
    streams_from: [usize; 2],
}

/// Distances for Intel: its hardware prefetcher fetches what follows a row's head, with more lines in flight than software
/// prefetches get: streamed rows of 1204 bytes come at 8.2 GB/s instead of 5.6, of 3072 bytes at 10.1 instead of 7.5
/// (`benches/gather.rs`; one thread of a Sapphire Rapids server). Streaming stores occupy fill buffers that
/// first-level misses need, so rows are then prefetched into the second level, and earlier. Streamed, rows of 200 to 512 bytes come at
/// 1.05 to 1.3 times the speed of cached stores, 400 bytes at that of a `memcpy` of as many (one and two threads of an Emerald Rapids
/// server, at AVX2 and AVX-512).
const INTEL: PrefetchTuning =
    PrefetchTuning { ahead: 8, ahead_streaming: 16, second_streaming: true, head_bytes: 384, streams_from: [192, 192] };
/// Rows of 200 to 1,024 bytes come at 0.9 to 1.5 times the fastest plain loop's speed (the same bench; one and two threads of a
/// Zen 5 server at AVX2, three runs). Prefetched into the second-level cache, streamed rows of 512 bytes come at half of it in about
/// half of the runs; not streamed, rows of 400 bytes at 0.82 to 0.86 on two threads. At AVX-512, where lines that a row shares are put together
/// in a slower way, they are at 0.82 to 1.03, and streamed at 0.80 to 0.88.
const OTHERS: PrefetchTuning = PrefetchTuning {
    ahead: 16,
    ahead_streaming: 24,
    second_streaming: false,
    head_bytes: 1024,
    streams_from: [192, 512],
};

/// Bytes of a row from which a large output is streamed, at this level on this processor.
pub(super) fn streams_from(level: SimdLevel) -> usize {
    let [avx2, others] = PrefetchTuning::detected().streams_from;
    if level < SimdLevel::Avx512 { avx2 } else { others }
}

impl PrefetchTuning {
    /// The tuning for this processor's vendor.
    fn detected() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            static IS_INTEL: OnceLock<bool> = OnceLock::new();
            let vendor = || {
                let id = std::arch::x86_64::__cpuid(0);
                [id.ebx, id.edx, id.ecx].map(u32::to_le_bytes).concat() == b"GenuineIntel"
            };
            if *IS_INTEL.get_or_init(vendor) {
                return INTEL;
            }
        }
        OTHERS
    }
}

/// The kind of stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stores {
    /// Into the caches.
    Cached,
    /// Streaming stores of whole cache lines, which bypass the caches and avoid reading each written line.
    Streaming,
}

/// Copies the rows `nodes` of `rows`, each `row_bytes` (not 0) long, into `out`, one after the other.
///
/// # Panics
///
/// When `out` is not as long as the rows together, a row does not exist, or the processor lacks `level`.
pub(super) fn copy(level: SimdLevel, stores: Stores, rows: &[u8], row_bytes: usize, nodes: &[u32], out: &mut [u8]) {
    assert_eq!(Some(out.len()), nodes.len().checked_mul(row_bytes), "bytes of the output and of the gathered rows");
    let num_rows = rows.len() / row_bytes;
    // One pass over 4 bytes per row, without branches, is what it costs to leave the copying unchecked.
    let Some(&last) = nodes.iter().max() else { return };
    assert!((last as usize) < num_rows, "row {last} does not exist, there are {num_rows}");
    let tuning = PrefetchTuning::detected();
    match level {
        SimdLevel::Portable => portable(rows, row_bytes, nodes, out, tuning),
        #[cfg(target_arch = "x86_64")]
        _ => {
            assert!(level <= SimdLevel::detected(), "this processor has no {level}");
            let (from, to) = (rows.as_ptr(), out.as_mut_ptr());
            // SAFETY: each node's row lies within `rows` and `out` has `row_bytes` for each node (asserted above);
            // `out` is borrowed mutably, so that the two do not overlap; and the processor has the instructions.
            unsafe {
                match (level >= SimdLevel::Avx512, stores) {
                    (true, Stores::Cached) => x86::cached_512(from, row_bytes, nodes, to, tuning),
                    (true, Stores::Streaming) => x86::streaming_512(from, row_bytes, nodes, to, tuning),
                    (false, Stores::Cached) => x86::cached_256(from, row_bytes, nodes, to, tuning),
                    (false, Stores::Streaming) => x86::streaming_256(from, row_bytes, nodes, to, tuning),
                }
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = stores;
}

fn portable(rows: &[u8], row_bytes: usize, nodes: &[u32], out: &mut [u8], tuning: PrefetchTuning) {
    for (i, (&node, to)) in nodes.iter().zip(out.chunks_exact_mut(row_bytes)).enumerate() {
        if let Some(&later) = nodes.get(i + tuning.ahead) {
            let start = later as usize * row_bytes;
            (start..start + row_bytes.min(tuning.head_bytes)).step_by(LINE).for_each(|byte| prefetch(rows, byte));
        }
        let start = node as usize * row_bytes;
        to.copy_from_slice(&rows[start..start + row_bytes]);
    }
}

/// The loops, for two register widths and two kinds of stores.
///
/// Requirements of each function: every node's row lies within the memory at `from`, the output at `to` has space for all
/// rows and overlaps none, and the processor has the instructions. Prefetch addresses may be anywhere.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::registers::{Avx2, Avx512, Registers};
    use super::{LINE, PrefetchTuning};

    /// Prefetch distance in rows of the output.
    const AHEAD_OUT: usize = 2;

    macro_rules! compiled {
        ($($features:literal, $registers:ty: $cached:ident, $streaming:ident;)*) => { $(
            #[target_feature(enable = $features)]
            pub(super) unsafe fn $cached(from: *const u8, row: usize, nodes: &[u32], to: *mut u8, tuning: PrefetchTuning) {
                // SAFETY: the caller's promises.
                unsafe { cached::<$registers>(from, row, nodes, to, tuning) }
            }

            #[target_feature(enable = $features)]
            pub(super) unsafe fn $streaming(from: *const u8, row: usize, nodes: &[u32], to: *mut u8, tuning: PrefetchTuning) {
                // SAFETY: the caller's promises.
                unsafe { streaming::<$registers>(from, row, nodes, to, tuning) }
            }
        )* };
    }
    compiled! {
        "avx512f,avx512bw", Avx512: cached_512, streaming_512;
        "avx2", Avx2: cached_256, streaming_256;
    }

    /// Prefetches the first `bytes` of a row, into the cache of `HINT`.
    #[inline(always)]
    fn prefetch_row<const HINT: i32>(from: *const u8, row: usize, later: Option<&u32>, bytes: usize) {
        let Some(&later) = later else { return };
        let from = from.wrapping_add(later as usize * row);
        let end = from.wrapping_add(row.min(bytes));
        let mut line = from.wrapping_sub(from.addr() % LINE);
        while line < end {
            // SAFETY: prefetching has no requirement and no visible effect.
            unsafe { _mm_prefetch::<HINT>(line.cast()) };
            line = line.wrapping_add(LINE);
        }
    }

    /// Prefetches all lines of the `bytes` at `at` for writing.
    #[inline(always)]
    fn prefetch_for_write(at: *const u8, bytes: usize) {
        for line in (0..bytes).step_by(LINE) {
            // SAFETY: as in `prefetch_row`.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(at.wrapping_add(line).cast()) };
        }
    }

    #[inline(always)]
    unsafe fn cached<R: Registers>(from: *const u8, row: usize, nodes: &[u32], to: *mut u8, tuning: PrefetchTuning) {
        for (i, &node) in nodes.iter().enumerate() {
            prefetch_row::<_MM_HINT_T0>(from, row, nodes.get(i + tuning.ahead), tuning.head_bytes);
            prefetch_for_write(to.wrapping_add((i + AHEAD_OUT) * row), row);
            // SAFETY: the caller's promises; every access stays within the row, the last one by overlap or by length.
            unsafe {
                let (from, to) = (from.add(node as usize * row), to.add(i * row));
                let mut at = 0;
                while at + R::BYTES <= row {
                    R::copy(from.add(at), to.add(at));
                    at += R::BYTES;
                }
                if at == row {
                } else if row > R::BYTES {
                    let at = row - R::BYTES;
                    R::copy(from.add(at), to.add(at));
                } else {
                    R::copy_short(from, to, row);
                }
            }
        }
    }

    // Streaming stores write whole aligned lines, but rows end anywhere in a line. So the current line of the output is
    // collected in a buffer and stored when it is full. The bytes of the first and the last line outside the output
    // belong to other data and are not written.

    #[inline(always)]
    unsafe fn streaming<R: Registers>(from: *const u8, row: usize, nodes: &[u32], to: *mut u8, tuning: PrefetchTuning) {
        // Bytes of the line at `at` that are full, and how many of them lie before the output.
        let mut full = to.addr() % LINE;
        let mut outside = full;
        let mut at = to.wrapping_sub(full);
        let mut line = R::Line::default();
        for (i, &node) in nodes.iter().enumerate() {
            let later = nodes.get(i + tuning.ahead_streaming);
            if tuning.second_streaming {
                prefetch_row::<_MM_HINT_T1>(from, row, later, tuning.head_bytes);
            } else {
                prefetch_row::<_MM_HINT_T0>(from, row, later, tuning.head_bytes);
            }
            // SAFETY: the caller's promises. Buffered bytes end with the line, all other accesses lie within row and
            // output, and streamed lines are aligned and whole.
            unsafe {
                let from = from.add(node as usize * row);
                let mut done = 0;
                if full + row < LINE {
                    R::put(&mut line, from, full, row);
                    full += row;
                    continue;
                }
                if full > 0 {
                    done = LINE - full;
                    R::put(&mut line, from, full, done);
                    if outside == 0 {
                        R::stream(&line, at);
                    } else {
                        R::store(&line, at, outside, LINE);
                        outside = 0;
                    }
                    at = at.wrapping_add(LINE);
                }
                while done + LINE <= row {
                    R::pass(from.add(done), at);
                    at = at.wrapping_add(LINE);
                    done += LINE;
                }
                full = row - done;
                R::begin(&mut line, from.wrapping_add(done), full);
            }
        }
        // SAFETY: only the full bytes of the line within the output are written. The fence makes streamed stores visible
        // to later readers.
        unsafe {
            R::store(&line, at, outside, full);
            _mm_sfence();
        }
    }
}

#[cfg(test)]
mod tests;
