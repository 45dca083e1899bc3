//! The parts of the suite that this crate's programs run.

use morphgl_conformance::batching::Part;

/// The part for sampling by hops and walks, and for sampling by edge type. All combinations of the settings of the latter take over five
/// minutes on an emulated device; under the thread sanitizer each takes seconds.
pub(crate) fn run() -> [Part; 2] {
    let of = |cases, settings: [usize; 2]| settings.map(|settings| Part { cases, settings });
    match option_env!("MORPHGL_SANITIZE") {
        None => of(1, [1, 7]),
        Some("thread") => of(3, [29, 101]),
        Some(_) => of(3, [7, 31]),
    }
}
