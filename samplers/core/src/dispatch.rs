//! The kernels, compiled once for each width of instructions; the widest that the processor has is run.

use crate::lanes::{LANES, Lanes, floyd_lanes};
use crate::stream::Row;
use crate::table::{Bucket, Seen, relabel_direct, relabel_hashed};

/// A width of instructions. All forms compute the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Form {
    /// Every form this processor runs, the widest last.
    pub(crate) fn all() -> impl Iterator<Item = Form> {
        let forms = [
            Some(Form::Portable),
            #[cfg(target_arch = "x86_64")]
            narrow().then_some(Form::Avx2),
            #[cfg(target_arch = "x86_64")]
            (narrow()
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512cd")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl"))
            .then_some(Form::Avx512),
        ];
        forms.into_iter().flatten()
    }

    /// The widest form this processor runs.
    #[inline]
    pub(crate) fn best() -> Form {
        Form::all().last().unwrap_or(Form::Portable)
    }
}

/// Whether the processor has what [`Form::Avx2`] is compiled for.
#[cfg(target_arch = "x86_64")]
fn narrow() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt")
}

/// Makes a function that runs a kernel, which is to be inlined, compiled for the form asked for; or, at the widest form,
/// a kernel written for it.
macro_rules! kernel {
    ($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) -> $out:ty = $kernel:path) => {
        kernel!($(#[$doc])* $name($($arg: $type),*) -> $out = $kernel, $kernel);
    };
    ($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) -> $out:ty = $kernel:path, $wide:path) => {
        $(#[$doc])*
        ///
        /// # Panics
        ///
        /// In debug builds, when the processor does not run `form`.
        pub(crate) fn $name(form: Form, $($arg: $type),*) -> $out {
            debug_assert!(Form::all().any(|f| f == form), "{form:?} does not run here");
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
                match form {
                    Form::Portable => $kernel($($arg),*),
                    // SAFETY: a form other than the portable one comes from `Form::all`, which asked the processor.
                    Form::Avx2 => unsafe { avx2($($arg),*) },
                    // SAFETY: as above.
                    Form::Avx512 => unsafe { avx512($($arg),*) },
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
