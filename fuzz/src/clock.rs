//! The clock by which readers are timed.

use std::time::Duration;

/// Processor time of the process so far: on a busy machine, other time says little of a reader.
pub(crate) fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call, which fills it in.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    assert_eq!(status, 0, "every system has this clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
