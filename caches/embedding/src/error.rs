//! Errors of reads and writes.

use std::fmt;

/// Result of every fallible function of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why rows cannot be read or written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// Rows are staler than the bound allows.
    Stale {
        /// The step at which they are used.
        step: u64,
        /// Steps before the parameters they were computed with.
        version: u64,
        /// The largest difference of both that is allowed.
        bound: u64,
    },
    /// A super-batch out of order, of which there is nothing any more, or nothing that fits.
    OutOfOrder {
        /// The super-batch.
        super_batch: u64,
        /// What is wrong with it.
        what: String,
    },
    /// A node without a row.
    Missing {
        /// The node.
        node: u32,
        /// The super-batch.
        super_batch: u64,
    },
    /// The cache was closed, for this reason.
    Closed(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Stale { step, version, bound } => write!(
                f,
                "embeddings of version {version} are read at step {step}: {} steps old, {bound} are allowed; this is a fault of \
                 the schedule",
                step.abs_diff(*version)
            ),
            Error::OutOfOrder { super_batch, what } => write!(f, "super-batch {super_batch}: {what}"),
            Error::Missing { node, super_batch } => {
                write!(
                    f,
                    "super-batch {super_batch} has no embedding of node {node}; sample it with the nodes of this cache"
                )
            }
            Error::Closed(why) => write!(f, "no more embeddings: {why}"),
        }
    }
}

impl std::error::Error for Error {}
