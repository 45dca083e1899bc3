#![doc = include_str!("../README.md")]

mod dispatch;
mod simd_level;

pub use simd_level::{ISA_VARIABLE, SimdLevel, UnavailableLevel};
