//! The threads of loops outside of plans.

use std::error::Error;

use anyhow::Context;

use crate::Process;

/// Starts so many threads. Runs beside each other in one process share the threads of the first.
pub(crate) fn start(process: &Process, threads: usize) -> anyhow::Result<()> {
    let started = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
    match started {
        // Without a source it says that there are threads already: a command that plans twice started them.
        Err(error) if error.source().is_none() && rayon::current_num_threads() == threads => Ok(()),
        Err(error) if process.is_program() => Err(error).context("no thread can be started"),
        _ => Ok(()),
    }
}
