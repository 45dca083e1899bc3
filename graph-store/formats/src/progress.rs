//! Progress of an import.

/// Listener to the progress of an import; called from several threads.
pub trait Progress: Sync {
    /// A stage begins; `total` is its number of bytes or items, where known.
    fn stage(&self, name: &str, total: Option<u64>);

    /// `n` more bytes or items of the stage are done.
    fn advance(&self, n: u64);
}

/// Ignores progress.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn stage(&self, _name: &str, _total: Option<u64>) {}

    fn advance(&self, _n: u64) {}
}
