//! Profiles of operators whose durations are known, and of operators that fail.

mod common;
mod files;
mod measured;
mod memory;
mod routes;
