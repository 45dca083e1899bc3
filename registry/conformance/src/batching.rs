//! The suite of phase Batching.
