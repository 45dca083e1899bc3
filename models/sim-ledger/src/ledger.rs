//! The ledger of trained mini-batches: counts and content digests.

use std::collections::BTreeMap;

use morphgl_registry::{BatchId, Error, NamedTensor, Result};

use crate::KEY;

/// Record of one mini-batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Entry {
    /// How often it was trained.
    pub times: u32,
    /// [`morphgl_sim::digest`] of the latest arrival.
    pub digest: u64,
    /// Number of arrivals whose content differed from the previous one; 0, since mini-batches are deterministic.
    pub changes: u32,
}

/// Record of all trained mini-batches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    /// By epoch and index.
    pub entries: BTreeMap<BatchId, Entry>,
}

/// Columns of a serialised entry, 16-bit pieces that are exact in f32: two each for index, `times` and `changes`, four for
/// the digest, low pieces first.
const COLUMNS: usize = 10;

impl Ledger {
    /// Records one training.
    pub fn add(&mut self, id: BatchId, digest: u64) {
        let entry = self.entries.entry(id).or_default();
        entry.changes += u32::from(entry.times > 0 && entry.digest != digest);
        entry.times += 1;
        entry.digest = digest;
    }

    /// Indices trained in `epoch`, ascending, repeated as often as trained.
    pub fn indices(&self, epoch: u32) -> Vec<u32> {
        let of_epoch = self.entries.iter().filter(|(id, _)| id.epoch == epoch);
        of_epoch.flat_map(|(id, entry)| vec![id.index; entry.times as usize]).collect()
    }

    /// Serialises the ledger as tensors for checkpoints, one per epoch.
    pub fn tensors(&self) -> Vec<NamedTensor> {
        let mut epochs: BTreeMap<u32, Vec<f32>> = BTreeMap::new();
        for (id, entry) in &self.entries {
            let words = [u64::from(id.index), u64::from(entry.times), u64::from(entry.changes), entry.digest];
            let pieces = words.into_iter().zip([2, 2, 2, 4]);
            let pieces = pieces.flat_map(|(word, n)| (0..n).map(move |i| f32::from((word >> (16 * i)) as u16)));
            epochs.entry(id.epoch).or_default().extend(pieces);
        }
        let tensor = |(epoch, values): (u32, Vec<f32>)| NamedTensor {
            name: format!("ledger.{epoch}"),
            shape: vec![values.len() / COLUMNS, COLUMNS],
            values,
        };
        epochs.into_iter().map(tensor).collect()
    }

    /// Parses the output of [`Ledger::tensors`].
    ///
    /// # Errors
    ///
    /// A tensor that is not part of a ledger.
    pub fn from_tensors(tensors: &[NamedTensor]) -> Result<Self> {
        let mut ledger = Self::default();
        for tensor in tensors {
            let wrong = || {
                let what = format!("tensor {:?} is not part of a ledger; give what a ledger wrote", tensor.name);
                Error::setting(KEY, what)
            };
            let epoch = tensor.name.strip_prefix("ledger.").and_then(|e| e.parse().ok()).ok_or_else(wrong)?;
            let exact = |&v: &f32| v.fract() == 0.0 && (0.0..65536.0).contains(&v);
            let rows = tensor.values.len() / COLUMNS;
            if tensor.shape != [rows, COLUMNS]
                || rows * COLUMNS != tensor.values.len()
                || !tensor.values.iter().all(exact)
            {
                return Err(wrong());
            }
            for row in tensor.values.chunks_exact(COLUMNS) {
                let word = |columns: std::ops::Range<usize>| {
                    row[columns].iter().rev().fold(0, |word: u64, &piece| word << 16 | piece as u64)
                };
                let entry = Entry { times: word(2..4) as u32, changes: word(4..6) as u32, digest: word(6..10) };
                if ledger.entries.insert(BatchId { epoch, index: word(0..2) as u32 }, entry).is_some() {
                    return Err(wrong());
                }
            }
        }
        Ok(ledger)
    }
}
