//! Counters: named amounts that an operator reports beside a duration.

use std::fmt;

/// A counter of an operator, as `morphgl ops --options` lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterSpec {
    /// Its name: lower-case ASCII letters, digits and `_`; it ends in `_bytes` where it counts bytes.
    pub name: &'static str,
    /// One line of help, without a full stop.
    pub help: &'static str,
}

impl CounterSpec {
    /// A counter.
    pub const fn new(name: &'static str, help: &'static str) -> Self {
        Self { name, help }
    }
}

/// Bytes that cross the link between host and device.
pub const LINK_BYTES: CounterSpec = CounterSpec::new("link_bytes", "bytes moved between host and device");
/// Bytes that one device copies from another.
pub const PEER_BYTES: CounterSpec = CounterSpec::new("peer_bytes", "bytes copied from one device to another");
/// Rows looked up in a cache.
pub const CACHE_REQUESTS: CounterSpec = CounterSpec::new("cache_requests", "rows looked up in the cache");
/// Requested feature rows that were in the cache.
pub const CACHE_HITS: CounterSpec = CounterSpec::new("cache_hits", "rows found in the cache");
/// Reads from disk.
pub const DISK_READS: CounterSpec = CounterSpec::new("disk_reads", "reads from disk");
/// Bytes read from disk.
pub const DISK_BYTES: CounterSpec = CounterSpec::new("disk_bytes", "bytes read from disk");

/// Maximum number of counters of one operator.
const MAX_COUNTERS: usize = 12;

/// Amounts by counter. Small and `Copy`: counting allocates nothing.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    // Invariant: no name twice; the entries in use come first, the others have an empty name.
    entries: [(&'static str, u64); MAX_COUNTERS],
}

impl Counters {
    /// No counters.
    pub const NONE: Counters = Counters { entries: [("", 0); MAX_COUNTERS] };

    /// These counters and `amount` more of `counter`.
    ///
    /// # Panics
    ///
    /// When there are more than twelve counters.
    #[must_use]
    pub fn with(mut self, counter: &CounterSpec, amount: u64) -> Self {
        self.add(counter.name, amount);
        self
    }

    fn add(&mut self, name: &'static str, amount: u64) {
        let entry = self.entries.iter_mut().find(|(n, _)| *n == name || n.is_empty());
        let (entry_name, sum) = entry.expect("an operator has at most twelve counters");
        (*entry_name, *sum) = (name, *sum + amount);
    }

    /// The counters by name, in the order of their first use.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.entries.iter().copied().take_while(|(name, _)| !name.is_empty())
    }

    /// The amount of a counter; `None` where it was not reported.
    pub fn get(&self, counter: &CounterSpec) -> Option<u64> {
        self.iter().find(|(name, _)| *name == counter.name).map(|(_, amount)| amount)
    }

    /// Whether nothing was reported.
    pub fn is_empty(&self) -> bool {
        self.entries[0].0.is_empty()
    }
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        other.iter().for_each(|(name, amount)| self.add(name, amount));
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests;
