//! The measuring itself.

use morphgl_registry::Machine;

use crate::{Operators, Profile, Progress, Result, Settings};

/// Measures every phase of a route.
pub fn profile(
    operators: &mut Operators<'_>,
    machine: &Machine,
    settings: &Settings,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Profile> {
    let _ = (operators, machine, settings, progress);
    todo!()
}
