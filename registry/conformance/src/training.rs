//! The suite of phase Training.
