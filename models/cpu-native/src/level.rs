//! The SIMD level that the operator's loops run at.

use morphgl_platform::SimdLevel;

/// A SIMD level that this processor has and that is not capped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level(
    // Invariant: at most `SimdLevel::current()`, so that a value is the permission to run code compiled for it.
    SimdLevel,
);

impl Level {
    /// The levels there are, the fastest first.
    pub fn available() -> Vec<Self> {
        SimdLevel::available().rev().map(Self).collect()
    }

    /// The fastest of them.
    pub fn best() -> Self {
        Self(SimdLevel::current())
    }

    /// The level of vector registers beside AMX tiles; of others, the level itself.
    pub(crate) fn without_tiles(self) -> Self {
        #[cfg(target_arch = "x86_64")]
        if self.0 == SimdLevel::Amx {
            return Self(SimdLevel::Avx512);
        }
        self
    }

    pub(crate) fn simd(self) -> SimdLevel {
        self.0
    }

    /// Whether products are on AMX tiles; the rest is AVX-512 then.
    pub(crate) fn tiles(self) -> bool {
        self.without_tiles() != self
    }

    /// Whether a product and a sum are rounded once.
    #[cfg(test)]
    pub(crate) fn fused(self) -> bool {
        self.0 > SimdLevel::Portable || cfg!(target_arch = "aarch64")
    }
}

/// A function compiled for every SIMD level, `$name(level, …)`, each with a body of its own.
macro_rules! compiled {
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)?;
        avx512: $avx512:block avx2: $avx2:block portable: $portable:block
    ) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments, reason = "those of the function it stands for")]
        $vis fn $name(level: $crate::level::Level, $($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")]
            #[allow(clippy::too_many_arguments, reason = "those of the function it stands for")]
            fn avx512($($arg: $ty),*) $(-> $ret)? $avx512
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            #[allow(clippy::too_many_arguments, reason = "those of the function it stands for")]
            fn avx2($($arg: $ty),*) $(-> $ret)? $avx2
            match level.simd() {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: a `Level` is at most the level in force, so the processor has its instructions.
                morphgl_platform::SimdLevel::Avx512 | morphgl_platform::SimdLevel::Amx => unsafe { avx512($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: as above.
                morphgl_platform::SimdLevel::Avx2 => unsafe { avx2($($arg),*) },
                morphgl_platform::SimdLevel::Portable => $portable,
            }
        }
    };
}
pub(crate) use compiled;

/// A function compiled for every SIMD level: `$name(level, …)` calls `$inner(…)`, which is `#[inline(always)]`.
macro_rules! leveled {
    ($(#[$meta:meta])* fn $name:ident = $inner:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?) => {
        $crate::level::compiled! {
            $(#[$meta])*
            pub(crate) fn $name($($arg: $ty),*) $(-> $ret)?;
            avx512: { $inner($($arg),*) }
            avx2: { $inner($($arg),*) }
            portable: { $inner($($arg),*) }
        }
    };
}
pub(crate) use leveled;
