//! Counter-based random numbers of training: initial values and dropout masks.
//!
//! Philox4x32-10 (Salmon et al., SC'11): key = seed, counter = what the number is for. No state anywhere.

/// What a counter's last word says the number is for; the sampler's numbers carry other tags.
const INIT: u32 = 0x696e_6974;
const DROPOUT: u32 = 0x6472_6f70;

/// Blocks computed side by side, so that the compiler can use vector registers.
const LANES: usize = 8;

type Lanes = [u32; LANES];

/// Philox4x32-10 of the counters `(first + lane, c1, c2, c3)`.
#[inline]
fn philox(seed: u64, first: u32, c1: u32, c2: u32, c3: u32) -> [Lanes; 4] {
    let mut x0: Lanes = std::array::from_fn(|lane| first.wrapping_add(lane as u32));
    let (mut x1, mut x2, mut x3) = ([c1; LANES], [c2; LANES], [c3; LANES]);
    let (mut k0, mut k1) = (seed as u32, (seed >> 32) as u32);
    for _ in 0..10 {
        for lane in 0..LANES {
            let a = u64::from(x0[lane]) * 0xD251_1F53;
            let b = u64::from(x2[lane]) * 0xCD9E_8D57;
            x0[lane] = (b >> 32) as u32 ^ x1[lane] ^ k0;
            x1[lane] = b as u32;
            x2[lane] = (a >> 32) as u32 ^ x3[lane] ^ k1;
            x3[lane] = a as u32;
        }
        k0 = k0.wrapping_add(0x9E37_79B9);
        k1 = k1.wrapping_add(0xBB67_AE85);
    }
    [x0, x1, x2, x3]
}

/// `len` numbers uniform in [-bound, bound), of parameter `index`.
pub(crate) fn uniforms(seed: u64, index: u32, len: usize, bound: f32) -> Vec<f32> {
    let mut values = Vec::with_capacity(len.next_multiple_of(4 * LANES));
    for first in (0..len.div_ceil(4)).step_by(LANES) {
        let words = philox(seed, first as u32, (first as u64 >> 32) as u32, index, INIT);
        for lane in 0..LANES {
            // 24 bits, as many as an f32 holds exactly.
            values.extend(words.iter().map(|w| ((w[lane] >> 8) as f32 / 8_388_608.0 - 1.0) * bound));
        }
    }
    values.truncate(len);
    values
}

/// Where in the model a mask is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropoutSite {
    /// On the input features, element `row * in_dim + column`.
    Input,
    /// On a hidden layer's output, element `row * width + column`.
    Hidden,
    /// On a layer's attention coefficients, element `edge * heads + head`; self loops follow the edges.
    Attention,
}

/// The mask of one dropout: a function of seed, mini-batch, layer, site and element, and of nothing else.
///
/// An element is kept when its 16 random bits are not below the probability, and multiplied by the inverse of the share kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropout {
    seed: u64,
    epoch: u32,
    batch: u32,
    site: u32,
    threshold: u32,
}

/// Elements a call of Philox decides: 8 half words in each of the side by side blocks.
const ELEMENTS: usize = 8 * LANES;

impl Dropout {
    /// A mask that drops `probability` of the elements, to 1/65536; `None` when it drops none.
    ///
    /// # Panics
    ///
    /// When the probability is not in [0, 1), or the layer is not below 2^24.
    pub fn new(seed: u64, epoch: u32, batch: u32, layer: usize, site: DropoutSite, probability: f32) -> Option<Self> {
        assert!((0.0..1.0).contains(&probability), "a share to drop is in [0, 1), not {probability}");
        assert!(layer < 1 << 24, "layer {layer}");
        let threshold = ((f64::from(probability) * 65536.0).round() as u32).min(65535);
        let site = (layer as u32) << 2 | site as u32;
        (threshold > 0).then_some(Self { seed, epoch, batch, site, threshold })
    }

    /// What kept elements are multiplied by.
    pub fn scale(&self) -> f32 {
        65536.0 / (65536 - self.threshold) as f32
    }

    /// Fills `factors` with 0 or the scale for elements `first`, `first + 1`, …
    pub fn fill(&self, first: u64, factors: &mut [f32]) {
        let scale = self.scale();
        self.groups(first, factors.len(), |range, kept| {
            for (factor, &bits) in factors[range].iter_mut().zip(kept) {
                *factor = if u32::from(bits) >= self.threshold { scale } else { 0.0 };
            }
        });
    }

    /// Multiplies `values` by the factors of elements `first`, `first + 1`, …
    pub fn apply(&self, first: u64, values: &mut [f32]) {
        let scale = self.scale();
        self.groups(first, values.len(), |range, kept| {
            for (value, &bits) in values[range].iter_mut().zip(kept) {
                *value = if u32::from(bits) >= self.threshold { *value * scale } else { 0.0 };
            }
        });
    }

    /// Whether `element` is kept.
    pub fn keeps(&self, element: u64) -> bool {
        let mut factor = [0.0];
        self.fill(element, &mut factor);
        factor[0] != 0.0
    }

    #[inline]
    fn groups(&self, first: u64, len: usize, mut each: impl FnMut(std::ops::Range<usize>, &[u16])) {
        let mut done = 0;
        while done < len {
            let element = first + done as u64;
            let (group, skip) = (element / ELEMENTS as u64, (element % ELEMENTS as u64) as usize);
            let take = (ELEMENTS - skip).min(len - done);
            let block = group * LANES as u64;
            // The block's high word (beyond 2^35 elements) shares a word with the site.
            let words = philox(
                self.seed,
                block as u32,
                self.site ^ ((block >> 32) as u32) << 26,
                self.batch,
                self.epoch ^ DROPOUT,
            );
            let mut bits = [0u16; ELEMENTS];
            for (w, word) in words.iter().enumerate() {
                for (lane, &x) in word.iter().enumerate() {
                    bits[lane * 8 + 2 * w] = x as u16;
                    bits[lane * 8 + 2 * w + 1] = (x >> 16) as u16;
                }
            }
            each(done..done + take, &bits[skip..skip + take]);
            done += take;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers of Random123 for Philox4x32-10.
    #[test]
    fn philox_gives_the_known_answers() {
        let words = philox(0, 0, 0, 0, 0).map(|w| w[0]);
        assert_eq!(words, [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        let words = philox(u64::MAX, u32::MAX, u32::MAX, u32::MAX, u32::MAX).map(|w| w[0]);
        assert_eq!(words, [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    }

    #[test]
    fn a_mask_is_the_same_in_pieces() {
        let mask = Dropout::new(7, 3, 2, 1, DropoutSite::Hidden, 0.6).expect("it drops");
        let mut whole = [0.0; 300];
        mask.fill(0, &mut whole);
        for start in [0, 1, 7, 63, 64, 65, 200] {
            let mut piece = [0.0; 50];
            mask.fill(start, &mut piece);
            assert_eq!(piece, whole[start as usize..start as usize + 50], "from {start}");
        }
        assert!(whole.iter().enumerate().all(|(e, &f)| mask.keeps(e as u64) == (f != 0.0)));
    }

    #[test]
    fn a_mask_keeps_its_share() {
        for p in [0.1f32, 0.5, 0.6, 0.9] {
            let mut factors = vec![0.0; 200_000];
            Dropout::new(1, 0, 0, 0, DropoutSite::Input, p).expect("it drops").fill(0, &mut factors);
            let mean = factors.iter().map(|&f| f64::from(f)).sum::<f64>() / factors.len() as f64;
            // Four standard errors of the mean of factors with variance p / (1 - p).
            let error = 4.0 * (f64::from(p) / (1.0 - f64::from(p)) / factors.len() as f64).sqrt();
            assert!((mean - 1.0).abs() < error, "mean factor {mean} at {p}");
        }
    }

    #[test]
    fn masks_differ_by_all_they_depend_on() {
        let bits = |seed, epoch, batch, layer, site| {
            let mut factors = [0.0; 64];
            Dropout::new(seed, epoch, batch, layer, site, 0.5).expect("it drops").fill(0, &mut factors);
            factors.iter().fold(0u64, |bits, &f| bits << 1 | u64::from(f != 0.0))
        };
        let hidden = DropoutSite::Hidden;
        let all = [
            bits(0, 0, 0, 0, hidden),
            bits(1, 0, 0, 0, hidden),
            bits(0, 1, 0, 0, hidden),
            bits(0, 0, 1, 0, hidden),
            bits(0, 0, 0, 1, hidden),
            bits(0, 0, 0, 0, DropoutSite::Input),
            bits(0, 0, 0, 0, DropoutSite::Attention),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|b| b != a), "mask {i} is a mask seen before");
        }
    }
}
