//! The suite of phase Transferring.
