//! The suite of phase Training.

use morphgl_conformance::training::{Subject, check};
use morphgl_training_cpu_burn::DESCRIPTION;

#[test]
fn conformance() {
    check(&Subject { takes_types: true, ..Subject::new(&DESCRIPTION) });
}
