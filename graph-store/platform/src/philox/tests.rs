use super::*;

/// The known answers that Random123 publishes for philox4x32 with ten rounds.
#[test]
fn known_answers() {
    let cases = [
        ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
        ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
        (
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        ),
    ];
    for (counter, key, expected) in cases {
        assert_eq!(philox4x32_10(counter, key), expected);
    }
}

#[test]
fn a_key_is_the_seed_s_words() {
    assert_eq!(key(0x0123_4567_89AB_CDEF), [0x89AB_CDEF, 0x0123_4567]);
}

#[test]
fn blocks_follow_one_another_in_word_0() {
    let (counter, key) = ([7, 1, 2, 3], [4, 5]);
    let blocks: [[u32; 4]; 5] = philox4x32_10_blocks(counter, key);
    for (i, block) in blocks.into_iter().enumerate() {
        assert_eq!(block, philox4x32_10([7 + i as u32, 1, 2, 3], key));
    }
}
