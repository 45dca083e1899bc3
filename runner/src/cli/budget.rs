//! `--memory` of what makes datasets: what it leaves beside the process itself.

use morphgl_formats::Options;

use super::show;
use super::usage::Usage;

/// Bytes of the process itself: the program, and what it is linked with. Measured: 13 MiB.
const PROGRAM: u64 = 16 << 20;

/// Bytes that the allocator of the program keeps for a thread that reads text.
const THREAD: u64 = 6 << 20;

/// What `memory` leaves beside the process itself, at least `least` bytes.
pub(crate) fn beside_program(memory: u64, least: u64) -> anyhow::Result<u64> {
    let least = least.saturating_add(PROGRAM);
    if memory < least {
        let (given, mib) = (show::bytes(memory), least.div_ceil(1 << 20));
        return Err(Usage::error(format!("--memory: {given} do not hold what this needs; give at least {mib}MiB")));
    }
    Ok(memory - PROGRAM)
}

/// Threads for an import, and the bytes that it may take on them, so that the process stays within `memory`.
pub(crate) fn of_import(memory: u64) -> anyhow::Result<(usize, u64)> {
    let fixed = Options::fixed_memory();
    let rest = beside_program(memory, fixed + THREAD + Options::LEAST_MEMORY)? - fixed;
    let threads = (rest / (2 * THREAD)).clamp(1, rayon::current_num_threads() as u64);
    Ok((threads as usize, rest - threads * THREAD))
}
