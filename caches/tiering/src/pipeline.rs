//! Blocks made in parallel and written in order.

use rayon::prelude::*;

use crate::Result;

/// Blocks of a group for each thread: enough that threads seldom wait for the slowest block of a group.
const BLOCKS_PER_THREAD: usize = 4;

/// Makes blocks on the threads of the current rayon pool, a group at a time: one group is written, in order, while the next
/// one is made.
pub(crate) fn pipeline<T: Send>(
    blocks: usize,
    make: impl Fn(usize) -> T + Sync,
    mut write: impl FnMut(T) -> Result<()> + Send,
) -> Result<()> {
    let group = BLOCKS_PER_THREAD * rayon::current_num_threads();
    let make = |from: usize| (from..(from + group).min(blocks)).into_par_iter().map(&make).collect::<Vec<T>>();
    let mut ready = make(0);
    for from in (group..blocks + group).step_by(group) {
        let write = &mut write;
        let (written, next) = rayon::join(move || ready.into_iter().try_for_each(write), || make(from));
        written?;
        ready = next;
    }
    Ok(())
}
