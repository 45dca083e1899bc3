//! The kernels, compiled once for each SIMD level. All compute the same.

use morphgl_platform::SimdLevel;

use crate::lanes::{LANES, Lanes, floyd_lanes};
use crate::stream::Row;
use crate::table::{Bucket, Seen, relabel_direct, relabel_hashed};

/// Makes a function that runs a kernel, which is to be inlined, compiled for the level asked for; or kernels written for
/// AVX-512 and AVX2.
macro_rules! kernel {
    ($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) -> $out:ty = $kernel:path) => {
        kernel!($(#[$doc])* $name($($arg: $type),*) -> $out = $kernel, $kernel, $kernel);
    };
    ($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) -> $out:ty = $kernel:path, $avx2:path, $avx512:path) => {
        $(#[$doc])*
        ///
        /// # Panics
        ///
        /// In debug builds, when the processor lacks `level`.
        pub(crate) fn $name(level: SimdLevel, $($arg: $type),*) -> $out {
            debug_assert!(level <= SimdLevel::detected(), "this processor has no {level}");
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
                fn avx2($($arg: $type),*) -> $out {
                    $avx2($($arg),*)
                }
                #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
                fn avx512($($arg: $type),*) -> $out {
                    $avx512($($arg),*)
                }
                match level {
                    SimdLevel::Portable => $kernel($($arg),*),
                    // SAFETY: the crate's functions are given a level of `SimdLevel::available`, which asked the processor.
                    SimdLevel::Avx2 => unsafe { avx2($($arg),*) },
                    // SAFETY: as above.
                    SimdLevel::Avx512 | SimdLevel::Amx => unsafe { avx512($($arg),*) },
                }
            }
            #[cfg(not(target_arch = "x86_64"))]
            $kernel($($arg),*)
        }
    };
}

kernel! {
    /// Floyd's method in sixteen lanes.
    floyd(row: &Row, lanes: &Lanes, picks: &mut [[u32; LANES]]) -> u32
        = floyd_lanes, crate::avx2::floyd_halves, crate::avx512::floyd_wide
}
kernel! {
    /// Local ids by a table with a place for each node of the graph.
    direct(table: &mut [u64], seen: Seen<'_>, values: &mut [[u32; 2]], ids: &mut [u32], count: usize) -> u32
        = relabel_direct, relabel_direct, crate::avx512::relabel_wide
}
kernel! {
    /// Local ids by a hash table.
    hashed(table: &mut [Bucket], seen: Seen<'_>, ids: &mut [u32], count: usize) -> u32 = relabel_hashed
}
