//! Errors: an impossible argument, or an error of the store.

pub use morphgl_graph_store::MakeError as Error;

/// Result of every fallible function of this crate.
pub type Result<T> = std::result::Result<T, Error>;
