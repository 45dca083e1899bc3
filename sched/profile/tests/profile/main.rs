//! Profiles of operators whose durations are known, and of operators that fail.

mod common;
mod files;
mod measured;
mod memory;
mod routes;
mod select;

/// What a machine with other work measures may be off; what a fault measures always is.
#[track_caller]
fn in_one_of_thirty(mut measure: impl FnMut() -> Result<(), String>) {
    let outcomes: Vec<String> = (0..30).map_while(|_| measure().err()).collect();
    assert!(outcomes.len() < 30, "{outcomes:?}");
}
