//! Random integers below a bound, exactly uniform.

/// Maximum number of retries. More are needed with a probability below 2^-256.
pub const RETRIES: u32 = 256;

/// Turns a random word into a number in `0..n`, each equally likely, by multiplication (Lemire, "Fast random integer
/// generation in an interval", 2019).
///
/// The number is the upper word of `first * n`. Where the lower word is below `2^32 mod n` the word is rejected and
/// replaced by `retry(0)`, `retry(1)`, … until one is not, or [`RETRIES`] of them were.
///
/// # Panics
///
/// In debug builds, when `n` is 0.
#[inline]
pub fn bounded(n: u32, first: u32, mut retry: impl FnMut(u32) -> u32) -> u32 {
    debug_assert!(n > 0, "there is no number below 0");
    let mut product = u64::from(first) * u64::from(n);
    // 2^32 mod n is below n: most words are accepted without dividing.
    if (product as u32) < n {
        let threshold = n.wrapping_neg() % n;
        let mut tries = 0;
        while (product as u32) < threshold && tries < RETRIES {
            product = u64::from(retry(tries)) * u64::from(n);
            tries += 1;
        }
    }
    (product >> 32) as u32
}

#[cfg(test)]
mod tests;
