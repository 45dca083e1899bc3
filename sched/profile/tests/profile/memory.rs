//! What is measured where host memory is watched.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{Fakes, QUICK, Seen, unhurried};
use crate::in_one_of_thirty;
use morphgl_profile::{MemoryLimit, Profile, Watch};

/// Bytes of host memory that a worker holds, and training in a step.
pub(crate) const WORKER: u64 = 400;
pub(crate) const STEP: u64 = 10_000;

impl Seen {
    pub(crate) fn hold(&self, bytes: u64) {
        let held = self.held.fetch_add(bytes, Ordering::SeqCst) + bytes;
        self.peak.fetch_max(held, Ordering::SeqCst);
    }

    pub(crate) fn release(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::SeqCst);
    }

    /// The most bytes held since this was last asked.
    pub(crate) fn take_peak(&self) -> u64 {
        self.peak.swap(self.held.load(Ordering::SeqCst), Ordering::SeqCst)
    }
}

/// A profile on eight cores within `limit`, and the most that was held meanwhile.
fn within(limit: u64) -> (Profile, u64) {
    let mut fakes = Fakes::new(60, QUICK);
    let (seen, most) = (Arc::clone(&fakes.seen), AtomicU64::new(0));
    let peak = || {
        let peak = seen.take_peak();
        most.fetch_max(peak, Ordering::SeqCst);
        peak
    };
    let watch = Watch { memory: Some(MemoryLimit { limit, peak: &peak }), ..Watch::NONE };
    let profile = fakes.profile_watched(&unhurried(8), &watch, &mut |_| ()).expect("nothing fails");
    fakes.check_unchanged();
    peak();
    (profile, most.load(Ordering::SeqCst))
}

fn workers(profile: &Profile) -> Vec<usize> {
    profile.routes[0].batching.iter().filter(|p| p.threads == 1).map(|p| p.workers).collect()
}

#[test]
fn pools_that_do_not_fit_are_left_out_and_named() {
    // A worker is known with its mini-batch, and counted a quarter larger than it was.
    let counted = WORKER / 4 * 5;
    for (room, expected) in [(0, vec![1]), (3, vec![1, 2]), (7, vec![1, 2, 4]), (8, vec![1, 2, 4, 8])] {
        let limit = room * counted;
        let (profile, _) = within(limit);
        assert_eq!(workers(&profile), expected, "room for {room}");
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
fn beside_training_there_is_room_for_fewer() {
    let counted = WORKER / 4 * 5;
    for room in [2, 4] {
        in_one_of_thirty(|| {
            let limit = STEP + room * counted;
            let (profile, most) = within(limit);
            assert_eq!(workers(&profile).last(), Some(&8), "they fit where nothing trains");
            assert!(most <= limit, "{most} bytes held, {limit} allowed");
            let together = &profile.routes[0].interference;
            assert!(together.iter().all(|t| (t.workers as u64) < room), "{together:?}");
            if together.is_empty() { Err("nothing was measured beside training".to_string()) } else { Ok(()) }
        });
    }
}

#[test]
fn what_is_held_without_workers_and_what_a_worker_takes_are_told() {
    let (profile, _) = within(u64::MAX);
    assert_eq!(profile.held_bytes, STEP);
    let largest = profile.routes[0].largest;
    assert!(largest.worker_bytes >= WORKER - largest.batched_bytes, "{largest:?}");
    let mut fakes = Fakes::new(60, QUICK);
    let unwatched = fakes.profile(&unhurried(2)).expect("nothing fails");
    assert_eq!(unwatched.held_bytes, 0);
    assert_eq!(unwatched.routes[0].largest.worker_bytes, 28 + 3 * 64, "an estimate");
}
