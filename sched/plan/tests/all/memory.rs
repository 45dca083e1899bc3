//! The memory governor: plans made smaller, and those that cannot be.

use crate::common::{TwoRoutes, check::check};
use morphgl_plan::{Bytes, Candidate, Limits, Memory, Problem, memory, plan, timeline};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

/// Mini-batches of 3 MiB as batched and 2 MiB as ready, workers of 1 MiB.
fn problem(two: &TwoRoutes, host_bytes: Option<u64>, device_bytes: Option<u64>) -> Problem {
    let whole = two.problem();
    let bytes = Bytes { batched: 3 * MIB, ready: 2 * MIB, worker: MIB };
    let routes: Vec<Candidate> = whole.routes().iter().map(|r| Candidate { bytes, ..r.clone() }).collect();
    Problem::new(two.n, whole.resources().to_vec(), routes).expect("the problem is valid").with_limits(Limits {
        host_bytes,
        device_bytes,
        ..two.limits()
    })
}

fn two() -> TwoRoutes {
    TwoRoutes::new(200, 4, [0.04, 0.004, 0.005, 0.003, 0.002])
}

#[test]
fn memory_is_the_sum_of_buffers_and_workers() {
    let two = two();
    let problem = problem(&two, None, None);
    let schedule = two.schedule(morphgl_plan::Policy::Interleaved, 100, (2, 1));
    // The host: four workers, 64 batched and one being moved. The device: its own worker, 10 ready and one in training.
    let expected = Memory { host: 4 * MIB + 65 * 3 * MIB, device: MIB + 11 * 2 * MIB, ..Memory::default() };
    assert_eq!(memory(&problem, &schedule), expected);
    for p in plan(&problem).expect("there is no limit").all() {
        assert_eq!(p.memory, memory(&problem, &p.schedule));
    }
}

#[test]
fn plans_are_made_smaller_until_they_fit() {
    let two = two();
    let free = plan(&problem(&two, None, None)).expect("there is no limit");
    let limits =
        [(Some(20 * MIB), None), (None, Some(8 * MIB)), (Some(9 * MIB), Some(5 * MIB)), (Some(6 * MIB), Some(4 * MIB))];
    for (host, device) in limits {
        let plans = plan(&problem(&two, host, device)).expect("something fits");
        for p in plans.all() {
            assert!(host.is_none_or(|b| p.memory.host <= b), "{:?} of {host:?}: {p}", p.memory);
            assert!(device.is_none_or(|b| p.memory.device <= b), "{:?} of {device:?}: {p}", p.memory);
            assert_eq!(p.num_batches(), two.n);
            check(&p.schedule, &timeline(&p.schedule));
        }
        assert!(plans.best().prediction.epoch_seconds >= free.best().prediction.epoch_seconds, "{}", plans.best());
    }
}

#[test]
fn the_error_of_memory_states_the_minimum() {
    let refused = plan(&problem(&two(), None, Some(MIB))).expect_err("a mini-batch is needed");
    // Sequentially, the device holds one at a time, and its worker.
    assert_eq!(refused.minimum, Memory { host: 0, device: 3 * MIB, ..Memory::default() });
    assert_eq!(
        refused.to_string(),
        "no plan fits in memory: the smallest needs 0.0 MiB and 3.0 MiB of the device's 1.0 MiB; allow more memory, or make \
         mini-batches smaller (batch size, fanouts)"
    );
    let refused = plan(&problem(&two(), Some(MIB / 2), Some(2 * MIB))).expect_err("not even a worker fits");
    assert!(refused.to_string().contains("of the host's 0.5 MiB left for buffers"), "{refused}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn refused_limits_are_below_the_minimum_and_the_minimum_fits(host in 0u64..12, device in 0u64..12) {
        let small = problem(&two(), Some(host * MIB), Some(device * MIB));
        if let Err(refused) = plan(&small) {
            prop_assert!(refused.minimum.host > host * MIB || refused.minimum.device > device * MIB, "{}", refused);
            let enough = problem(&two(), Some(refused.minimum.host), Some(refused.minimum.device));
            prop_assert!(plan(&enough).is_ok(), "{}", refused);
        }
    }
}
