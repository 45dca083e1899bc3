//! Blocks of arrays, made in parallel and written in order.

use crate::{Result, parallel};

/// Makes `blocks` blocks on the threads of the current rayon pool, `group` at a time, and writes them in order: one group is
/// written while the next one is made. At most two groups are in memory.
///
/// Threads seldom wait for the slowest block of a group that has four blocks per thread.
///
/// # Errors
///
/// The first of `write`, after which nothing more is written.
///
/// # Panics
///
/// With a `group` of 0.
pub fn write_blocks<T: Send>(
    blocks: usize,
    group: usize,
    make: impl Fn(usize) -> T + Sync,
    mut write: impl FnMut(T) -> Result<()> + Send,
) -> Result<()> {
    let make =
        |from: usize| parallel::map((from + group).min(blocks).saturating_sub(from), parallel::ANY, |i| make(from + i));
    let mut ready = make(0);
    for from in (group..blocks + group).step_by(group) {
        let write = &mut write;
        let (written, next) = parallel::join(move || ready.into_iter().try_for_each(write), || make(from));
        written?;
        ready = next;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
