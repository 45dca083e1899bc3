//! Which instructions loops are compiled for, chosen when the program runs.

use std::sync::OnceLock;

/// A set of instructions; one that comes later has those of the ones before.
///
/// Whoever runs what is compiled for one has to know that the processor has it: `isa <= Isa::best()`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Those every processor has.
    Portable,
    /// Vectors of 32 bytes, and what every processor with them brings: AVX2, FMA, F16C, BMI1, BMI2, LZCNT and POPCNT.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Vectors of 64 bytes with masks: besides, AVX-512 F, BW, CD, DQ and VL.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Isa {
    /// The last one that this processor has, which is asked once.
    #[inline]
    pub fn best() -> Self {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(Self::detect)
    }

    /// All that this processor has, the best one last.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> {
        let all = [
            Self::Portable,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512,
        ];
        all.into_iter().filter(|isa| *isa <= Self::best())
    }

    fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("lzcnt")
                && is_x86_feature_detected!("popcnt");
            let avx512 = avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512cd")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            if avx512 {
                return Self::Avx512;
            } else if avx2 {
                return Self::Avx2;
            }
        }
        Self::Portable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_set_is_the_last_of_all_and_has_the_others() {
        let all: Vec<Isa> = Isa::all().collect();
        assert_eq!((all.first(), all.last()), (Some(&Isa::Portable), Some(&Isa::best())));
        assert!(all.is_sorted());
    }
}
