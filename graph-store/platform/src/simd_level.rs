//! The SIMD level: the processor's highest, capped by `MORPHGL_ISA`.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

#[cfg(target_arch = "x86_64")]
mod amx;

/// The environment variable that caps the SIMD level.
pub const ISA_VARIABLE: &str = "MORPHGL_ISA";

/// The instruction set a loop is compiled for; a later level has the instructions of those before it.
///
/// Code compiled for a level may run only where `level <= SimdLevel::detected()`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SimdLevel {
    /// The target's baseline: SSE2 on x86-64, NEON on 64-bit ARM.
    Portable,
    /// AVX2, FMA, F16C, BMI1, BMI2, LZCNT and POPCNT: vectors of 32 bytes.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, BW, CD, DQ and VL: vectors of 64 bytes with masks.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// AMX tiles of bfloat16 for GEMMs; AVX-512 for all else.
    #[cfg(target_arch = "x86_64")]
    Amx,
}

impl SimdLevel {
    /// Every level of this architecture, the lowest first.
    const ALL: &[Self] = &[
        Self::Portable,
        #[cfg(target_arch = "x86_64")]
        Self::Avx2,
        #[cfg(target_arch = "x86_64")]
        Self::Avx512,
        #[cfg(target_arch = "x86_64")]
        Self::Amx,
    ];
    const NAMES: [&str; 4] = ["portable", "avx2", "avx512", "amx"];

    /// The level in force: the processor's highest, capped by `MORPHGL_ISA`. Decided once per process.
    ///
    /// # Panics
    ///
    /// When [`requested`](Self::requested) is an error.
    #[inline]
    pub fn current() -> Self {
        static CURRENT: OnceLock<SimdLevel> = OnceLock::new();
        *CURRENT
            .get_or_init(|| Self::requested().unwrap_or_else(|error| panic!("{error}")).unwrap_or_else(Self::detected))
    }

    /// The highest level that the processor has and the operating system lets this process use.
    pub fn detected() -> Self {
        static DETECTED: OnceLock<SimdLevel> = OnceLock::new();
        *DETECTED.get_or_init(Self::detect)
    }

    /// The level that `MORPHGL_ISA` names; `None` where it is not set or empty.
    ///
    /// # Errors
    ///
    /// An unknown name, or a level that this processor lacks.
    pub fn requested() -> Result<Option<Self>, UnavailableLevel> {
        let Some(name) = std::env::var_os(ISA_VARIABLE).filter(|name| !name.is_empty()) else { return Ok(None) };
        let level: Self = name.to_string_lossy().parse()?;
        if level > Self::detected() {
            return Err(UnavailableLevel { name: level.name().into() });
        }
        Ok(Some(level))
    }

    /// The levels up to the one in force, the lowest first.
    pub fn available() -> impl DoubleEndedIterator<Item = Self> {
        Self::ALL.iter().copied().filter(|level| *level <= Self::current())
    }

    /// Its name in `MORPHGL_ISA`.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            macro_rules! detected {
                ($($feature:tt)*) => { $(is_x86_feature_detected!($feature))&&* };
            }
            let avx2 = detected!("avx2" "fma" "f16c" "bmi1" "bmi2" "lzcnt" "popcnt");
            if avx2 && detected!("avx512f" "avx512bw" "avx512cd" "avx512dq" "avx512vl") {
                return if amx::available() { Self::Amx } else { Self::Avx512 };
            } else if avx2 {
                return Self::Avx2;
            }
        }
        Self::Portable
    }
}

impl fmt::Display for SimdLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for SimdLevel {
    type Err = UnavailableLevel;

    fn from_str(name: &str) -> Result<Self, UnavailableLevel> {
        let known = Self::ALL.iter().find(|level| level.name() == name);
        known.copied().ok_or_else(|| UnavailableLevel { name: name.into() })
    }
}

/// A SIMD level that does not exist, or that this processor lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnavailableLevel {
    name: String,
}

impl fmt::Display for UnavailableLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        let detected = &SimdLevel::NAMES[..=SimdLevel::detected() as usize];
        let known = SimdLevel::ALL.iter().any(|level| level.name() == name);
        let what = if known { "this processor lacks it" } else { "no SIMD level of this architecture" };
        write!(f, "{ISA_VARIABLE}={name}: {what}; there are {}", detected.join(", "))
    }
}

impl std::error::Error for UnavailableLevel {}

#[cfg(test)]
mod tests;
