//! Attention.
