//! How many combinations of settings the suites of this crate take.

/// `[N, M]`: one of every N combinations of settings is tested, and one of every M of sampling by edge type. All of the latter take over
/// five minutes on an emulated device; under the thread sanitizer each takes seconds.
pub(crate) fn every() -> [usize; 2] {
    match option_env!("MORPHGL_SANITIZE") {
        None => [1, 7],
        Some("thread") => [29, 101],
        Some(_) => [7, 31],
    }
}
