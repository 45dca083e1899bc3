//! Options of the operator.

use morphgl_registry::{Error, Result};
use serde::Deserialize;
use serde_json::Value;

use crate::KEY;

/// What can be set.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Options {
    /// Bytes of device memory for hot rows and their map; without it, three quarters of what is free when it is filled.
    pub(crate) cache_bytes: Option<u64>,
    /// Mini-batches whose accesses are counted before the cache is filled.
    pub(crate) presample: u32,
    /// Share of the multiprocessors that gather rows of the host.
    pub(crate) share: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { cache_bytes: None, presample: 64, share: 0.2 }
    }
}

impl Options {
    pub(crate) fn of(value: &Value) -> Result<Self> {
        let options: Self = match value {
            Value::Null => Self::default(),
            some => serde_json::from_value(some.clone()).map_err(|e| Error::setting(KEY, format!("options: {e}")))?,
        };
        if !(options.share > 0.0 && options.share <= 1.0) {
            let what =
                format!("{} of the multiprocessors cannot gather; give a share above 0, at most 1", options.share);
            return Err(Error::setting(KEY, what));
        }
        Ok(options)
    }
}
