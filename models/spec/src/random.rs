//! Counter-based random numbers of training: initial values and dropout masks.
//!
//! Philox4x32-10 (Salmon et al., SC'11): the key is the seed, the counter identifies the number; there is no state.
//! The counter's last word contains a tag, so that no number is one of the sampler's.

use morphgl_platform::philox::{key, philox4x32_10_blocks};

/// Tags of a counter's last word; those of the sampler differ.
const INIT: u32 = 0x696e_6974;
const DROPOUT: u32 = 0x6472_6f70;

/// Blocks computed side by side.
const BLOCKS: usize = 8;

/// `len` uniform numbers in [-bound, bound) of parameter `index`.
pub(crate) fn uniforms(seed: u64, index: u32, len: usize, bound: f32) -> Vec<f32> {
    let mut values = Vec::with_capacity(len.next_multiple_of(4 * BLOCKS));
    for first in (0..len.div_ceil(4)).step_by(BLOCKS) {
        let counter = [first as u32, (first as u64 >> 32) as u32, index, INIT];
        let blocks: [[u32; 4]; BLOCKS] = philox4x32_10_blocks(counter, key(seed));
        // 24 bits, as many as an f32 holds exactly.
        values.extend(blocks.as_flattened().iter().map(|w| ((w >> 8) as f32 / 8_388_608.0 - 1.0) * bound));
    }
    values.truncate(len);
    values
}

/// Use of a mask in the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropoutSite {
    /// On the input features, element `row * in_dim + column`.
    Input,
    /// On a hidden layer's output, element `row * width + column`.
    Hidden,
    /// On a layer's attention coefficients, element `edge * heads + head`; self loops follow the edges.
    Attention,
}

/// A dropout mask: a function of seed, mini-batch, layer, site and element alone.
///
/// An element is kept, and multiplied by the inverse of the kept share, if its 16 random bits are not below the threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropout {
    seed: u64,
    epoch: u32,
    batch: u32,
    site: u32,
    threshold: u32,
}

/// Elements per call of Philox: 8 half words in each of its blocks.
const ELEMENTS: usize = 8 * BLOCKS;

impl Dropout {
    /// A mask that drops `probability` of the elements, to 1/65536; `None` when it drops none.
    ///
    /// # Panics
    ///
    /// When the probability is not in [0, 1), or the layer is not below 2^24.
    pub fn new(seed: u64, epoch: u32, batch: u32, layer: usize, site: DropoutSite, probability: f32) -> Option<Self> {
        assert!((0.0..1.0).contains(&probability), "a dropout probability is in [0, 1), not {probability}");
        assert!(layer < 1 << 24, "layer {layer}");
        let threshold = ((f64::from(probability) * 65536.0).round() as u32).min(65535);
        let site = (layer as u32) << 2 | site as u32;
        (threshold > 0).then_some(Self { seed, epoch, batch, site, threshold })
    }

    /// Factor of kept elements.
    pub fn scale(&self) -> f32 {
        65536.0 / (65536 - self.threshold) as f32
    }

    /// Inputs of the mask for a device that computes it: key; site, mini-batch and epoch as words of the counter; and the
    /// threshold of the 16 bits.
    pub fn parts(&self) -> (u64, [u32; 4]) {
        (self.seed, [self.site, self.batch, self.epoch ^ DROPOUT, self.threshold])
    }

    /// Fills `factors` with 0 or the scale for elements `first`, `first + 1`, …
    #[inline(always)]
    pub fn fill(&self, first: u64, factors: &mut [f32]) {
        let scale = self.scale();
        self.groups(first, factors.len(), |range, kept| {
            for (factor, &bits) in factors[range].iter_mut().zip(kept) {
                *factor = if u32::from(bits) >= self.threshold { scale } else { 0.0 };
            }
        });
    }

    /// Multiplies `values` by the factors of elements `first`, `first + 1`, …
    // Inlined so that a caller compiled for a higher SIMD level computes the masks at that level.
    #[inline(always)]
    pub fn apply(&self, first: u64, values: &mut [f32]) {
        let scale = self.scale();
        self.groups(first, values.len(), |range, kept| {
            for (value, &bits) in values[range].iter_mut().zip(kept) {
                *value = if u32::from(bits) >= self.threshold { *value * scale } else { 0.0 };
            }
        });
    }

    /// Threshold below which the 16 bits of an element drop it.
    pub fn threshold(&self) -> u16 {
        // Invariant: it is below 65536.
        self.threshold as u16
    }

    /// Philox's counter and key for the bits of elements `8 * block` to `8 * block + 7`, for vectorised callers.
    /// Low halves of words precede high ones; counters of following blocks differ in the first word alone, up to a
    /// block that is a multiple of 2^32.
    pub fn philox(&self, block: u64) -> ([u32; 4], [u32; 2]) {
        (self.counter(block), key(self.seed))
    }

    /// Whether `element` is kept.
    pub fn keeps(&self, element: u64) -> bool {
        let [first, site, batch, epoch] = self.counter(element / 8);
        let [words] = philox4x32_10_blocks([first, site, batch, epoch], key(self.seed));
        let word = words[(element % 8 / 2) as usize];
        let bits = if element.is_multiple_of(2) { word as u16 } else { (word >> 16) as u16 };
        u32::from(bits) >= self.threshold
    }

    /// The counter of a block; its high word (beyond 2^35 elements) shares a word with the site.
    fn counter(&self, block: u64) -> [u32; 4] {
        [block as u32, self.site ^ ((block >> 32) as u32) << 26, self.batch, self.epoch ^ DROPOUT]
    }

    #[inline(always)]
    fn groups(&self, first: u64, len: usize, mut each: impl FnMut(std::ops::Range<usize>, &[u16])) {
        let mut done = 0;
        while done < len {
            let element = first + done as u64;
            let (group, skip) = (element / ELEMENTS as u64, (element % ELEMENTS as u64) as usize);
            let take = (ELEMENTS - skip).min(len - done);
            let block = group * BLOCKS as u64;
            let words: [[u32; 4]; BLOCKS] = philox4x32_10_blocks(self.counter(block), key(self.seed));
            let mut bits = [0u16; ELEMENTS];
            for (pair, &word) in bits.as_chunks_mut::<2>().0.iter_mut().zip(words.as_flattened()) {
                *pair = [word as u16, (word >> 16) as u16];
            }
            each(done..done + take, &bits[skip..skip + take]);
            done += take;
        }
    }
}

#[cfg(test)]
mod tests;
