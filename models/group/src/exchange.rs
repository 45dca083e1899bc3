//! Collectives of a group's trainers (all-gather, all-reduce), whatever carries them.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

/// Result of an exchange.
pub type Result<T> = std::result::Result<T, GroupError>;

/// Why an exchange failed. Ranks count from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupError {
    /// A trainer has left the group, and takes part in no exchange any more.
    Left {
        /// Its rank.
        rank: usize,
        /// Its reason.
        why: String,
    },
    /// Trainers have not come to an exchange in time.
    Late {
        /// Their ranks.
        ranks: Vec<usize>,
        /// The time limit.
        limit: Duration,
    },
    /// Trainers are not at the same point.
    Differs {
        /// Rank of the one that differs from rank 0.
        rank: usize,
        /// What differs: both values.
        what: String,
    },
    /// The library below failed.
    Engine(String),
}

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupError::Left { rank, why } => write!(f, "trainer {rank} has left the group: {why}"),
            GroupError::Late { ranks, limit } => {
                let ranks: Vec<String> = ranks.iter().map(ToString::to_string).collect();
                let (ranks, seconds) = (ranks.join(", "), limit.as_secs_f64());
                write!(f, "no answer from trainer {ranks} for {seconds} s; see what it last printed")
            }
            GroupError::Differs { rank, what } => write!(f, "trainer {rank} is not where trainer 0 is: {what}"),
            GroupError::Engine(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for GroupError {}

/// Values of a piece of [`Exchange::gather_parts`].
const PIECE: usize = 1 << 20;

/// Bytes that [`Exchange::gather_parts`] takes at most in a group of `size` trainers: two copies of this trainer's piece, and the
/// others'.
pub fn gathering_bytes(size: usize) -> u64 {
    if size > 1 { (size + 1) as u64 * (PIECE * size_of::<f32>()) as u64 } else { 0 }
}

/// One trainer's end of a group of `size` trainers. All of them make the same calls in the same order; each call waits for all.
///
/// After an error a trainer is out of the group: every further call is an error, of all trainers.
pub trait Exchange: fmt::Debug + Send {
    /// This trainer's number, from 0.
    fn rank(&self) -> usize;

    /// Number of trainers.
    fn size(&self) -> usize;

    /// All-gather: every trainer's bytes, by rank. Lengths may differ.
    ///
    /// # Errors
    ///
    /// A trainer has left or does not come, or the library below failed.
    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>>;

    /// All-reduce: replaces the values by their sums over all trainers. Each sum is added in the order of ranks, beginning with
    /// rank 0: the same bits at every trainer and from every implementation.
    ///
    /// # Errors
    ///
    /// As [`Exchange::all_gather`]; another number of values than rank 0 has.
    ///
    /// # Complexity
    ///
    /// Reduce-scatter, then all-gather: of `n` values each trainer adds `n / size` for all, and sends and receives
    /// `2n (size - 1) / size`.
    fn all_reduce(&mut self, values: &mut [f32]) -> Result<()>;

    /// All-gather in place: fills in the parts of `values` that the other trainers have: `parts[rank]` are the elements of trainer `rank`. In pieces, so
    /// that no message and no memory beside `values` is larger than a piece of each trainer.
    ///
    /// # Errors
    ///
    /// As [`Exchange::all_gather`]; a trainer that has another part.
    ///
    /// # Complexity
    ///
    /// Each trainer sends its part to every other one. Takes [`gathering_bytes`] of memory.
    fn gather_parts(&mut self, values: &mut [f32], parts: &[Range<usize>]) -> Result<()> {
        if self.size() == 1 {
            return Ok(());
        }
        let own = self.rank();
        let longest = parts.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
        for start in (0..longest).step_by(PIECE) {
            let piece = |part: &Range<usize>| {
                let at = |offset: usize| part.start.saturating_add(offset).min(part.end);
                at(start)..at(start + PIECE)
            };
            let all = self.all_gather(bytemuck::cast_slice(&values[piece(&parts[own])]))?;
            for (rank, (bytes, part)) in all.iter().zip(parts).enumerate().filter(|(rank, _)| *rank != own) {
                let to: &mut [u8] = bytemuck::cast_slice_mut(&mut values[piece(part)]);
                if bytes.len() != to.len() {
                    let what = format!("it sends {} bytes of rows, {} are its part", bytes.len(), to.len());
                    return Err(GroupError::Differs { rank, what });
                }
                to.copy_from_slice(bytes);
            }
        }
        Ok(())
    }

    /// Bytes that this trainer has sent to others so far; 0 where all share one memory.
    fn bytes_sent(&self) -> u64 {
        0
    }

    /// Leaves the group: the exchanges that others wait in, and all further ones, fail with this reason.
    fn leave(&mut self, why: &str);
}
