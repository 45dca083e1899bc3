#![doc = include_str!("../README.md")]

mod simd_level;

pub use simd_level::{ISA_VARIABLE, SimdLevel, UnavailableLevel};
