//! Bytes and savings by level of benefit per byte, in one pass over the nodes.

/// Bits of a benefit per byte below its level: entries of one level differ by less than a hundredth.
const LOW: u32 = 16;
/// Levels: positive floats, whose bits are ordered as they are.
const LEVELS: usize = 1 << (31 - LOW);

/// The benefit per byte, infinite for an entry without bytes, as an ordered integer.
pub(crate) fn density((saving, bytes): (f32, u64)) -> u32 {
    (saving / bytes as f32).to_bits()
}

/// Entries of one kind by level.
pub(crate) struct Histogram {
    bytes: Vec<u64>,
    saving: Vec<f64>,
}

/// Where the budget ends in the order of benefit per byte.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Threshold {
    /// Entries of at least this density are cached, all of them.
    pub(crate) from: u32,
    /// Bytes left for others, of which entries of the density just below are the best.
    pub(crate) rest: u64,
}

impl Histogram {
    /// The histogram of `entries` (saving and bytes of each).
    pub(crate) fn of(entries: impl Iterator<Item = (f32, u64)>) -> Self {
        let mut histogram = Self { bytes: vec![0; LEVELS], saving: vec![0.0; LEVELS] };
        for entry in entries {
            let level = (density(entry) >> LOW) as usize;
            histogram.bytes[level] = histogram.bytes[level].saturating_add(entry.1);
            histogram.saving[level] += f64::from(entry.0);
        }
        histogram
    }

    /// Saving by the best entries of all `histograms` that `budget` bytes hold, entries of the last level taken in part.
    pub(crate) fn saving(histograms: &[&Self], budget: u64) -> f64 {
        let (mut rest, mut all) = (budget, 0.0);
        for level in (0..LEVELS).rev() {
            let bytes = Self::bytes(histograms, level);
            let saving: f64 = histograms.iter().map(|h| h.saving[level]).sum();
            if bytes > rest {
                return all + saving * (rest as f64 / bytes as f64);
            }
            rest -= bytes;
            all += saving;
        }
        all
    }

    /// The exact threshold of `budget` bytes; `entries` gives those of the histograms once more, for the level in which the
    /// budget ends.
    pub(crate) fn threshold<I: Iterator<Item = (f32, u64)>>(
        histograms: &[&Self],
        budget: u64,
        entries: impl FnOnce() -> I,
    ) -> Threshold {
        let mut rest = budget;
        for level in (0..LEVELS).rev() {
            let bytes = Self::bytes(histograms, level);
            if bytes <= rest {
                rest -= bytes;
                continue;
            }
            let mut fine = vec![0u64; 1 << LOW];
            for entry in entries() {
                let density = density(entry);
                if (density >> LOW) as usize == level {
                    let bytes = &mut fine[(density & ((1 << LOW) - 1)) as usize];
                    *bytes = bytes.saturating_add(entry.1);
                }
            }
            for (low, bytes) in fine.into_iter().enumerate().rev() {
                if bytes > rest {
                    return Threshold { from: ((level << LOW) + low + 1) as u32, rest };
                }
                rest -= bytes;
            }
            return Threshold { from: (level << LOW) as u32, rest };
        }
        Threshold { from: 0, rest }
    }

    fn bytes(histograms: &[&Self], level: usize) -> u64 {
        histograms.iter().fold(0, |sum, h| sum.saturating_add(h.bytes[level]))
    }
}
