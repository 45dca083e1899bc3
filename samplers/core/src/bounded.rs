//! Random integers below a bound, exactly uniform.

/// Numbers that may replace a rejected one. More are needed with a probability below 2^-256.
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
mod tests {
    use super::*;

    /// The same arithmetic with words of 8 bits can be counted out: every number comes from equally many words.
    #[test]
    fn accepted_words_are_spread_evenly() {
        for n in 1u32..256 {
            let threshold = 256 % n;
            let mut counts = vec![0u32; n as usize];
            for word in 0u32..256 {
                if (word * n) & 255 >= threshold {
                    counts[((word * n) >> 8) as usize] += 1;
                }
            }
            assert!(counts.iter().all(|&c| c == 256 / n), "n = {n}: {counts:?}");
        }
    }

    #[test]
    fn rejected_words_are_replaced_in_order() {
        // n = 2^31 + 1: 2^32 mod n is 2^31 - 1, so word 0 (lower word 0) is rejected, and so is word 2 (lower word 2).
        let n = (1 << 31) + 1;
        let mut asked = Vec::new();
        let number = bounded(n, 0, |r| {
            asked.push(r);
            [2, 0xFFFF_FFFE][r as usize]
        });
        assert_eq!((number, asked), (0x7FFF_FFFF, vec![0, 1]));
    }

    #[test]
    fn stays_below_the_bound() {
        for n in [1, 2, 3, 1000, u32::MAX] {
            assert!(bounded(n, u32::MAX, |_| 0) < n);
            assert_eq!(bounded(n, 0, |_| 1 << 31), if n == 1 || n == 2 { 0 } else { n / 2 });
        }
    }
}
