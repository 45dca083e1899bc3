//! Feature rows that the ranks of a run divide among themselves: this process's view of them.

use std::sync::{Arc, OnceLock};

use morphgl_group::Shards;

static SHARDS: OnceLock<Arc<Shards>> = OnceLock::new();

/// The view that mini-batches get their features from; `None` where this process has all rows.
pub(crate) fn current() -> Option<&'static Arc<Shards>> {
    SHARDS.get()
}

/// Sets the view, once, before any operator is built.
pub(crate) fn set(shards: Shards) {
    let _ = SHARDS.set(Arc::new(shards));
}
