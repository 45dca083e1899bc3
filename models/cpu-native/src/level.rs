//! Which instructions loops are compiled for, chosen when the program runs.

use morphgl_graph_store::Isa;

/// Instructions that this processor has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    isa: Isa,
    /// Whether products are on AMX tiles; the rest is AVX-512 then.
    tiles: bool,
}

// Invariant of `Level`: the processor has the instructions, and the tiles; so the fields are private, and `available` and
// `best` alone make one.

impl Level {
    /// Those that this processor has, the fastest first.
    pub fn available() -> Vec<Self> {
        Self::all().collect()
    }

    /// The fastest of them.
    pub fn best() -> Self {
        Self::all().next().expect("every processor has the portable instructions")
    }

    fn all() -> impl Iterator<Item = Self> {
        Isa::all().rev().flat_map(|isa| {
            let tiled = has_tiles(isa).then_some(Self { isa, tiles: true });
            tiled.into_iter().chain([Self { isa, tiles: false }])
        })
    }

    /// The same without AMX tiles.
    pub(crate) fn without_tiles(self) -> Self {
        Self { tiles: false, ..self }
    }

    pub(crate) fn isa(self) -> Isa {
        self.isa
    }

    /// Whether products are on AMX tiles.
    pub(crate) fn tiles(self) -> bool {
        self.tiles
    }
}

/// Whether this processor multiplies on AMX tiles beside `isa`.
fn has_tiles(isa: Isa) -> bool {
    #[cfg(target_arch = "x86_64")]
    return isa == Isa::Avx512 && crate::product::has_tiles();
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = isa;
        false
    }
}

/// `a * b + c`, in one rounding where the target has an instruction for it.
#[inline(always)]
pub(crate) fn fma<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED || cfg!(target_arch = "aarch64") { a.mul_add(b, c) } else { a * b + c }
}

/// A function compiled for every set of instructions, `$name(level, …)`, each with a body of its own.
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
            match level.isa() {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the processor has what a level says.
                morphgl_graph_store::Isa::Avx512 => unsafe { avx512($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: as above.
                morphgl_graph_store::Isa::Avx2 => unsafe { avx2($($arg),*) },
                morphgl_graph_store::Isa::Portable => $portable,
            }
        }
    };
}
pub(crate) use compiled;

/// A function compiled for every set of instructions: `$name(level, …)` calls `$inner::<FUSED>(…)`, which is
/// `#[inline(always)]`.
macro_rules! leveled {
    ($(#[$meta:meta])* fn $name:ident = $inner:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?) => {
        $crate::level::compiled! {
            $(#[$meta])*
            pub(crate) fn $name($($arg: $ty),*) $(-> $ret)?;
            avx512: { $inner::<true>($($arg),*) }
            avx2: { $inner::<true>($($arg),*) }
            portable: { $inner::<false>($($arg),*) }
        }
    };
}
pub(crate) use leveled;
