//! Structured mutations of seeds: deterministic, a function of a number.

/// SplitMix64: small, and the same on every machine.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, 0 where that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { (self.next() % bound as u64) as usize }
    }

    /// One of `choices`.
    pub fn of<'c, T: ?Sized>(&mut self, choices: &[&'c T]) -> &'c T {
        choices[self.below(choices.len())]
    }
}

/// Numbers as text at which readers change their mind.
const NUMBERS: &[&str] = &[
    "0",
    "-1",
    "1",
    "2",
    "3",
    "255",
    "256",
    "65535",
    "65536",
    "16777217",
    "99999999",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999",
    "1e400",
    "-0.0",
    "1e-400",
    "NaN",
    "inf",
    "0.5",
    "-0.5",
    "3.0",
    "007",
];

/// Numbers as bytes, the lowest first.
const WORDS: &[u64] = &[
    0,
    1,
    2,
    127,
    128,
    255,
    256,
    32767,
    65535,
    65536,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    1 << 53,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// Longest input that mutations make of seeds.
const MAX_LEN: usize = 64 << 10;

/// A mutation of one of `seeds`, by one to four changes; `tokens` are words of the format. The first byte, which selects what the
/// rest is read as, seldom changes.
pub fn mutated(random: &mut Random, seeds: &[Vec<u8>], tokens: &[&str]) -> Vec<u8> {
    let seed = &seeds[random.below(seeds.len())];
    let mut bytes = seed[1..].to_vec();
    for _ in 0..=random.below(4) {
        change(random, &mut bytes, seeds, tokens);
        bytes.truncate(MAX_LEN);
    }
    let role = if random.below(8) == 0 { random.next() as u8 } else { seed[0] };
    bytes.insert(0, role);
    bytes
}

fn change(random: &mut Random, bytes: &mut Vec<u8>, seeds: &[Vec<u8>], tokens: &[&str]) {
    let len = bytes.len();
    let (from, to) = {
        let (a, b) = (random.below(len + 1), random.below(len + 1));
        // Most pieces are short.
        let to = if random.below(4) == 0 { a.max(b) } else { (a.min(b) + 1 + random.below(16)).min(len) };
        (a.min(b), to.max(a.min(b)))
    };
    match random.below(12) {
        0 if len > 0 => bytes[from.min(len - 1)] ^= 1 << random.below(8),
        1 if len > 0 => bytes[from.min(len - 1)] = *random.of(&[&0, &1, &0x7f, &0x80, &0xff, &b'\n', &b'"', &b'[']),
        2 => bytes.truncate(from),
        3 => drop(bytes.drain(from..to)),
        4 => {
            let piece = bytes[from..to].repeat(1 + random.below(64));
            let at = random.below(len + 1);
            drop(bytes.splice(at..at, piece));
        }
        5 => {
            // Swaps two pieces: the second half of the range with the first.
            let middle = from + (to - from) / 2;
            bytes[from..to].rotate_left(middle - from);
        }
        6 => {
            let other = &seeds[random.below(seeds.len())];
            let (a, b) = (random.below(other.len()), random.below(other.len()));
            let piece = other[a.min(b)..a.max(b)].to_vec();
            drop(bytes.splice(from..to, piece));
        }
        7 | 8 => {
            // Replaces a number in text.
            let starts: Vec<usize> =
                (0..len).filter(|&i| digit(bytes, i) && (i == 0 || !digit(bytes, i - 1))).collect();
            let Some(&start) = starts.get(random.below(starts.len())) else { return };
            let end = (start..len).find(|&i| !digit(bytes, i)).unwrap_or(len);
            drop(bytes.splice(start..end, random.of(NUMBERS).bytes()));
        }
        9 => {
            // Replaces a number of one to eight bytes.
            let size = 1 << random.below(4);
            let word = WORDS[random.below(WORDS.len())];
            let word = if random.below(8) == 0 { word.swap_bytes() } else { word };
            let at = random.below(len);
            word.to_le_bytes().iter().take(size).zip(bytes.iter_mut().skip(at)).for_each(|(from, to)| *to = *from);
        }
        _ => {
            let token = if tokens.is_empty() { "\0" } else { random.of(tokens) };
            let count = if random.below(8) == 0 { 1 << random.below(12) } else { 1 };
            let end = if random.below(2) == 0 { from } else { to };
            drop(bytes.splice(from..end, token.repeat(count).bytes()));
        }
    }
}

fn digit(bytes: &[u8], at: usize) -> bool {
    bytes[at].is_ascii_digit()
}
