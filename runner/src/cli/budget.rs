//! `--memory` of commands that make datasets: the part left for their buffers.

use morphgl_formats::Options;

use super::show;
use crate::usage::Usage;

/// Bytes of the process itself: the program and its libraries. Measured: 13 MiB.
const PROGRAM: u64 = 16 << 20;

/// Bytes that the allocator keeps for a thread that reads text.
const THREAD: u64 = 6 << 20;

/// The part of `memory` that the process itself leaves, at least `least` bytes.
pub(crate) fn beside_program(memory: u64, least: u64) -> anyhow::Result<u64> {
    let least = least.saturating_add(PROGRAM);
    if memory < least {
        let (given, mib) = (show::bytes(memory), least.div_ceil(1 << 20));
        return Err(Usage::error(format!("--memory: {given} are too little; give at least {mib}MiB")));
    }
    Ok(memory - PROGRAM)
}

/// Threads and buffer bytes with which an import stays within `memory`.
pub(crate) fn of_import(memory: u64) -> anyhow::Result<(usize, u64)> {
    let fixed = Options::fixed_memory();
    let rest = beside_program(memory, fixed + THREAD + Options::LEAST_MEMORY)? - fixed;
    let threads = (rest / (2 * THREAD)).clamp(1, rayon::current_num_threads() as u64);
    Ok((threads as usize, rest - threads * THREAD))
}
