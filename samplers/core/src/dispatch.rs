//! The kernels, compiled once for each set of instructions. All compute the same.

use morphgl_graph_store::Isa;

use crate::lanes::{LANES, Lanes, floyd_lanes};
use crate::stream::Row;
use crate::table::{Bucket, Seen, relabel_direct, relabel_hashed};

/// Makes a function that runs a kernel, which is to be inlined, compiled for the instructions asked for; or, for the
/// widest vectors, a kernel written for them.
macro_rules! kernel {
    ($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) -> $out:ty = $kernel:path) => {
        kernel!($(#[$doc])* $name($($arg: $type),*) -> $out = $kernel, $kernel);
    };
    ($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) -> $out:ty = $kernel:path, $wide:path) => {
        $(#[$doc])*
        ///
        /// # Panics
        ///
        /// In debug builds, when the processor lacks `isa`.
        pub(crate) fn $name(isa: Isa, $($arg: $type),*) -> $out {
            debug_assert!(isa <= Isa::best(), "this processor has no {isa:?}");
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
                fn avx2($($arg: $type),*) -> $out {
                    $kernel($($arg),*)
                }
                #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
                fn avx512($($arg: $type),*) -> $out {
                    $wide($($arg),*)
                }
                match isa {
                    Isa::Portable => $kernel($($arg),*),
                    // SAFETY: the crate's functions are given what `Isa::best` or `Isa::all` says, which asked the processor.
                    Isa::Avx2 => unsafe { avx2($($arg),*) },
                    // SAFETY: as above.
                    Isa::Avx512 => unsafe { avx512($($arg),*) },
                }
            }
            #[cfg(not(target_arch = "x86_64"))]
            $kernel($($arg),*)
        }
    };
}

kernel! {
    /// Floyd's method in sixteen lanes.
    floyd(row: &Row, lanes: &Lanes, picks: &mut [[u32; LANES]]) -> u32 = floyd_lanes, crate::wide::floyd_wide
}
kernel! {
    /// Local ids by a table with a place for each node of the graph.
    direct(table: &mut [u64], seen: Seen<'_>, values: &mut [[u32; 2]], ids: &mut [u32], count: usize) -> u32
        = relabel_direct, crate::wide::relabel_wide
}
kernel! {
    /// Local ids by a hash table.
    hashed(table: &mut [Bucket], seen: Seen<'_>, ids: &mut [u32], count: usize) -> u32 = relabel_hashed
}
