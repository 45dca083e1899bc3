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
    // Threshold 2^32 mod n is 2^31 - 1. The first word is 0, and the first retry 2: `0 * n` and `2 * n` have the lower words 0 and 2,
    // which are below the threshold, so both are rejected.
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
