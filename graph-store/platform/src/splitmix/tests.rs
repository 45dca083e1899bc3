use super::*;

/// The first outputs of the seed 1234567 in the reference implementation (Vigna, `splitmix64.c`).
#[test]
fn known_answers() {
    let outputs = [1u64, 2, 3].map(|i| splitmix64(1_234_567u64.wrapping_add(i.wrapping_mul(SPLITMIX_STEP))));
    assert_eq!(outputs, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
}
