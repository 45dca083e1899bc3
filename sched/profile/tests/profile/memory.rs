//! Profiles within a limit of host memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{Fakes, QUICK, unlimited};
use crate::in_one_of_thirty;
use morphgl_conformance::fake::Log;
use morphgl_profile::{MemoryLimit, Profile, Watch};

/// Bytes of host memory of a worker, and of a step of training.
pub(crate) const WORKER: u64 = 400;
pub(crate) const STEP: u64 = 10_000;

/// Peak bytes of host memory since the last call.
pub(crate) fn take_peak(log: &Log) -> u64 {
    let bytes = &mut log.record().bytes;
    std::mem::replace(&mut bytes.peak, bytes.now) as u64
}

/// A profile on eight cores within `limit`, and the peak of bytes allocated meanwhile.
fn within(limit: u64) -> (Profile, u64) {
    let mut fakes = Fakes::new(60, QUICK);
    let (log, most) = (Arc::clone(&fakes.log), AtomicU64::new(0));
    let peak = || {
        let peak = take_peak(&log);
        most.fetch_max(peak, Ordering::SeqCst);
        peak
    };
    let watch = Watch { memory: Some(MemoryLimit { limit, peak: &peak }), ..Watch::NONE };
    let profile = fakes.profile_watched(&unlimited(8), &watch, &mut |_| ()).expect("nothing fails");
    fakes.check_unchanged();
    peak();
    (profile, most.load(Ordering::SeqCst))
}

fn workers(profile: &Profile) -> Vec<usize> {
    profile.routes[0].batching.iter().filter(|p| p.threads == 1).map(|p| p.workers).collect()
}

#[test]
fn pools_that_do_not_fit_are_skipped_and_listed() {
    // A worker is measured with its mini-batch, and a quarter is added.
    let counted = WORKER / 4 * 5;
    for (room, expected) in [(0, vec![1]), (3, vec![1, 2]), (7, vec![1, 2, 4]), (8, vec![1, 2, 4, 8])] {
        let limit = room * counted;
        let (profile, _) = within(limit);
        assert_eq!(workers(&profile), expected, "space for {room}");
        let skipped =
            |n: usize| profile.skipped.iter().any(|s| s.starts_with(&format!("batching by {n} workers: it does")));
        for n in [2, 4, 8] {
            assert_eq!(skipped(n), !expected.contains(&n), "{:?}", profile.skipped);
        }
        assert!(
            profile.routes[0].interference.is_empty(),
            "training alone takes more: {:?}",
            profile.routes[0].interference
        );
    }
}

#[test]
fn interference_is_measured_with_the_workers_that_fit_besides_training() {
    let counted = WORKER / 4 * 5;
    for room in [2, 4] {
        in_one_of_thirty(|| {
            let limit = STEP + room * counted;
            let (profile, most) = within(limit);
            assert_eq!(workers(&profile).last(), Some(&8), "they fit without training");
            assert!(most <= limit, "{most} bytes allocated, {limit} allowed");
            let interference = &profile.routes[0].interference;
            assert!(interference.iter().all(|t| (t.workers as u64) < room), "{interference:?}");
            if interference.is_empty() { Err("no interference was measured".to_string()) } else { Ok(()) }
        });
    }
}

#[test]
fn memory_without_workers_and_of_a_worker_is_measured() {
    let (profile, _) = within(u64::MAX);
    assert_eq!(profile.held_bytes, STEP);
    let largest = profile.routes[0].largest;
    assert!(largest.worker_bytes >= WORKER - largest.batched_bytes, "{largest:?}");
    let mut fakes = Fakes::new(60, QUICK);
    let unwatched = fakes.profile(&unlimited(2)).expect("nothing fails");
    assert_eq!(unwatched.held_bytes, 0);
    assert_eq!(unwatched.routes[0].largest.worker_bytes, 32 + 3 * 64, "an estimate");
}
