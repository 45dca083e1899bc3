use morphgl_plan::{Hardware, Policy, RouteKeys, ScheduleShare, Seconds};
use morphgl_registry::HostBatch;

use super::*;

fn share(in_place: bool) -> ScheduleShare {
    let seconds = Seconds::constant(1.0);
    let name = || "A".to_string();
    ScheduleShare {
        keys: RouteKeys {
            batching: "Batching_CPU_A".parse().expect("a key"),
            transferring: "Transferring_CPU_A".parse().expect("a key"),
            training: "Training_CPU_A".parse().expect("a key"),
        },
        hardware: Hardware { batching: vec![name()], transferring: vec![name()], training: vec![name()] },
        in_place,
        batches: 4,
        workers: 1,
        threads_per_worker: 1,
        batching: seconds,
        transferring: seconds,
        training: seconds,
        contention: None,
    }
}

/// Two shares: the first is moved to where the second batches and both train.
fn buffers(batched: usize, ready: usize) -> Buffers {
    let schedule = Schedule {
        policy: Policy::DualBuffer,
        resources: Vec::new(),
        shares: vec![share(false), share(true)],
        training_threads: 0,
        batched,
        ready,
        group: 0,
        keep: 0,
        oversubscription: 1.0,
        after_step: 0.0,
    };
    Buffers::new(&schedule, vec![Vec::new(), Vec::new()])
}

fn spare() -> Option<MiniBatch> {
    Some(MiniBatch::Host(HostBatch::default()))
}

#[test]
fn spares_return_to_the_share_that_made_them() {
    let mut b = buffers(2, 2);
    let step = |share, phase| Step { share, phase };
    assert!(b.begin(step(1, Phase::Batching)).is_none());
    b.begin(step(1, Phase::Transferring));
    b.begin(step(1, Phase::Training));
    b.trained(1, spare());
    assert!(b.begin(step(0, Phase::Batching)).is_none(), "the other share's");
    assert!(b.begin(step(1, Phase::Batching)).is_some());
    assert_eq!(b.peak, [1, 1]);
}

#[test]
fn spares_are_dropped_for_mini_batches_moved_to_their_memory() {
    let mut b = buffers(3, 2);
    let step = |share, phase| Step { share, phase };
    for _ in 0..2 {
        b.begin(step(1, Phase::Batching));
        b.begin(step(1, Phase::Training));
        b.trained(1, spare());
    }
    // The second pair is begun with one spare and one new mini-batch, so two spares remain.
    b.begin(step(1, Phase::Batching));
    b.begin(step(1, Phase::Batching));
    for _ in 0..2 {
        b.begin(step(1, Phase::Training));
        b.trained(1, spare());
    }
    assert_eq!(b.count(true), 2);
    for left in [2, 1] {
        b.begin(step(0, Phase::Batching));
        b.begin(step(0, Phase::Transferring));
        assert_eq!(b.count(true), left, "two are ready at most, and one is in training");
    }
    assert_eq!(b.peak, [1, 2]);
}
