//! Which instructions loops are compiled for, chosen when the program runs.

/// An instruction set that this processor has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    set: Set,
    /// Whether products are on AMX tiles; the set is AVX-512 then.
    tiles: bool,
}

// Invariant of `Level`: the processor has the set, and the tiles; so the fields are private, and `available` and `best`
// alone make one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Set {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

impl Set {
    /// All of them, the fastest first.
    const ALL: &[Self] = &[
        #[cfg(target_arch = "x86_64")]
        Self::Avx512,
        #[cfg(target_arch = "x86_64")]
        Self::Avx2,
        Self::Portable,
    ];

    /// Whether this processor has it, and those behind it.
    fn is_here(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                Self::Avx2.is_here()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
            }
            Self::Portable => true,
        }
    }

    /// Whether this processor multiplies on AMX tiles beside it.
    fn has_tiles(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self == Self::Avx512 && crate::product::has_tiles();
        #[cfg(not(target_arch = "x86_64"))]
        false
    }
}

impl Level {
    /// The sets that this processor has, the fastest first.
    pub fn available() -> Vec<Self> {
        Self::all().collect()
    }

    /// The fastest of them.
    pub fn best() -> Self {
        Self::all().next().expect("every processor has the portable set")
    }

    fn all() -> impl Iterator<Item = Self> {
        Set::ALL.iter().copied().filter(|set| set.is_here()).flat_map(|set| {
            let tiled = set.has_tiles().then_some(Self { set, tiles: true });
            tiled.into_iter().chain([Self { set, tiles: false }])
        })
    }

    /// The same without AMX tiles.
    pub(crate) fn without_tiles(self) -> Self {
        Self { tiles: false, ..self }
    }

    pub(crate) fn set(self) -> Set {
        self.set
    }

    /// Whether products are on AMX tiles.
    pub(crate) fn tiles(self) -> bool {
        self.tiles
    }
}

/// `a * b + c`, in one rounding where the target has an instruction for it.
#[inline(always)]
pub(crate) fn fma<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED || cfg!(target_arch = "aarch64") { a.mul_add(b, c) } else { a * b + c }
}

/// A function compiled for every set, `$name(level, …)`, each with a body of its own.
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
            match level.set() {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: a level is a set that the processor has.
                $crate::level::Set::Avx512 => unsafe { avx512($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: as above.
                $crate::level::Set::Avx2 => unsafe { avx2($($arg),*) },
                $crate::level::Set::Portable => $portable,
            }
        }
    };
}
pub(crate) use compiled;

/// A function compiled for every set: `$name(level, …)` calls `$inner::<FUSED>(…)`, which is `#[inline(always)]`.
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
