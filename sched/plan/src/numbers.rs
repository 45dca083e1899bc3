//! The bounds of every number in a plan or a planning problem.
//!
//! Sums and products of numbers within the bounds do not overflow, and a schedule within them runs without a panic and ends.

use morphgl_registry::Key;

use crate::Invalid;

/// Maximum number of threads of a phase: workers times the threads of each, and threads of training.
pub const MAX_THREADS: usize = 1024;
/// Maximum number of cores.
pub(crate) const MAX_CORES: usize = 1 << 20;
/// Maximum capacity of a buffer, in mini-batches.
pub const MAX_BUFFER: usize = u16::MAX as usize + MAX_THREADS;
/// Maximum slowdown of a phase by another.
pub(crate) const MAX_FACTOR: f64 = 1e15;
/// Maximum seconds of a duration: 30 years.
pub const MAX_SECONDS: f64 = 1e9;
/// Maximum bytes of the name of an operator or a resource, which messages quote.
pub(crate) const MAX_NAME: usize = 256;
/// Maximum bytes of a mini-batch, a worker or a cache: 64 TiB.
pub const MAX_BYTES: u64 = 1 << 46;

/// Checks a count against its bounds.
pub(crate) fn within(name: &str, value: usize, least: usize, most: usize) -> Result<(), Invalid> {
    if (least..=most).contains(&value) { Ok(()) } else { wrong(&name, format!("{value} is outside {least} to {most}")) }
}

/// Checks the length of an operator's or a resource's name, before it is quoted.
pub(crate) fn check_name(name: &str) -> Result<(), Invalid> {
    if name.len() <= MAX_NAME {
        return Ok(());
    }
    wrong(&"names", format!("an operator's or a resource's has {} bytes; give {MAX_NAME} at most", name.len()))
}

/// Checks the length of an operator's key, before it is quoted.
pub(crate) fn check_key(key: &Key) -> Result<(), Invalid> {
    check_name(&key.to_string())
}

pub(crate) fn check_bytes(what: &dyn std::fmt::Display, bytes: u64) -> Result<(), Invalid> {
    if bytes <= MAX_BYTES { Ok(()) } else { wrong(what, format!("{bytes} bytes are more than {MAX_BYTES}")) }
}

/// Whether a number is finite and not negative.
pub(crate) fn is_amount(x: f64) -> bool {
    x.is_finite() && x >= 0.0
}

pub(crate) fn wrong(what: &dyn std::fmt::Display, fault: String) -> Result<(), Invalid> {
    Err(Invalid(format!("{what}: {fault}")))
}
