//! XXH3-64 of arrays in memory, multithreaded.
//!
//! XXH3 reads its input in blocks of 1 KiB. A block's contribution to the eight words of the state depends only on the
//! block; the state is scrambled between blocks. So threads sum blocks in parallel, and one thread adds the sums and
//! scrambles, about a hundredth of the work.

use rayon::prelude::*;
use xxhash_rust::const_xxh3::const_custom_default_secret;
use xxhash_rust::xxh3::xxh3_64;

type Words = [u64; 8];

const STRIPE: usize = size_of::<Words>();
const STRIPES: usize = 16;
const BLOCK: usize = STRIPES * STRIPE;
/// Bytes per task.
const TASK: usize = 512 * BLOCK;
/// Bytes per round, whose block sums (a sixteenth as large) are in memory at a time.
const ROUND: usize = 128 * TASK;

/// The secret of seed 0.
const SECRET: [u8; 192] = const_custom_default_secret(0);
/// The key of each stripe of a block.
const KEYS: [Words; STRIPES] = {
    let mut keys = [[0; 8]; STRIPES];
    let mut stripe = 0;
    while stripe < STRIPES {
        keys[stripe] = secret(8 * stripe);
        stripe += 1;
    }
    keys
};
const SCRAMBLE: Words = secret(128);
const LAST: Words = secret(121);
const END: Words = secret(11);

const PRIME_32: [u64; 3] = [0x9E37_79B1, 0x85EB_CA77, 0xC2B2_AE3D];
const PRIME_64: [u64; 5] =
    [0x9E37_79B1_85EB_CA87, 0xC2B2_AE3D_27D4_EB4F, 0x1656_67B1_9E37_79F9, 0x85EB_CA77_C2B2_AE63, 0x27D4_EB2F_1656_67C5];

/// Eight words of the secret, from byte `at` on.
const fn secret(at: usize) -> Words {
    let mut words = [0; 8];
    let mut i = 0;
    while i < 64 {
        words[i / 8] |= (SECRET[at + i] as u64) << (i % 8 * 8);
        i += 1;
    }
    words
}

/// XXH3-64 of `bytes`, by the threads of the current rayon pool.
pub(crate) fn xxh3(bytes: &[u8]) -> u64 {
    if bytes.len() < 2 * TASK || rayon::current_num_threads() == 1 {
        return xxh3_64(bytes);
    }
    by_blocks(bytes)
}

/// As [`xxh3`], for more than 240 bytes: XXH3 has other rules for fewer.
fn by_blocks(bytes: &[u8]) -> u64 {
    let [a, b, c] = PRIME_32;
    let [d, e, f, g, h] = PRIME_64;
    let mut state = [c, d, e, f, g, b, h, a];
    // The last block, which has the last byte, is not scrambled.
    let (blocks, rest) = bytes.split_at((bytes.len() - 1) / BLOCK * BLOCK);
    let mut sums = vec![[0; 8]; blocks.len().min(ROUND) / BLOCK];
    for round in blocks.chunks(ROUND) {
        let sums = &mut sums[..round.len() / BLOCK];
        round.par_chunks(TASK).zip(sums.par_chunks_mut(TASK / BLOCK)).for_each(|(blocks, sums)| {
            blocks.chunks_exact(BLOCK).zip(sums).for_each(|(block, sum)| *sum = add([0; 8], block));
        });
        for sum in sums {
            for (i, word) in state.iter_mut().enumerate() {
                *word = word.wrapping_add(sum[i]);
                *word = (*word ^ *word >> 47 ^ SCRAMBLE[i]).wrapping_mul(PRIME_32[0]);
            }
        }
    }
    state = add(state, &rest[..(rest.len() - 1) / STRIPE * STRIPE]);
    state = mix(state, &bytes[bytes.len() - STRIPE..], &LAST);
    let mut hash = (bytes.len() as u64).wrapping_mul(PRIME_64[0]);
    for i in [0, 2, 4, 6] {
        let product = u128::from(state[i] ^ END[i]) * u128::from(state[i + 1] ^ END[i + 1]);
        hash = hash.wrapping_add(product as u64 ^ (product >> 64) as u64);
    }
    hash = (hash ^ hash >> 37).wrapping_mul(0x1656_6791_9E37_79F9);
    hash ^ hash >> 32
}

/// Adds the stripes of a block or of a prefix of one.
fn add(sum: Words, stripes: &[u8]) -> Words {
    stripes.chunks_exact(STRIPE).zip(&KEYS).fold(sum, |sum, (stripe, keys)| mix(sum, stripe, keys))
}

/// Adds a stripe.
#[inline(always)]
fn mix(mut sum: Words, stripe: &[u8], keys: &Words) -> Words {
    let words: Words = bytemuck::pod_read_unaligned(stripe);
    for i in 0..8 {
        let mixed = words[i] ^ keys[i];
        sum[i] = sum[i].wrapping_add(words[i ^ 1]).wrapping_add((mixed & 0xFFFF_FFFF) * (mixed >> 32));
    }
    sum
}

#[cfg(test)]
mod tests;
