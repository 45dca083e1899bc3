//! Ctrl-C.

use std::sync::OnceLock;

use crate::Stop;

static STOP: OnceLock<Stop> = OnceLock::new();

/// The flag that Ctrl-C sets, first; a second Ctrl-C ends the program at once.
///
/// # Errors
///
/// The system refuses the handler.
pub(crate) fn stop() -> anyhow::Result<Stop> {
    if let Some(stop) = STOP.get() {
        return Ok(stop.clone());
    }
    let stop = STOP.get_or_init(Stop::new).clone();
    let on_ctrl_c = stop.clone();
    ctrlc::set_handler(move || {
        if on_ctrl_c.is_requested() {
            // Asked twice: the user does not want to wait for the mini-batch under way.
            std::process::exit(130);
        }
        on_ctrl_c.request();
    })?;
    Ok(stop)
}
