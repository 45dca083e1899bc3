//! What a run works in: passed to whatever opens, builds, measures and trains.

use std::sync::Arc;

use anyhow::Result;
use morphgl_registry::Registry;

/// What a run works in. Clones share it: a program makes one, and passes it on.
#[derive(Debug, Clone)]
pub struct RunContext {
    registry: Arc<Registry>,
}

impl RunContext {
    /// Collects the operators that this program is linked with, and probes each on this machine, once.
    ///
    /// # Errors
    ///
    /// Two linked crates register the same key.
    pub fn new() -> Result<Self> {
        Ok(Self { registry: Arc::new(Registry::collect()?) })
    }

    /// The operators this program is linked with, and the machine.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }
}
